"""Follows a turn to its end: shows the answer while it is made, and makes the text that is posted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from hermes import errors
from hermes.agent.events import (
    ApprovalAsked,
    Counted,
    Discarded,
    Event,
    Note,
    NotStored,
    Recast,
    SubagentProgress,
    TextDelta,
    ToolStarted,
)
from hermes.agent.subagents import summarize_states
from hermes.conversation.answer import Answer
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.streaming import LiveMessage

STOPPED = "_(stopped)_"


class ChatReply(NamedTuple):
    """The answer of a turn as it is posted."""

    answer: Answer
    preview: str | None
    """The message on the platform that showed the answer as it came."""

    @property
    def text(self) -> str:
        """What the person is shown; empty if there is nothing to show."""
        text = self.answer.text
        if text and self.answer.outcome == "stopped":
            text = f"{text}\n\n{STOPPED}"
        notes = [format_note(note) for note in self.answer.notes]
        if self.answer.failure is not None:
            notes.append(f"⚠ {self.answer.failure.why}\n\nWhat you said is kept; `/retry` tries again.")
        text = "\n\n".join(part for part in (text, *dict.fromkeys(notes)) if part)
        return STOPPED if not text and self.preview is not None else text


async def collect_reply(
    events: AsyncGenerator[Event, None],
    live: LiveMessage | None,
    metrics: GatewayMetrics,
    ask: Callable[[ApprovalAsked], None],
) -> ChatReply:
    """Follow a turn to its end, and show it on the way. `ask` asks the owner for an approval, and does not wait.

    Raises `LeaseLost` if another program took the conversation over.
    """

    answer, preview = Answer(), None
    subagents: dict[int | None, SubagentProgress] = {}
    if live is not None:
        await live.begin()
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, SubagentProgress):
                    subagents[event.number] = event
                if live is not None:
                    await _show(live, event, subagents.values())
                if isinstance(event, ApprovalAsked):
                    ask(event)
                if isinstance(event, Counted):
                    metrics.count_usage(event.used)
                answer.add(event)
    finally:
        preview = None if live is None else await live.finish()
    if answer.failure is not None and isinstance(answer.failure.error, errors.LeaseLost):
        raise answer.failure.error
    return ChatReply(answer, preview)


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


def format_note(note: Note | NotStored) -> str:
    if isinstance(note, Note):
        return f"ⓘ {note.text}"
    consequence = "kept beside the store until it can be" if note.spooled else "lost when the gateway ends"
    return f"⚠ Not stored ({note.why}); it is {consequence}."
