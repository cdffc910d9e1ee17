"""Wall-clock times and instants in a time zone, with the changes of its offset (daylight saving time).

A wall time that occurs twice means its first occurrence. A wall time that is skipped means the end of the gap. All
instants are epoch seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

FIRST, SECOND = 0, 1


def to_wall(at: float, zone: tzinfo) -> datetime:
    """Return the wall-clock time of the instant `at` in a time zone, as a `datetime` without a zone."""
    return datetime.fromtimestamp(at, UTC).astimezone(zone).replace(tzinfo=None, fold=FIRST)


def to_instant(wall: datetime, zone: tzinfo) -> int:
    """Return the instant of a wall-clock time in a time zone. The microseconds of the wall-clock time are ignored."""
    wall = wall.replace(microsecond=0)
    first = _find_instant(wall, zone, FIRST)
    if to_wall(first, zone) == wall:
        return first
    # A skipped time is before the change with the later offset, and after it with the earlier offset.
    return find_change(_find_instant(wall, zone, SECOND), first, zone)


def _find_instant(wall: datetime, zone: tzinfo, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp())


def find_offset(at: float, zone: tzinfo) -> int:
    """Return the UTC offset of a time zone at the instant `at`, in seconds."""
    offset = datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def find_change(before: int, after: int, zone: tzinfo) -> int:
    """Return the first instant between `before` and `after` at which the UTC offset of the time zone differs from the
    offset at `before`. The offset must change once between them."""
    offset = find_offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if find_offset(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after
