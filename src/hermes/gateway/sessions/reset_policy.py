"""When a conversation is reset automatically, and the notice. Pure: reads no clock and no store.

The result depends only on when a person last spoke. Whoever asks late, after days of downtime, gets the same answer as
whoever asked in time.

A day has one boundary: the first moment when local clocks show `at_hour` or later. If that hour is skipped, this is the
moment after the gap; if it occurs twice, the first. A day that was left out has none.
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
    """idle or daily; idle if it is both."""
    since: float
    """The deadline that passed, or the boundary; the earlier if it is both."""


class _Cause(NamedTuple):
    reason: str
    since: float
    first: float
    """The first moment at which it counts: at a boundary, but only after a deadline."""


def find_due(
    policy: ResetPolicy, last: float | None, now: float, running: Collection[float] = ()
) -> DueReset | None:
    """Whether a reset is due.

    `last` is when a person last said something, None if nobody ever did; `running` is when each process was started
    that runs in the background.
    """
    causes = [cause for cause in _list_causes(policy, last) if cause.first <= now]
    if not causes or now <= _find_hold_end(policy, running):
        return None
    return DueReset(causes[0].reason, min(cause.since for cause in causes))


def find_next_due(policy: ResetPolicy, last: float | None, running: Collection[float] = ()) -> float | None:
    """The first moment at which one is due, be it to come or past; None if never, as things are now."""
    first = min((cause.first for cause in _list_causes(policy, last)), default=math.inf)
    first = max(first, math.nextafter(_find_hold_end(policy, running), math.inf))
    return first if first < math.inf else None


def find_boundary_after(moment: float, hour: int, place: tzinfo | None) -> float | None:
    """The next daily boundary; None if the moment is none that a calendar has."""
    at = time(hour)
    try:
        today = datetime.fromtimestamp(math.floor(moment), place).date()
        # Today's may have passed; so may tomorrow's, where clocks go back over midnight; a day may be left out.
        for day in (today + timedelta(days) for days in range(4)):
            boundary = _find_boundary(day, at, place)
            if boundary is not None and boundary > moment:
                return boundary
    except (OverflowError, ValueError, OSError):  # another program may have written anything
        pass
    return None


def format_notice(
    policy: ResetPolicy, reason: str, old: str, setting: str = "session_reset", scope: str | None = None
) -> str:
    """What a chat is told after a reset. `old` is the title or id of the conversation that was left.

    `whose` it is has to be said where others have theirs in the same chat.
    """
    which = f"Session of {scope}" if scope else "Session"
    return "\n".join(
        (
            f"◐ {which} automatically reset ({_describe_reason(policy, reason)}).",
            f"Nothing is lost: `/undo` before your next message takes it back, `/resume {old}` does at any time.",
            f"`{setting}` in config.yaml says when this happens; with `mode: none` it never does.",
        )
    )


def format_minutes(minutes: int) -> str:
    """`24h`, `1h 30m`, `45m`."""
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


def _find_hold_end(policy: ResetPolicy, running: Collection[float]) -> float:
    """Processes in the background keep a conversation as it is, until the youngest is older than is allowed."""
    if not running:
        return -math.inf
    oldest_allowed = policy.bg_process_max_age_hours
    return max(running) + oldest_allowed * HOUR if oldest_allowed > 0 else math.inf


def _find_boundary(day: date, at: time, place: tzinfo | None) -> float | None:
    """The boundary of a local day; None if there was no such day."""
    moment = _first_moment_showing(datetime.combine(day, at), place)
    if _wall_time(moment, place).date() != day:  # the hour is skipped until midnight, or the whole day
        begin = _first_moment_showing(datetime.combine(day, time.min), place)
        if _wall_time(begin, place).date() != day:
            return None
    return moment


def _first_moment_showing(wall: datetime, place: tzinfo | None) -> float:
    """The first moment when clocks there show this time, or a later one if it is skipped."""
    moment = wall.replace(tzinfo=place).timestamp()  # the first, if there are two
    if _wall_time(moment, place) == wall:
        return moment
    # Of a time that is skipped, `datetime` makes a moment on each side of the gap.
    before = int(wall.replace(tzinfo=place, fold=1).timestamp())
    return float(
        before
        + bisect_left(range(before, int(moment)), True, key=lambda second: _wall_time(second, place) >= wall)
    )


def _wall_time(moment: float, place: tzinfo | None) -> datetime:
    """What clocks show there; a naive time, as people read it."""
    return datetime.fromtimestamp(moment, place).replace(tzinfo=None, fold=0)


def _describe_reason(policy: ResetPolicy, reason: str) -> str:
    if reason == "idle":
        return f"inactive for {format_minutes(policy.idle_minutes)}"
    return f"daily schedule at {policy.at_hour}:00"
