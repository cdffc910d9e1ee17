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


def require_text(name: str, value: object) -> str:
    if type(value) is str:
        return replace_surrogates(value)
    if value is None:
        raise errors.make_error(errors.MissingValue, f"{name} is required, got None")
    if not isinstance(value, str):
        raise _build_error(name, "text", value)
    return replace_surrogates(str(value))


def check_optional_text(name: str, value: object) -> str | None:
    return None if value is None else require_text(name, value)


def check_optional_id(name: str, value: object) -> str | None:
    """An id of another system: platforms count theirs, so that a whole number is as good as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return check_optional_text(name, value)


def check_time(name: str, value: object) -> float:
    """A time in epoch seconds."""
    return _check_finite(name, "a time in seconds", value)


def check_integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise _build_error(name, "a whole number", value)
    return value


def row_limit(value: object) -> int:
    """The `limit` of a list as every engine takes it; a negative one means all rows."""
    limit = check_integer("limit", value)
    return limit if limit >= 0 else _LARGEST


def check_optional_integer(name: str, value: object) -> int | None:
    return None if value is None else check_integer(name, value)


def check_counter(name: str, value: object) -> int:
    """Something counted; None counts as nothing, and providers that report 12.0 mean 12."""
    if value is None:
        return 0
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        value = int(value)
    return check_integer(name, value)


def check_optional_number(name: str, value: object) -> float | None:
    if value is None:
        return None
    return _check_finite(name, "a number", value)


def check_optional_path(name: str, value: object) -> Path | None:
    if value is None:
        return None
    if isinstance(value, str | os.PathLike) and "\0" not in os.fsdecode(value):
        return value if isinstance(value, Path) else Path(os.fsdecode(value))
    raise _build_error(name, "a path", value)


def check_database_path(path: Path) -> Path:
    """A path that an engine can be given: names in UTF-8 only, while the system takes any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        message = f"the path of a store must be UTF-8, which {str(path)!r} is not; give it another name"
        raise errors.make_error(errors.InvalidArgument, message) from None
    return path


def check_optional_mapping(name: str, value: object) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise _build_error(name, "a mapping", value)


def check_names(name: str, values: object) -> tuple[str, ...]:
    """A list of names; one bare name is a mistake that would otherwise be read letter by letter."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _build_error(name, "a list of names", values)
    return tuple(require_text(name, value) for value in values)


def join_names(values: Iterable[str]) -> str:
    """Any number of names as one value, with a character between them that names do not hold.

    A statement looks a name up with `replace(?, '\\x1f' || name || '\\x1f', '') <> ?`: every engine has `replace`.
    """
    return "\x1f".join(("", *values, ""))


def check_iterable(name: str, values: object) -> Iterable[Any]:
    """Any number of objects; one alone, or a text, is a mistake."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _build_error(name, "a list", values)
    return values


def check_mappings(name: str, values: object) -> list[Mapping[str, Any]]:
    items = list(check_iterable(name, values))
    for value in items:
        if not isinstance(value, Mapping):
            raise _build_error(f"each of {name}", "a mapping", value)
    return items


def _check_finite(name: str, expected: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise _build_error(name, expected, value) from None
        if isfinite(number):
            return number
    raise _build_error(name, expected, value)


def _build_error(name: str, expected: str, value: object) -> errors.HermesError:
    try:
        text = repr(value)[:40]
    except ValueError:  # a number too long to be written down
        text = "…"
    return errors.make_error(
        errors.InvalidArgument, f"{name} must be {expected}, got {type(value).__name__} {text}"
    )
