"""The sessions that had most of something: time, messages, tokens, calls of tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hermes.insights.number_format import duration, plural
from hermes.store.reports.activity import SessionActivity

SHOWN_ID = 16


def seconds(session: SessionActivity) -> float:
    """How long it took; 0 while it has not ended, or where its times make no sense."""
    if not isinstance(session.ended_at, int | float):
        return 0.0
    return max(0.0, session.ended_at - session.started_at)


def _tokens_said(session: SessionActivity) -> float:
    return session.used.input_tokens + session.used.output_tokens


NOTABLE: tuple[tuple[str, Callable[[SessionActivity], float], Callable[[float], str]], ...] = (
    ("Longest session", seconds, duration),
    ("Most messages", lambda session: session.messages, lambda much: plural(much, "message")),
    ("Most tokens", _tokens_said, lambda much: plural(much, "token")),
    ("Most tool calls", lambda session: session.tool_calls, lambda much: plural(much, "call")),
)


class Notable:
    """The session that has most of something."""

    def __init__(
        self, label: str, measure: Callable[[SessionActivity], float], shown: Callable[[float], str]
    ) -> None:
        self._label, self._measure, self._shown = label, measure, shown
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
            "date": _short_date(self.session.started_at),
            "title": self.session.title,
        }


def notables() -> list[Notable]:
    return [Notable(*what) for what in NOTABLE]


def _short_date(at: float) -> str:
    try:
        return time.strftime("%b %d", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"
