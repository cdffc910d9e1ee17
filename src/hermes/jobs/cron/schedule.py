"""Schedules: when a job is due.

A schedule is a text in one of three forms, which job files keep:

- five fields of cron, such as `0 9 * * 1-5`. The wall clock of the job's time zone applies. A job at fixed times runs
  once at each, also on the days when the clock is changed: a time that occurs twice counts once, and a time that is
  skipped is moved to the end of the gap. If the field for minutes or hours begins with `*`, the job runs at every
  matching time that exists: twice in a repeated hour, never in a skipped one. Debian's cron has the same rules.
- an interval, such as `every 2h` or `every 3 days`. It counts from the anchor of the job. Hours, minutes and seconds
  are exact. Days and weeks keep the time of day.
- one time, such as `2026-12-01T09:00:00+01:00`.

`phrases` turns what people type into these forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol

from hermes import clock, errors
from hermes.config.extras import format_install
from hermes.jobs.cron.wall_time import find_change, find_offset, to_instant, to_wall

LEAST_INTERVAL_S = 10
LONGEST_INTERVAL_S = 366 * clock.DAY
UNITS = {"s": 1, "m": clock.MINUTE, "h": clock.HOUR, "d": clock.DAY, "w": 7 * clock.DAY}
INTERVAL = re.compile(r"every (\d{1,9})([smhdw])")
LOOK_BACK_S = (clock.HOUR, clock.DAY, 32 * clock.DAY, 367 * clock.DAY)
"""How far `find_latest` looks back, step by step: a schedule with many times has one in the first step."""
LARGEST_CHANGE_S = 26 * clock.HOUR
"""How far a wall clock can be turned. A zone that crosses the date line skips or repeats a day."""
LEAP_S, PROBE_S = 2 * clock.DAY, 6 * clock.HOUR
"""How far `CronSchedule` looks for changes of the offset at once, and the distance between two probes."""


class BadSchedule(errors.HermesError):
    """The schedule cannot be understood, or no time ever matches it. The message is one line for the person."""


class Schedule(Protocol):
    @property
    def text(self) -> str:
        """The schedule as text, in the form that is written to job files."""

    def next_after(self, at: float) -> int | None:
        """Return the first due time later than the instant `at`. None if there is none."""


class OneTime(NamedTuple):
    text: str
    at: int

    def next_after(self, at: float) -> int | None:
        return self.at if self.at > at else None


class Interval(NamedTuple):
    """A schedule with a fixed number of seconds between due times. Changes of the wall clock do not affect it."""

    text: str
    seconds: int
    anchor: int

    def next_after(self, at: float) -> int | None:
        passed = int((at - self.anchor) // self.seconds)
        return self.anchor + max(1, passed + 1) * self.seconds


class DayInterval(NamedTuple):
    """A schedule with a fixed number of days between due times. All due times have the time of day of the anchor, in
    the job's time zone."""

    text: str
    days: int
    anchor: int
    zone: tzinfo

    def next_after(self, at: float) -> int | None:
        start = to_wall(self.anchor, self.zone)
        passed = (to_wall(at, self.zone) - start).days // self.days
        number = max(1, passed - 1)
        while (due := to_instant(start + timedelta(days=number * self.days), self.zone)) <= at:
            number += 1
        return due


