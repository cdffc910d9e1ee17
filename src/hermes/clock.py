"""The clock, the formats of times, and counts of recent events. Only this module calls `time.time()`. Times are
stored as UTC epochs and printed as local time."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeGuard

now = time.time
"""Returns epoch seconds. Tests that need another time pass explicit times instead of patching this."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def format_relative(then: object, at: float) -> str:
    """Format the past time `then` relative to the time `at`: `just now`, `5m ago`, `2h ago`, `yesterday`, `3d
    ago`, or a date. Return `?` if `then` is not a time."""
    if not then or not isinstance(then, int | float):  # another program may have stored any value
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
    """Return whether a stored value is a time. Another program may have stored text instead."""
    return isinstance(value, int | float)


def filter_times(values: Iterable[object]) -> list[float]:
    return [value for value in values if is_time(value)]


def format_day(then: float) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored any value
        return "?"


def format_iso(then: object) -> str:
    """Format a local time with its offset: `2025-03-05T09:15:23+01:00`."""
    from datetime import UTC, datetime  # not needed to list or print

    try:
        return datetime.fromtimestamp(then, UTC).astimezone().isoformat(timespec="seconds")  # type: ignore[arg-type]
    except (TypeError, OverflowError, ValueError, OSError):  # another program may have stored any value
        return "?"


def format_iso_utc(then: float) -> str:
    """Format a UTC time for records that are compared between machines: `2025-03-05T08:15:23Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(then))


def format_stamp(at: float | None = None) -> str:
    """Format a local time for ids and file names: `20250305_091523`."""
    return time.strftime("%Y%m%d_%H%M%S", time.localtime(now() if at is None else at))


_VERSION_7 = 7 << 76 | 2 << 62
"""The bits of a UUID that state its version (7) and its variant."""
_CHANCE = ~(15 << 76 | 3 << 62)
"""A mask with all bits except those of `_VERSION_7`. These bits of the last ten bytes are random."""


def make_uid() -> str:
    """Return a UUID of version 7 as 32 hexadecimal digits. It is ordered by time and unique without
    coordination."""
    moment = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big") & _CHANCE
    return f"{moment << 80 | _VERSION_7 | chance:032x}"


MOST_REMEMBERED = 10_000
"""The default number of people whose events are remembered. The least recently active people are forgotten
first."""


class RecentEvents:
    """Counts how many events each person has caused within the last `seconds`, by remembering their times."""

    def __init__(self, seconds: float, most: int = MOST_REMEMBERED) -> None:
        self._seconds, self._most = seconds, most
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def count(self, who: str, now: float) -> int:
        return sum(now - then < self._seconds for then in self._times.get(who, ()))

    def add(self, who: str, now: float) -> None:
        times = [then for then in self._times.pop(who, ()) if now - then < self._seconds]
        self._times[who] = [*times, now]
        if len(self._times) > self._most:
            self._times.popitem(last=False)
