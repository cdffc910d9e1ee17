"""Counts of session starts by local day and hour, and streaks of active days."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Any

from hermes.insights.costs import Bill
from hermes.store.reports.activity import SessionActivity

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS = 24


class Calendar:
    def __init__(self) -> None:
        self._weekdays = [0] * len(DAYS)
        self._hours = [0] * HOURS
        self._dates: dict[date, _Day] = {}

    def add(self, session: SessionActivity) -> None:
        try:
            local = time.localtime(session.started_at)
            when = date(*local[:3])
        except (OverflowError, ValueError, OSError):  # the time is out of the calendar's range
            return
        self._weekdays[local.tm_wday] += 1
        self._hours[local.tm_hour] += 1
        self._dates.setdefault(when, _Day()).add(session)

    def activity(self) -> dict[str, Any]:
        by_day = [{"day": day, "count": count} for day, count in zip(DAYS, self._weekdays, strict=True)]
        by_hour = [{"hour": hour, "count": count} for hour, count in enumerate(self._hours)]
        return {
            "by_day": by_day,
            "by_hour": by_hour,
            "busiest_day": _find_busiest(by_day),
            "busiest_hour": _find_busiest(by_hour),
            "active_days": len(self._dates),
            "max_streak": find_longest_streak(self._dates),
        }

    def daily(self) -> list[dict[str, Any]]:
        """Return a mapping for each day on which sessions started, in order: the date and the totals of that
        day."""
        return [{"date": day.isoformat(), **self._dates[day].as_dict()} for day in sorted(self._dates)]


class _Day:
    def __init__(self) -> None:
        self._sessions = self._messages = self._tokens = 0
        self._bill = Bill()

    def add(self, session: SessionActivity) -> None:
        self._sessions += 1
        self._messages += session.messages
        self._tokens += sum(session.used[1:5])
        for line in session.spent:
            self._bill.add(line)

    def as_dict(self) -> dict[str, Any]:
        bill = self._bill
        return {
            "sessions": self._sessions,
            "messages": self._messages,
            "total_tokens": self._tokens,
            "cost": bill.cost,
            "cost_status": bill.status,
        }


def find_longest_streak(days: Iterable[date]) -> int:
    """Return the length of the longest sequence of consecutive calendar days among the given days."""
    best = run = 0
    for before, day in pairwise([0, *sorted({day.toordinal() for day in days})]):
        run = run + 1 if day == before + 1 else 1
        best = max(best, run)
    return best


def _find_busiest(counted: list[dict[str, Any]]) -> dict[str, Any] | None:
    most = max(counted, key=lambda entry: entry["count"])
    return dict(most) if most["count"] else None
