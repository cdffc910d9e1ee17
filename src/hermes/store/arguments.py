"""What callers hand in, checked once, at the door: a bad value is one clear error, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from hermes import errors
from hermes.text import replace_surrogates

_LARGEST = 2**63 - 1


def required_text(name: str, value: object) -> str:
    if type(value) is str:
        return replace_surrogates(value)
    if value is None:
        raise errors.make_error(errors.MissingValue, f"{name} is required, got None")
    if not isinstance(value, str):
        raise _wrong(name, "text", value)
    return replace_surrogates(str(value))


def optional_text(name: str, value: object) -> str | None:
    return None if value is None else required_text(name, value)


def optional_id(name: str, value: object) -> str | None:
    """An id of another system: platforms count theirs, so that a whole number is as good as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return optional_text(name, value)


def moment(name: str, value: object) -> float:
    """A time in epoch seconds."""
    return _finite(name, "a time in seconds", value)


def whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise _wrong(name, "a whole number", value)
    return value


def row_limit(value: object) -> int:
    """The `limit` of a list as every engine takes it; a negative one means all rows."""
    limit = whole("limit", value)
    return limit if limit >= 0 else _LARGEST


def optional_whole(name: str, value: object) -> int | None:
    return None if value is None else whole(name, value)


def counter(name: str, value: object) -> int:
    """Something counted; None counts as nothing, and providers that report 12.0 mean 12."""
    if value is None:
        return 0
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        value = int(value)
    return whole(name, value)


def optional_amount(name: str, value: object) -> float | None:
    if value is None:
        return None
    return _finite(name, "a number", value)


def optional_path(name: str, value: object) -> Path | None:
    if value is None:
        return None
    if isinstance(value, str | os.PathLike) and "\0" not in os.fsdecode(value):
        return value if isinstance(value, Path) else Path(os.fsdecode(value))
    raise _wrong(name, "a path", value)


def database_path(path: Path) -> Path:
    """A path that SQLite can be given: it takes names in UTF-8 only, the system any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        told = f"SQLite needs a path that is UTF-8, which {str(path)!r} is not; give it another name"
        raise errors.make_error(errors.InvalidArgument, told) from None
    return path


def optional_mapping(name: str, value: object) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise _wrong(name, "a mapping", value)


def names(name: str, values: object) -> tuple[str, ...]:
    """A list of names; one bare name is a mistake that would otherwise be read letter by letter."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong(name, "a list of names", values)
    return tuple(required_text(name, value) for value in values)


def as_one(values: Iterable[str]) -> str:
    """Any number of names as one value, with a character between them that names do not hold.

    A statement looks a name up with `replace(?, '\\x1f' || name || '\\x1f', '') <> ?`: every engine has `replace`.
    """
    return "\x1f".join(("", *values, ""))


def several(name: str, values: object) -> Iterable[Any]:
    """Any number of objects; one alone, or a text, is a mistake."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong(name, "a list", values)
    return values


def mappings(name: str, values: object) -> list[Mapping[str, Any]]:
    found = list(several(name, values))
    for value in found:
        if not isinstance(value, Mapping):
            raise _wrong(f"each of {name}", "a mapping", value)
    return found


def _finite(name: str, wanted: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise _wrong(name, wanted, value) from None
        if isfinite(number):
            return number
    raise _wrong(name, wanted, value)


def _wrong(name: str, wanted: str, value: object) -> errors.HermesError:
    try:
        shown = repr(value)[:40]
    except ValueError:  # a number too long to be written down
        shown = "…"
    return errors.make_error(
        errors.InvalidArgument, f"{name} must be {wanted}, got {type(value).__name__} {shown}"
    )
