"""Everything that is known session by session, added up as they come: totals, models, platforms, conversations."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import add
from typing import Any

from hermes import clock
from hermes.insights.calendar import Calendar
from hermes.insights.costs import Bill
from hermes.insights.number_format import format_duration, format_plural
from hermes.store.reports.activity import Activity, SessionActivity
from hermes.store.reports.usage import UsageLine

COSTLIEST = 5
UNNAMED_MODEL = "unknown"
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Line:
    """What a model or a platform was used for."""

    def __init__(self) -> None:
        self.sessions = self.messages = self.tool_calls = 0
        self.tokens = [0] * len(TOKENS)
        self.bill = Bill()

    def use(self, used: UsageLine) -> None:
        self.tokens = list(map(add, self.tokens, used[1:5]))

    def as_dict(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            **dict(zip(TOKENS, self.tokens, strict=True)),
            "total_tokens": sum(self.tokens),
            "tool_calls": self.tool_calls,
            "cost": self.bill.cost,
            "cost_status": self.bill.status,
        }


class Tally:
    def __init__(self) -> None:
        self.calendar = Calendar()
        self._all = Line()
        self._models: dict[str, Line] = {}
        self._platforms: dict[str, Line] = {}
        self._conversations: dict[str, Line] = {}
        self._first = self._last = 0.0
        self._timed = 0
        self._seconds = 0.0
        self._with_unknown = self._with_included = 0
        self._notable = make_notables()

    @property
    def total(self) -> int:
        return self._all.sessions

    def add(self, session: SessionActivity) -> None:
        self._first = self._first if self.total else session.started_at
        self._last = session.started_at
        if (took := compute_duration(session)) > 0:
            self._timed += 1
            self._seconds += took
        bill = Bill(session.spent)
        self._with_unknown += bill.has_unknown
        self._with_included += bill.has_included
        for line in (
            self._all,
            _get_line(self._platforms, session.source),
            _get_line(self._conversations, session.conversation),
        ):
            line.sessions += 1
            line.messages += session.messages
            line.tool_calls += session.tool_calls
            line.use(session.used)
            for spent in session.spent:
                line.bill.add(spent)
        self._add_models(session)
        self.calendar.add(session)
        for notable in self._notable:
            notable.consider(session)

    def _add_models(self, session: SessionActivity) -> None:
        """Tokens and costs go to the model that was called; calls of tools to the one the session was held with."""
        own = _get_model_name(session.model)
        _get_line(self._models, own).tool_calls += session.tool_calls
        for model in {own, *(_get_model_name(spent.model) for spent in session.spent)}:
            _get_line(self._models, model).sessions += 1
        for spent in session.spent:
            line = _get_line(self._models, _get_model_name(spent.model))
            line.use(spent.used)
            line.bill.add(spent)

    def overview(self, roles: dict[str, int]) -> dict[str, Any]:
        everything = self._all
        tokens = sum(everything.tokens)
        priced = {name: line.bill.is_known for name, line in sorted(self._models.items())}
        return {
            "total_sessions": self.total,
            "total_messages": everything.messages,
            "total_tool_calls": everything.tool_calls,
            **{f"total_{name}": count for name, count in zip(TOKENS, everything.tokens, strict=True)},
            "total_tokens": tokens,
            "estimated_cost": everything.bill.estimated,
            "actual_cost": everything.bill.actual,
            "total_hours": self._seconds / clock.HOUR,
            "avg_session_duration": self._seconds / self._timed if self._timed else 0.0,
            "avg_messages_per_session": everything.messages / self.total,
            "avg_tokens_per_session": tokens / self.total,
            "user_messages": roles.get("user", 0),
            "assistant_messages": roles.get("assistant", 0),
            "tool_messages": roles.get("tool", 0),
            "date_range_start": self._first,
            "date_range_end": self._last,
            "models_with_pricing": [name for name, known in priced.items() if known],
            "models_without_pricing": [name for name, known in priced.items() if not known],
            "unknown_cost_sessions": self._with_unknown,
            "included_cost_sessions": self._with_included,
        }

    def models(self) -> list[dict[str, Any]]:
        lines = [
            {"model": name, **line.as_dict(), "has_pricing": line.bill.is_known}
            for name, line in self._models.items()
        ]
        return sorted(lines, key=lambda line: (-line["total_tokens"], -line["sessions"], line["model"]))

    def platforms(self) -> list[dict[str, Any]]:
        lines = [
            {"platform": name, "messages": line.messages, **line.as_dict()}
            for name, line in self._platforms.items()
        ]
        return sorted(lines, key=lambda line: (-line["sessions"], line["platform"]))

    def costs(self) -> dict[str, Any]:
        bill = self._all.bill
        return {
            "cost": bill.cost,
            "cost_status": bill.status,
            "estimated": bill.estimated,
            "actual": bill.actual,
            "auxiliary": bill.auxiliary,
            "unknown_sessions": self._with_unknown,
            "included_sessions": self._with_included,
        }

    def conversations(self, activity: Activity) -> dict[str, Any]:
        """The costliest, each with its segments and subagents; `cost_in_all` counts those before the window, too."""
        costs = {name: line.bill.cost or 0.0 for name, line in self._conversations.items()}
        costliest = sorted((name for name in costs if costs[name]), key=lambda name: (-costs[name], name))
        return {
            "total": len(self._conversations),
            "costliest": [
                self._add_family(name, self._conversations[name], activity) for name in costliest[:COSTLIEST]
            ],
        }

    @staticmethod
    def _add_family(name: str, line: Line, activity: Activity) -> dict[str, Any]:
        whole_one = activity.read_whole(name)
        in_all = Bill(whole_one.spent)
        return {
            "id": name,
            "name": whole_one.name,
            "source": whole_one.source,
            **line.as_dict(),
            "cost_in_all": in_all.cost,
            "cost_status_in_all": in_all.status,
        }

    def notable(self) -> list[dict[str, Any]]:
        return [notable.as_dict() for notable in self._notable if notable.session is not None]


def _get_model_name(model: object) -> str:
    return (str(model or "").rpartition("/")[2]) or UNNAMED_MODEL


def _get_line(lines: dict[str, Line], name: str) -> Line:
    line = lines.get(name)
    if line is None:
        line = lines[name] = Line()
    return line


SHOWN_ID = 16


def compute_duration(session: SessionActivity) -> float:
    """How long it took; 0 while it has not ended, or where its times make no sense."""
    if not isinstance(session.ended_at, int | float):
        return 0.0
    return max(0.0, session.ended_at - session.started_at)


def _count_tokens(session: SessionActivity) -> float:
    return session.used.input_tokens + session.used.output_tokens


NOTABLE: tuple[tuple[str, Callable[[SessionActivity], float], Callable[[float], str]], ...] = (
    ("Longest session", compute_duration, format_duration),
    ("Most messages", lambda session: session.messages, lambda much: format_plural(much, "message")),
    ("Most tokens", _count_tokens, lambda much: format_plural(much, "token")),
    ("Most tool calls", lambda session: session.tool_calls, lambda much: format_plural(much, "call")),
)


class Notable:
    """The session that has most of something."""

    def __init__(
        self, label: str, measure: Callable[[SessionActivity], float], format_measure: Callable[[float], str]
    ) -> None:
        self._label, self._measure, self._shown = label, measure, format_measure
        self._most = 0.0
        self.session: SessionActivity | None = None

    def consider(self, session: SessionActivity) -> None:
        much = self._measure(session)
        if much > self._most:
            self._most, self.session = much, session

    def as_dict(self) -> dict[str, Any]:
        assert self.session is not None
        return {
            "label": self._label,
            "session_id": self.session.id[:SHOWN_ID],
            "value": self._shown(self._most),
            "date": _format_short_date(self.session.started_at),
            "title": self.session.title,
        }


def make_notables() -> list[Notable]:
    return [Notable(*what) for what in NOTABLE]


def _format_short_date(at: float) -> str:
    try:
        return time.strftime("%b %d", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"
