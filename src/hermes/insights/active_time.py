"""Active time: the time during which messages were exchanged.

The time between two consecutive messages of a session is active if the messages are at most `MAX_GAP_S`
seconds apart. A longer gap does not count at all, so a session that stays open overnight adds nothing. Time in
which several sessions were active counts once. A single message has no duration.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from math import isfinite
from operator import itemgetter
from typing import Any

MAX_GAP_S = 600.0

Stretch = tuple[float, float]
"""A stretch of activity: the times of its first and last message. No gap between its messages is longer than
`MAX_GAP_S`."""


def find_stretches(times: Iterable[float]) -> list[Stretch]:
    """Return the stretches of activity of one session, in order. A stretch is a pair of times: the first and
    the last of messages that follow each other without a long gap. `times` are the times of the messages. A
    stretch with a single message is left out."""
    stretches: list[Stretch] = []
    first = last = None
    for at in sorted(times):
        if first is None or last is None or at - last > MAX_GAP_S:
            first = at
        elif stretches and stretches[-1][0] == first:
            stretches[-1] = (first, at)
        elif at > first:
            stretches.append((first, at))
        last = at
    return stretches


def measure(stretches: Iterable[Stretch]) -> float:
    """Return the number of seconds that lie in at least one of the stretches of activity."""
    seconds, covered = 0.0, float("-inf")
    for first, last in sorted(stretches):
        seconds += max(0.0, last - max(first, covered))
        covered = max(covered, last)
    return seconds


def summarize(messages: Iterable[tuple[str, object]]) -> dict[str, Any]:
    """Return the active time of all sessions together and the average per session. `messages` are pairs
    (session, time of a message), grouped by session."""
    every: list[Stretch] = []
    each: list[float] = []
    for _session, group in groupby(messages, key=itemgetter(0)):
        # Another program may have stored any value as a time.
        times = (at for _, at in group if isinstance(at, int | float) and isfinite(at))
        if stretches := find_stretches(times):
            every += stretches
            each.append(measure(stretches))
    return {
        "seconds": measure(every),
        "avg_session_seconds": sum(each) / len(each) if each else 0.0,
        "sessions": len(each),
        "max_gap_seconds": MAX_GAP_S,
    }
