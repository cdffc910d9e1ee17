"""Checks of the values that callers pass. A bad value raises an error before anything is written."""

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
    """Check an id that another system uses, such as the id of a chat, and return it as text or None. Some
    platforms use integers, which are converted. `name` is the name of the argument in error messages."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return check_optional_text(name, value)


def check_time(name: str, value: object) -> float:
    """Check a time in seconds (since the epoch, or a length of time), and return it as a float. `name` is the
    name of the argument in error messages."""
    return _check_finite(name, "a time in seconds", value)


def check_integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise _build_error(name, "a whole number", value)
    return value


def row_limit(value: object) -> int:
    """Check the argument `limit` of a list, and return the highest number of rows to read. A negative limit
    means all rows."""
    limit = check_integer("limit", value)
    return limit if limit >= 0 else _LARGEST


def check_optional_integer(name: str, value: object) -> int | None:
    return None if value is None else check_integer(name, value)


def check_counter(name: str, value: object) -> int:
    """Check the value of a counter, such as a number of tokens, and return it as an integer. None becomes 0. A
    whole float such as 12.0, which some providers report, becomes 12."""
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
    """Check that the path of a store is valid UTF-8. Engines require this, but the operating system does
    not."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        message = f"the path of a store must be valid UTF-8, got {str(path)!r}; use another name"
        raise errors.make_error(errors.InvalidArgument, message) from None
    return path


def check_optional_mapping(name: str, value: object) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise _build_error(name, "a mapping", value)


def check_names(name: str, values: object) -> tuple[str, ...]:
    """Check an argument that is a list of names. A single string is refused, because it would be read as a list
    of characters."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _build_error(name, "a list of names", values)
    return tuple(require_text(name, value) for value in values)


def join_names(values: Iterable[str]) -> str:
    r"""Join names into one SQL parameter. The separator is a character that names do not contain.

    A statement binds this parameter twice to test whether it contains `name`:
    `replace(?, '\x1f' || name || '\x1f', '') <> ?`. Every engine has the function `replace`.
    """
    return "\x1f".join(("", *values, ""))


def check_iterable(name: str, values: object) -> Iterable[Any]:
    """Check an argument that is an iterable of objects. A single mapping or a string is refused."""
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
    except ValueError:  # an integer with too many digits to format
        text = "…"
    return errors.make_error(
        errors.InvalidArgument, f"{name} must be {expected}, got {type(value).__name__} {text}"
    )
