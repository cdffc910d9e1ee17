"""The insights report: activity, models, tools, skills and costs of the last days.

This folder owns the figures (`InsightsEngine(db).generate(days=30)`) and their layout as text and as a page. In
addition to the keys that the reference documents, the report has `costs`, `conversations`, `daily` and
`active_time`. Costs are those stored with the sessions; an unknown cost is None. The folder imports the store,
but no surface.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hermes import clock, errors
from hermes.insights import active_time
from hermes.insights.tally import NO_SKILLS, Tally, ToolUse
from hermes.store.arguments import check_integer
from hermes.store.reports.activity import Activity

__all__ = ["InsightsEngine"]


class ActivitySource(Protocol):
    """A handle from which a report can be made. `activity` is the only method that a report needs. Both
    `SessionDB` and the scoped handle of a person have it."""

    def activity(
        self, since: float, sources: Sequence[str] | None = None
    ) -> AbstractContextManager[Activity]: ...


class InsightsEngine:
    def __init__(self, db: ActivitySource) -> None:
        self._db = db

    def generate(self, days: int = 30, source: str | Sequence[str] | None = None) -> dict[str, Any]:
        """Return the report on sessions that started in the last `days` days. `source` is one source or
        several; None means all."""
        if check_integer("days", days) < 1:
            raise errors.make_error(errors.InvalidArgument, f"days must be 1 or more, not {days}")
        sources = [source] if isinstance(source, str) else source
        now = clock.now()
        report: dict[str, Any] = {
            "days": days,
            "source_filter": source if source is None or isinstance(source, str) else list(source),
        }
        with self._db.activity(now - days * clock.DAY, sources) as activity:
            tally = Tally()
            for session in activity.list_sessions():
                tally.add(session)
            if not tally.total:
                return {**report, **_make_empty()}
            tools = ToolUse()
            for at, calls in activity.list_calls():
                tools.add(at, calls)
            talk = activity.count_messages()
            return {
                **report,
                "generated_at": now,
                "empty": False,
                "overview": tally.overview(talk.roles),
                "models": tally.models(),
                "platforms": tally.platforms(),
                "tools": tools.tools(talk.tools),
                "skills": tools.skills(),
                "activity": tally.calendar.activity(),
                "top_sessions": tally.notable(),
                "costs": tally.costs(),
                "conversations": tally.conversations(activity),
                "daily": tally.calendar.daily(),
                "active_time": active_time.summarize(activity.list_message_times()),
            }


def _make_empty() -> dict[str, Any]:
    return {
        "empty": True,
        "overview": {},
        "models": [],
        "platforms": [],
        "tools": [],
        "skills": {"summary": dict(NO_SKILLS), "top_skills": []},
        "activity": {},
        "top_sessions": [],
    }