class CronSchedule:
    def __init__(self, text: str, zone: tzinfo) -> None:
        self.text, self._zone = " ".join(text.split()), zone
        minute, hour, *_ = self.text.split()
        self._is_fixed = not (minute.startswith("*") or hour.startswith("*"))
        """Whether the job runs at fixed times of the day."""

    def next_after(self, at: float) -> int | None:
        try:
            return self._next_fixed(at) if self._is_fixed else self._next_wild(int(at // 1))
        except OverflowError:  # the year 9999
            return None

    def _next_fixed(self, at: float) -> int | None:
        start = to_wall(at, self._zone).replace(microsecond=0)
        if find_offset(at - LARGEST_CHANGE_S, self._zone) != find_offset(at, self._zone):
            start -= timedelta(seconds=LARGEST_CHANGE_S)  # earlier wall times may belong to later instants
        for wall in _iterate(self.text, start):
            due = to_instant(wall, self._zone)
            if due > at:
                return due
        return None

    def _next_wild(self, at: int) -> int | None:
        """Return the first due time later than `at`, for a cron expression whose field for minutes or hours begins with
        `*`.

        The expression is matched against the wall clock with the UTC offset that is valid at `at`. If the offset
        changes before the first match, the search continues from the change with the new offset. In a long time without
        matches, only the beginning and the end are searched for changes of the offset, because a change affects only
        matches near it.
        """
        while True:
            offset = find_offset(at, self._zone)
            wall = next(_iterate(self.text, _shift(at, offset)), None)
            if wall is None:
                return None
            due = int(wall.replace(tzinfo=UTC).timestamp()) - offset
            end = min(due, at + LEAP_S)
            change = _find_next_change(at, end, self._zone)
            if change is None and due == end:
                return due
            if change is None:
                at = max(end, due - LEAP_S)
            elif _is_match(self.text, to_wall(change, self._zone)):
                return change
            else:
                at = change


def _shift(at: int, offset: int) -> datetime:
    return datetime.fromtimestamp(at + offset, UTC).replace(tzinfo=None)


def _find_next_change(at: int, end: int, zone: tzinfo) -> int | None:
    """Return the first instant after `at`, up to `end`, at which the UTC offset of the time zone changes. None if it
    does not change."""
    offset = find_offset(at, zone)
    while at < end:
        probe = min(at + PROBE_S, end)
        if find_offset(probe, zone) != offset:
            return find_change(at, probe, zone)
        at = probe
    return None


def _is_match(text: str, wall: datetime) -> bool:
    return next(_iterate(text, wall - timedelta(seconds=1)), None) == wall


def _iterate(text: str, after: datetime) -> Iterator[datetime]:
    """Yield the wall-clock times later than the argument `after` that match the cron expression `text`. Changes of the
    clock (daylight saving time) are not taken into account here."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise errors.HermesError(
            f"a cron expression needs the package cronsim; run: {format_install('cron')}"
        ) from None
    try:
        yield from CronSim(text, after)
    except CronSimError as problem:
        raise BadSchedule(f"{text!r} is not a cron expression: {str(problem).lower()}") from None


# ---------------------------------------------------------------- reading


def read_schedule(text: str, zone: tzinfo, anchor: float) -> Schedule:
    """Return the schedule that the text in a job file describes. Intervals count from the instant `anchor`. Raise
    `BadSchedule` if the text is not a schedule."""
    spelled = " ".join(text.split())
    if match := INTERVAL.fullmatch(spelled):
        return _make_interval(spelled, int(match[1]), match[2], zone, anchor)
    if spelled.startswith("every"):
        raise BadSchedule(f"{spelled!r} is not an interval; write `every 2h` or `every 3d`")
    if len(fields := spelled.split(" ")) == 5:
        for _ in _iterate(spelled, datetime(2000, 1, 1)):  # noqa: DTZ001  any wall time
            return CronSchedule(spelled, zone)
        raise BadSchedule(f"{spelled!r} matches no day")
    try:
        at = datetime.fromisoformat(spelled)
    except ValueError:
        what = (
            f"a cron expression has 5 fields, not {len(fields)}" if len(fields) > 3 else "it is no schedule"
        )
        raise BadSchedule(f"{spelled[:80]!r}: {what}") from None
    return OneTime(spelled, int(at.timestamp()) if at.tzinfo else to_instant(at, zone))


def _make_interval(text: str, count: int, unit: str, zone: tzinfo, anchor: float) -> Schedule:
    seconds = count * UNITS[unit]
    if not LEAST_INTERVAL_S <= seconds <= LONGEST_INTERVAL_S:
        raise BadSchedule(
            f"{text!r}: an interval is at least {LEAST_INTERVAL_S} seconds and at most 366 days"
        )
    if unit in "dw":
        return DayInterval(text, seconds // clock.DAY, int(anchor), zone)
    return Interval(text, seconds, int(anchor))


# ---------------------------------------------------------------- times


def list_next(schedule: Schedule, after: float, count: int) -> list[int]:
    """Return the next due times of a schedule after an instant, at most `count`."""
    times: list[int] = []
    while len(times) < count and (due := schedule.next_after(times[-1] if times else after)) is not None:
        times.append(due)
    return times


def find_latest(schedule: Schedule, after: float, until: float) -> int | None:
    """Return the last due time of a schedule that is later than the instant `after` and not later than `until`. None if
    there is none."""
    for span in (*LOOK_BACK_S, until - after):
        latest = None
        start = max(after, until - span)
        while (due := schedule.next_after(start)) is not None and due <= until:
            latest = start = due
        if latest is not None or start <= after:
            return latest
    return None


def list_between(schedule: Schedule, after: float, until: float, most: int) -> list[int]:
    """Return the due times of a schedule that are later than the instant `after` and not later than `until`. If there
    are more than `most`, return only the last ones."""
    times: list[int] = []
    while (due := schedule.next_after(after)) is not None and due <= until:
        times.append(due)
        after = due
        if len(times) > 2 * most:
            del times[:-most]
    return times[-most:]
