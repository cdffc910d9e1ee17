"""What the value of a setting may be, and how that is told to a person who wrote something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from unicodedata import category
from urllib.parse import urlsplit


class Kind(NamedTuple):
    expected: str
    """What is expected, for a person who wrote something else."""
    read: Callable[[object], Any]
    """The value as it is used, or ValueError."""


class Setting(NamedTuple):
    kind: Kind
    meaning: str


def _check_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _check_url(value: object) -> str:
    text = _check_text(value).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text) or not text.isprintable():
        raise ValueError
    parts = urlsplit(text)  # ValueError also where brackets or the port make no sense
    if not _is_host(parts.hostname or "") or parts.port == 0:
        raise ValueError
    return text


def _is_host(name: str) -> bool:
    """Whether a server can be called that: letters of any script, in parts that are not empty or too long."""
    name.encode("idna")
    return bool(name) and all(char.isascii() or category(char)[0] in "LMN" for char in name)


def _check_variable(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text := _check_text(value)):
        raise ValueError
    return text


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def make_number(low: float, high: float, *, clamp: tuple[float, float] | None = None) -> Kind:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value) if clamp is None else min(max(float(value), clamp[0]), clamp[1])

    return Kind(f"a number from {low:g} to {high:g}", read)


def make_integer(low: int, high: int) -> Kind:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(f"a whole number from {low} to {high}", read)


def make_choice(*names: str) -> Kind:
    def read(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Kind(" or ".join(names), read)


def make_list(kind: Kind, expected: str) -> Kind:
    """Several of them: a list, or one text with commas between."""

    def read(value: object) -> tuple[Any, ...]:
        entries = [entry for entry in value.split(",") if entry.strip()] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple):
            raise ValueError
        return tuple(kind.read(entry) for entry in entries)

    return Kind(expected, read)


def _check_folder(value: object) -> str:
    text = _check_text(value)
    if not text.startswith(("/", "~/", "$")) or "\0" in text:
        raise ValueError
    return text


TEXT = Kind("a text", _check_text)
URL = Kind("an address such as http://127.0.0.1:11434/v1", _check_url)
VARIABLE = Kind("the name of an environment variable", _check_variable)
FLAG = Kind("true or false", _check_flag)
FOLDERS = make_list(Kind("", _check_folder), "whole paths of folders, in a list or with commas between them")
VARIABLE_NAMES = make_list(VARIABLE, "names of environment variables, in a list or with commas between them")
DAYS = make_number(0, 1_000_000)
RATE = make_number(0, 1_000_000)
RATES = ("input", "output", "cache_read", "cache_write")
