"""Follows a turn to its end: shows the answer while it is made, and collects what is to be posted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from hermes.agent.events import (
    ApprovalAsked,
    Counted,
    Discarded,
    Done,
    Event,
    Failed,
    Interrupted,
    Note,
    NotStored,
    Recast,
    Stored,
    SubagentProgress,
    TextDelta,
    ToolStarted,
)
from hermes.agent.subagents import summarize_states
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.streaming import LiveMessage

STOPPED = "_(stopped)_"


class TurnAnswer(NamedTuple):
    """The result of a turn."""

    text: str
    """What the person is shown; empty if there is nothing to show."""
    outcome: str
    """answered, stopped or failed."""
    message_id: int | None
    """The stored answer."""
    preview: str | None
    """The message on the platform that showed the answer as it came."""
    before: tuple[tuple[int, str], ...] = ()
    """Answers that were complete when something more was said into the turn; their ids, and what they say."""
    why: str | None = None
    """The error, for the operator."""


async def collect_answer(
    events: AsyncIterator[Event],
    live: LiveMessage | None,
    metrics: GatewayMetrics,
    ask: Callable[[ApprovalAsked], None],
) -> TurnAnswer:
    """Follow a turn to its end, and show it on the way. `ask` asks the owner for an approval, and does not wait."""
    hearing = _AnswerCollector()
    subagents: dict[int | None, SubagentProgress] = {}
    if live is not None:
        await live.begin()
    try:
        async for event in events:
            if isinstance(event, SubagentProgress):
                subagents[event.number] = event
            if live is not None:
                await _show(live, event, subagents.values())
            if isinstance(event, ApprovalAsked):
                ask(event)
            if isinstance(event, Counted):
                metrics.count_usage(event.used)
            hearing.add(event)
    finally:
        preview = None if live is None else await live.finish()
    return hearing.build(preview)


class _AnswerCollector:
    def __init__(self) -> None:
        self._text, self._outcome = "", "failed"
        self._why: str | None = None
        self._notes: list[str] = []
        self._message_id: int | None = None
        self._partial = ""
        self._complete: tuple[int, str] | None = None
        self._before: list[tuple[int, str]] = []

    def add(self, event: Event) -> None:
        if isinstance(event, Failed):
            self._why = event.why
        match event:
            case TextDelta(text):
                self._partial += text
            case Discarded() | Recast():
                self._partial = ""
            case Stored(stored, "assistant"):
                self._message_id, self._complete, self._partial = stored, (stored, self._partial), ""
            case ToolStarted():
                self._complete = None
            case Stored(_, "user") if self._complete is not None:
                self._before.append(self._complete)
                self._complete = None
            case Done(text):
                self._text, self._outcome = text, "answered"
            case Interrupted(text):
                self._text, self._outcome = f"{text}\n\n{STOPPED}" if text else "", "stopped"
            case _ if note := _format_note(event):
                self._notes.append(note)

    def build(self, preview: str | None) -> TurnAnswer:
        text = "\n\n".join(part for part in (self._text, *dict.fromkeys(self._notes)) if part)
        if not text and preview is not None:
            text = STOPPED
        return TurnAnswer(text, self._outcome, self._message_id, preview, tuple(self._before), self._why)


async def _show(live: LiveMessage, event: Event, subagents: Iterable[SubagentProgress]) -> None:
    match event:
        case TextDelta(text):
            await live.add(text)
        case Discarded() | Recast():
            await live.discard()
        case ToolStarted(_, name):
            await live.note(name)
        case SubagentProgress():
            await live.note(summarize_states(subagents))
        case ApprovalAsked():
            await live.pause()
        case _:
            pass


def _format_note(event: Event) -> str | None:
    """What a person should know besides the answer."""
    match event:
        case NotStored(_, why, spooled):
            consequence = "kept beside the store until it can be" if spooled else "lost when the gateway ends"
            return f"⚠ Not stored ({why}); it is {consequence}."
        case Note(text):
            return f"ⓘ {text}"
        case Failed(why):
            return f"⚠ {why}\n\nWhat you said is kept; `/retry` tries again."
        case _:
            return None
