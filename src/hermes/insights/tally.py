"""Running totals over sessions and their calls: models, platforms, conversations, tools and skills."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from operator import add
from typing import Any

import msgspec

from hermes import clock
from hermes.insights.calendar import Calendar
from hermes.insights.costs import Bill
from hermes.insights.number_format import format_duration, format_plural
from hermes.store.content import from_json
from hermes.store.reports.activity import Activity, SessionActivity
from hermes.store.reports.usage import UsageLine

COSTLIEST = 5
UNNAMED_MODEL = "unknown"
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
VIEWED, MANAGED = "skill_view", "skill_manage"
SKILL_TOOLS = (VIEWED, MANAGED)
NO_SKILLS = {"distinct_skills": 0, "total_views": 0, "total_manages": 0, "total_actions": 0}


class Line:
    """One line of the report: the totals of a model, a platform or a conversation, or of all sessions."""

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
        """Add a session to the totals of the models. Tokens and costs are added to the model that was called,
        tool calls to the model of the session."""
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
        """Return the number of conversations and the list of those that cost most. The cost of a conversation
        includes its segments and its subagents. `cost_in_all` in the list also includes sessions from before
        the period of the report."""
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
    """Return the duration of a session in seconds. Return 0 if it has not ended or its times are invalid."""
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
    """Finds the session with the largest value of one measure, such as the duration, for the report."""

    def __init__(
        self, label: str, measure: Callable[[SessionActivity], float], format_measure: Callable[[float], str]
    ) -> None:
        self._label, self._measure, self._format_measure = label, measure, format_measure
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
            "value": self._format_measure(self._most),
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


# ---------------------------------------------------------------- tools and skills


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _Call(msgspec.Struct):
    function: _Function | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


_decode_calls = msgspec.json.Decoder(list[_Call]).decode


class ToolUse:
    """Counts of tool calls and skill uses.

    Only the names of stored calls are decoded and, for the two skill tools, also the arguments. Decoding
    100,000 calls adds a quarter to the time of fetching them. SQLite's JSON functions would add more.
    """

    def __init__(self) -> None:
        self._called: Counter[str] = Counter()
        self._skills: dict[str, _Skill] = {}

    def add(self, at: object, stored: object) -> None:
        """Count the tool calls of one message. `at` is the time of the message, and `stored` is the JSON text
        in which the store keeps its calls."""
        for name, arguments in _iterate_calls(stored):
            self._called[name] += 1
            if name in SKILL_TOOLS and (skill := _get_skill_name(arguments)):
                self._skills.setdefault(skill, _Skill()).add(name, at)

    def tools(self, answered: dict[str, int]) -> list[dict[str, Any]]:
        """Return the tools, most used first. A call and its result count as one use, even if one of the two
        is missing."""
        counts = {name: max(self._called[name], answered.get(name, 0)) for name in {*self._called, *answered}}
        total = sum(counts.values())
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [{"tool": name, "count": n, "percentage": 100.0 * n / total} for name, n in ordered]

    def skills(self) -> dict[str, Any]:
        views = sum(skill.views for skill in self._skills.values())
        manages = sum(skill.manages for skill in self._skills.values())
        total = views + manages
        ordered = sorted(self._skills.items(), key=lambda item: (-item[1].total, item[0]))
        summary = (len(self._skills), views, manages, total)
        return {
            "summary": dict(zip(NO_SKILLS, summary, strict=True)),
            "top_skills": [
                {
                    "skill": name,
                    "view_count": skill.views,
                    "manage_count": skill.manages,
                    "total_count": skill.total,
                    "percentage": 100.0 * skill.total / total,
                    "last_used_at": skill.last_used_at,
                }
                for name, skill in ordered
            ],
        }


class _Skill:
    def __init__(self) -> None:
        self.views = self.manages = 0
        self.last_used_at: float | None = None

    def add(self, tool: str, at: object) -> None:
        if tool == VIEWED:
            self.views += 1
        else:
            self.manages += 1
        if isinstance(at, int | float):  # another program may have stored any value
            self.last_used_at = at if self.last_used_at is None else max(self.last_used_at, at)

    @property
    def total(self) -> int:
        return self.views + self.manages


def _iterate_calls(stored: object) -> Iterable[tuple[str, object]]:
    """Yield the name and the arguments of each tool call of a message. `stored` is the JSON text in which the
    store keeps the calls. Programs write calls in two formats; both are accepted."""
    if not isinstance(stored, str):
        return
    try:
        calls = _decode_calls(stored)
    except (ValueError, RecursionError):  # not the format of the reference: check each part separately
        yield from _iterate_odd_calls(from_json(stored, None))
        return
    for call in calls:
        if call.function is not None and call.function.name:
            yield call.function.name, call.function.arguments
        elif call.name:
            yield call.name, call.arguments


def _iterate_odd_calls(value: object) -> Iterable[tuple[str, object]]:
    for call in value if isinstance(value, list) else [value]:
        if not isinstance(call, dict):
            continue
        inner = call.get("function")
        for holder in (inner, call):
            if isinstance(holder, dict) and isinstance(name := holder.get("name"), str) and name:
                yield name, holder.get("arguments")
                break


def _get_skill_name(arguments: object) -> str | None:
    """Return the argument `name` of a call of a skill tool, or None if there is none. `arguments` is a
    dictionary or its JSON text."""
    if isinstance(arguments, msgspec.Raw):
        arguments = from_json(bytes(arguments).decode(), None)
    if isinstance(arguments, str):
        arguments = from_json(arguments, None)
    name = arguments.get("name") if isinstance(arguments, dict) else None
    return name if isinstance(name, str) and name else None
