"""Decides when a conversation is reset automatically, and formats the notice. The functions read neither the
clock nor the store.
The deadline depends on the time at which a person last wrote, not on the time of the check. Therefore a check
after days of downtime gives the same result as a check in time.

Each day has one *boundary*: the first moment when local clocks show `at_hour` or later. If the clocks skip that
hour, the boundary is the moment after the gap. If the hour occurs twice, the first occurrence counts. A
calendar day that the local time zone skips has no boundary.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection
from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from hermes.clock import HOUR, MINUTE
from hermes.config.time_zones import load_zone

if TYPE_CHECKING:
    from hermes.config.settings_schema import ResetPolicy


class DueReset(NamedTuple):
    reason: str
    """`idle` or `daily`. If both apply, `idle`."""
    since: float
    """The time of the idle deadline or of the daily boundary. If both apply, the earlier one."""


class _Cause(NamedTuple):
    reason: str
    since: float
    first: float
    """The first moment at which the reset is due: the daily boundary itself, or the moment after the idle
    deadline."""


def find_due(
    policy: ResetPolicy, last: float | None, now: float, running: Collection[float] = ()
) -> DueReset | None:
    """Return the reset that is due at the time `now` under `policy`, or None.

    `last` is the time at which a person last wrote in the conversation, or None if nobody ever wrote. `running`
    holds the start times of the conversation's running background processes.
    """
    causes = [cause for cause in _list_causes(policy, last) if cause.first <= now]
    if not causes or now <= find_hold_end(policy, running):
        return None
    return DueReset(causes[0].reason, min(cause.since for cause in causes))


def find_next_due(policy: ResetPolicy, last: float | None, running: Collection[float] = ()) -> float | None:
    """Return the first moment at which a reset is due if nobody writes. It can be in the past. Return None if no
    reset will be due. The parameters are those of `find_due`."""
    first = min((cause.first for cause in _list_causes(policy, last)), default=math.inf)
    first = max(first, math.nextafter(find_hold_end(policy, running), math.inf))
    return first if first < math.inf else None


def find_boundary_after(moment: float, hour: int, place: tzinfo | None) -> float | None:
    """Return the first daily boundary after `moment`, or None if the result is outside the range of
    `datetime`."""
    at = time(hour)
    try:
        today = datetime.fromtimestamp(math.floor(moment), place).date()
        # Four days suffice: today's boundary may have passed, tomorrow's too if clocks go back over midnight,
        # and one day may be skipped.
        for day in (today + timedelta(days) for days in range(4)):
            boundary = _find_boundary(day, at, place)
            if boundary is not None and boundary > moment:
                return boundary
    except (OverflowError, ValueError, OSError):  # another program may have stored an invalid time
        pass
    return None


def format_notice(
    policy: ResetPolicy, reason: str, old: str, setting: str = "session_reset", scope: str | None = None
) -> str:
    """Return the text that tells a chat that its conversation was reset. `reason` is the cause of the reset. `old`
    is the title or id of the previous conversation. `setting` is the name of the setting that holds the reset
    policy. `scope` is the name of the person if other people have their own sessions in the same chat, otherwise
    None."""
    which = f"Session of {scope}" if scope else "Session"
    return "\n".join(
        (
            f"◐ {which} automatically reset ({_describe_reason(policy, reason)}).",
            f"Nothing is lost: `/undo` before your next message undoes this, `/resume {old}` does at any time.",
            f"`{setting}` in config.yaml sets when this happens; `mode: none` turns it off.",
        )
    )


def format_minutes(minutes: int) -> str:
    """Format minutes as `24h`, `1h 30m` or `45m`."""
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest}m"
    return f"{hours}h {rest}m" if rest else f"{hours}h"


def _list_causes(policy: ResetPolicy, last: float | None) -> list[_Cause]:
    causes: list[_Cause] = []
    if last is None:
        return causes
    if policy.mode in ("idle", "both"):
        deadline = last + policy.idle_minutes * MINUTE
        causes.append(_Cause("idle", deadline, math.nextafter(deadline, math.inf)))
    if policy.mode in ("daily", "both"):
        boundary = find_boundary_after(last, policy.at_hour, load_zone(policy.timezone))
        if boundary is not None:
            causes.append(_Cause("daily", boundary, boundary))
    return causes


def find_hold_end(policy: ResetPolicy, running: Collection[float]) -> float:
    """Return the time until which background processes prevent a reset. `running` holds the start times of the
    processes. A process prevents a reset until its age exceeds the setting `bg_process_max_age_hours`. If the
    setting is 0, it prevents a reset as long as it runs."""
    if not running:
        return -math.inf
    oldest_allowed = policy.bg_process_max_age_hours
    return max(running) + oldest_allowed * HOUR if oldest_allowed > 0 else math.inf


def _find_boundary(day: date, at: time, place: tzinfo | None) -> float | None:
    """Return the boundary of the local `day`: the first moment when clocks in the time zone `place` show the time
    `at` of that day, or a later time. Return None if the time zone skips the day."""
    moment = _first_moment_showing(datetime.combine(day, at), place)
    if _wall_time(moment, place).date() != day:  # clocks skip the rest of the day, or the whole day
        begin = _first_moment_showing(datetime.combine(day, time.min), place)
        if _wall_time(begin, place).date() != day:
            return None
    return moment


def _first_moment_showing(wall: datetime, place: tzinfo | None) -> float:
    """Return the first moment when clocks in the time zone `place` show the local time `wall`. If the clocks skip
    that time, return the first moment when they show a later time."""
    moment = wall.replace(tzinfo=place).timestamp()  # the first, if there are two
    if _wall_time(moment, place) == wall:
        return moment
    # For a skipped time, `datetime` returns a moment on each side of the gap, depending on `fold`.
    before = int(wall.replace(tzinfo=place, fold=1).timestamp())
    return float(
        before
        + bisect_left(range(before, int(moment)), True, key=lambda second: _wall_time(second, place) >= wall)
    )


def _wall_time(moment: float, place: tzinfo | None) -> datetime:
    """Return what clocks in the time zone `place` show at `moment`, as a `datetime` without a zone."""
    return datetime.fromtimestamp(moment, place).replace(tzinfo=None, fold=0)


def _describe_reason(policy: ResetPolicy, reason: str) -> str:
    if reason == "idle":
        return f"inactive for {format_minutes(policy.idle_minutes)}"
    return f"daily schedule at {policy.at_hour}:00"
