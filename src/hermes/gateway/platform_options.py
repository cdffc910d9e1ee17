"""What only a platform knows of its settings, read as what it means; `Misconfigured` says what is wrong with it."""

from __future__ import annotations

from hermes.config.redaction import redact_text
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http.host import LAST_PORT


def several(path: str, value: object) -> list[str]:
    """A list, or a text with commas, as the environment has it."""
    given = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(given, list | tuple):
        raise Misconfigured(f"{path} must be a list")
    return [str(one).strip() for one in given if str(one).strip()]


def number(path: str, value: object, most: float) -> float:
    try:
        given = float(str(value))
    except ValueError:
        given = -1
    if not 0 <= given <= most:
        raise Misconfigured(f"{path} is a number up to {most:g}, not {redact_text(repr(value))}")
    return given


def port(path: str, value: object) -> int:
    return int(number(path, value, LAST_PORT))


def whole(path: str, value: object, low: int, high: int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise Misconfigured(f"{path} is a whole number from {low} to {high}, not {value!r}")
    return int(text)
