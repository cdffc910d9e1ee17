"""Time in, time out. The only caller of `time.time()`; stored as UTC epoch, printed local."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeGuard

now = time.time
"""Epoch seconds. Tests that need another clock pass explicit times instead of patching this."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def format_relative(then: object, at: float) -> str:
    """How long ago, as people say it: `just now`, `5m ago`, `2h ago`, `yesterday`, `3d ago`, a date."""
    if not then or not isinstance(then, int | float):  # another program may have written anything
        return "?"
    age = at - then
    if age < MINUTE:
        return "just now"
    if age < HOUR:
        return f"{int(age // MINUTE)}m ago"
    if age < DAY:
        return f"{int(age // HOUR)}h ago"
    if age < 2 * DAY:
        return "yesterday"
    if age < 7 * DAY:
        return f"{int(age // DAY)}d ago"
    return format_day(then)


def is_time(value: object) -> TypeGuard[float]:
    """Whether that can be reckoned with: another program may have put text where a time belongs."""
    return isinstance(value, int | float)


def filter_times(values: Iterable[object]) -> list[float]:
    return [value for value in values if is_time(value)]


def format_day(then: float) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have written anything
        return "?"


def format_iso(then: object) -> str:
    """`2025-03-05T09:15:23+01:00`: local, with its offset, so that nobody has to guess where."""
    from datetime import UTC, datetime  # not needed to list or print

    try:
        return datetime.fromtimestamp(then, UTC).astimezone().isoformat(timespec="seconds")  # type: ignore[arg-type]
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have written anything
        return "?"


def format_iso_utc(then: float) -> str:
    """`2025-03-05T08:15:23Z`: for records that are compared between machines."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(then))


def format_stamp(at: float | None = None) -> str:
    """`20250305_091523`, local: the readable half of the ids and file names we mint."""
    return time.strftime("%Y%m%d_%H%M%S", time.localtime(now() if at is None else at))


_VERSION_7 = 7 << 76 | 2 << 62
_CHANCE = ~(15 << 76 | 3 << 62)


def make_uid() -> str:
    """A UUID of version 7 as 32 hexadecimal digits: time-ordered, unique without asking anybody."""
    moment = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big") & _CHANCE
    return f"{moment << 80 | _VERSION_7 | chance:032x}"
