"""Kinds of settings. A kind checks a value, and describes the valid values for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from unicodedata import category
from urllib.parse import urlsplit

from hermes.config.time_zones import EXPECTED, find_zone

SWITCH_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
"""The words for true and false in an environment variable."""


class Kind(NamedTuple):
    expected: str
    """Describes the valid values in error messages."""
    read: Callable[[object], Any]
    """Returns the checked value, or raises ValueError."""
    choices: tuple[str, ...] = ()
    """All valid values, if there are only a few. They are offered for completion in a shell."""


def _check_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _check_url(value: object) -> str:
    text = _check_text(value).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text) or not text.isprintable():
        raise ValueError
    parts = urlsplit(text)  # also raises ValueError for invalid brackets or ports
    if not _is_host(parts.hostname or "") or parts.port == 0:
        raise ValueError
    return text


def _is_host(name: str) -> bool:
    """Return whether the name is a valid host name. Letters can be of any script. Raise `ValueError` if the
    name cannot be encoded, for example because a part is too long."""
    name.encode("idna")
    return bool(name) and all(char.isascii() or category(char)[0] in "LMN" for char in name)


def _check_network(value: object) -> str:
    from ipaddress import ip_network

    # raises ValueError if the value is not a network
    return str(ip_network(_check_text(value), strict=False))


def _check_variable(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text := _check_text(value)):
        raise ValueError
    return text


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def make_number(low: float, high: float, *, clamp: tuple[float, float] | None = None) -> Kind:
    """Return a kind of setting that accepts a number from `low` to `high`. `clamp` is a narrower range: an
    accepted number outside it is replaced by the nearest number in it."""

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

    return Kind(" or ".join(names), read, names)


def make_list(kind: Kind, expected: str) -> Kind:
    """Return a kind of setting that accepts several values, written as a list or as one text with commas
    between the values."""

    def read(value: object) -> tuple[Any, ...]:
        entries = [entry for entry in value.split(",") if entry.strip()] if isinstance(value, str) else value
        if not isinstance(entries, list | tuple):
            raise ValueError
        return tuple(kind.read(entry) for entry in entries)

    return Kind(expected, read)


def _check_model(value: object) -> dict[str, Any]:
    """Accept the name of a model, or a mapping with its name and endpoint. Return a mapping in both cases."""
    fields = value if isinstance(value, Mapping) else {"model": value}
    if "model" not in fields or not fields.keys() <= MODEL_FIELDS.keys():
        raise ValueError
    return {str(name): MODEL_FIELDS[name].read(inner) for name, inner in fields.items()}


def _check_model_name(value: object) -> str:
    if not re.fullmatch(r"[^\s\[\]{}\"',]+", text := _check_text(value)):
        raise ValueError
    return text


def _check_folder(value: object) -> str:
    text = _check_text(value)
    if not text.startswith(("/", "~/", "$")) or "\0" in text:
        raise ValueError
    return text


def _check_id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


def _check_people(value: object) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else value
    if not isinstance(names, list) or (isinstance(value, str) and value.lstrip().startswith("[")):
        raise ValueError
    return frozenset(_check_id(name) for name in names if name != "" and not str(name).isspace())


def _check_zone(value: object) -> str:
    name = _check_text(value)
    find_zone(name)
    return name


def _check_server(value: object) -> str:
    name = _check_text(value)
    return _check_url(name if "://" in name else f"https://{name}")


def _check_any_text(value: object) -> str:
    """Accept any text, including an empty one. Accept numbers too, because an id or a secret can look like a
    number in YAML."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    return str(value)


def _check_switch(value: object) -> bool:
    """Accept a boolean, or a word that stands for one, because YAML 1.2 reads `no` as text."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in SWITCH_WORDS:
        raise ValueError
    return SWITCH_WORDS[word]


TEXT = Kind("a text", _check_text)
ANY_TEXT = Kind("a text", _check_any_text)
URL = Kind("an address such as http://127.0.0.1:11434/v1", _check_url)
VARIABLE = Kind("the name of an environment variable", _check_variable)
FLAG = Kind("true or false", _check_flag, ("true", "false"))
SWITCH = Kind("true or false", _check_switch, ("true", "false"))
FOLDERS = make_list(Kind("", _check_folder), "whole paths of folders, in a list or with commas between them")
VARIABLE_NAMES = make_list(VARIABLE, "names of environment variables, in a list or with commas between them")
MODEL_FIELDS = {
    "model": Kind("the name of a model", _check_model_name),
    "base_url": URL,
    "key_env": VARIABLE,
    "context_window": make_integer(1_000, 100_000_000),
}
MODELS = make_list(
    Kind("", _check_model),
    "names of models, in a list or with commas between them; in a list, an entry can be"
    " `{model: NAME, base_url: URL, key_env: VARIABLE, context_window: TOKENS}`",
)
ID = Kind("an id", _check_id)
PEOPLE = Kind("people by their id or @name, in a list or with commas between them", _check_people)
ZONE = Kind(EXPECTED, _check_zone)
SERVER = Kind("an address such as https://matrix.org", _check_server)
PORT = make_integer(0, 65_535)
HOSTS = make_list(ID, "hosts, in a list or with commas between them")
NETWORKS = make_list(
    Kind("an address or a network", _check_network),
    "addresses or networks, in a list or with commas between them",
)
DAYS = make_number(0, 1_000_000)
RATE = make_number(0, 1_000_000)
RATES = ("input", "output", "cache_read", "cache_write")
"""The kinds of tokens that can have a price."""
