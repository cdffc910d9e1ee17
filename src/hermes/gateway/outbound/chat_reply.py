"""The answer of a turn in a chat: the live view while the turn runs, and the final text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hermes.agent.answer import Answer
from hermes.agent.events import (
    ApprovalAsked,
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
from hermes.conversation.spending_limit import LimitReached
from hermes.gateway.outbound.streaming import LiveMessage

STOPPED = "_(stopped)_"


class ChatReply(NamedTuple):
    """The final answer of a turn, ready to be posted to the chat, and the id of its live preview."""

    answer: Answer
    preview: str | None
    """The id of the platform message that showed the live preview. None if there was no preview."""

    @property
    def text(self) -> str:
        """The text to post to the chat: the answer, notes about the turn, and the reason if the turn failed. Empty
        if there is nothing to post."""
        text = self.answer.text
        if text and self.answer.outcome == "stopped":
            text = f"{text}\n\n{STOPPED}"
        notes = [format_note(note) for note in self.answer.notes]
        failure = self.answer.failure
        if failure is not None and isinstance(failure.error, LimitReached):
            notes.append(f"◌ {failure.why}")
        elif failure is not None:
            notes.append(f"⚠ {failure.why}\n\nYour message is stored. Use `/retry` to try again.")
        text = "\n\n".join(part for part in (text, *dict.fromkeys(notes)) if part)
        return STOPPED if not text and self.preview is not None else text


class ReplyView:
    """The live view of a running turn in its chat: text, tools, subagents and approvals."""

    def __init__(self, live: LiveMessage | None, ask: Callable[[ApprovalAsked], None]) -> None:
        """Create the view of a turn. `live` is the preview message of the answer, or None if the platform is not
        connected. `ask` sends an approval request to the owner and does not wait for the answer."""
        self.preview: str | None = None
        """The id of the platform message that shows the answer. Set when the turn has ended."""
        self._live, self._ask = live, ask
        self._subagents: dict[int | None, SubagentProgress] = {}

    async def __aenter__(self) -> ReplyView:
        if self._live is not None:
            await self._live.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._live is not None:
            self.preview = await self._live.finish()

    async def show(self, event: Event) -> None:
        if isinstance(event, SubagentProgress):
            self._subagents[event.number] = event
        if self._live is not None:
            await _show(self._live, event, self._subagents.values())
        if isinstance(event, ApprovalAsked):
            self._ask(event)


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
    consequence = (
        "is kept in a spool file until it can be stored" if note.spooled else "is lost when the gateway ends"
    )
    return f"⚠ The message was not stored ({note.why}). It {consequence}."
