"""Readers for settings that belong to one platform. `Misconfigured` says what is wrong with a value."""

from __future__ import annotations

from hermes.config.redaction import redact_text
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http.host import LAST_PORT


def read_list(path: str, value: object) -> list[str]:
    """A list, or a text with commas, as the environment has it."""
    items = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(items, list | tuple):
        raise Misconfigured(f"{path} must be a list")
    return [str(item).strip() for item in items if str(item).strip()]


def read_number(path: str, value: object, most: float) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise Misconfigured(f"{path} is a number up to {most:g}, not {redact_text(repr(value))}")
    return number


def read_port(path: str, value: object) -> int:
    return int(read_number(path, value, LAST_PORT))


def read_integer(path: str, value: object, low: int, high: int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise Misconfigured(f"{path} is a whole number from {low} to {high}, not {value!r}")
    return int(text)
