"""Reduces the events of a turn to its answer. Every surface uses this; what it shows on the way is its own matter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal

from hermes.agent.events import (
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
    TextDelta,
    ThoughtDelta,
    ToolStarted,
)
from hermes.agent.models.model import Used

BETWEEN = "\n\n"
"""Between the texts of a turn that has several: before a tool call, and after it."""
INTERRUPTED = "interrupted"
NO_TEXT = "there is no answer"
NO_END = "the turn ended without an answer"

Outcome = Literal["answered", "stopped", "failed"]


class Answer:
    """The answer of a turn, as far as its events came."""

    def __init__(self) -> None:
        self.text = ""
        """What the turn ended with, without reasoning: the last text. Empty until it ends, and if it failed."""
        self.partial = ""
        """The text of the message that is being streamed."""
        self.reasoning = ""
        self.outcome: Outcome = "failed"
        self.reason: str | None = None
        """Why the model ended its answer."""
        self.failure: Failed | None = None
        self.notes: list[Note | NotStored] = []
        """What a person should know besides the answer."""
        self.used: list[Used] = []
        self.prompt_id: int | None = None
        """The message that is answered; None if it could not be stored."""
        self.message_id: int | None = None
        """The message with the last text."""
        self.completed: list[tuple[int, str]] = []
        """Answers that were complete when the person said something more into the turn: id and text of each."""
        self._texts: list[str] = []
        self._reasoning_before = ""
        self._complete: tuple[int, str] | None = None

    @property
    def whole_text(self) -> str:
        """All texts of the turn so far, without reasoning."""
        return BETWEEN.join(text for text in (*self._texts, self.partial) if text)

    @property
    def separator(self) -> str:
        """What stands before the next piece of text in `whole_text`."""
        return BETWEEN if self._texts and not self.partial else ""

    @property
    def problem(self) -> str | None:
        """Why there is no answer, or only a part of one."""
        if self.outcome == "answered":
            return None if self.text.strip() else NO_TEXT
        if self.outcome == "stopped":
            return INTERRUPTED
        return NO_END if self.failure is None else self.failure.why

    @property
    def tokens(self) -> tuple[int, int, int, int] | None:
        """Sent, of those from a cache, answered, of those in reasoning; None if the provider reported none."""
        if all(usage.prompt_tokens is None and usage.output_tokens is None for usage in self.used):
            return None
        return (
            sum(usage.prompt_tokens or 0 for usage in self.used),
            sum(usage.cache_read_tokens or 0 for usage in self.used),
            sum(usage.output_tokens or 0 for usage in self.used),
            sum(usage.reasoning_tokens or 0 for usage in self.used),
        )

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self.partial += text
            case ThoughtDelta(text):
                self.reasoning += text
            case Recast(text):
                self.partial, self.reasoning = "", self.reasoning + text
            case Discarded():
                self.partial, self.reasoning = "", self._reasoning_before
            case Stored(message_id, "assistant"):
                self.message_id, self._complete = message_id, (message_id, self.partial)
                self._end_message()
            case Stored(message_id, "user"):
                self.prompt_id = message_id
                if self._complete is not None:
                    self.completed.append(self._complete)
                self._complete = None
            case ToolStarted():
                self._complete = None
            case NotStored(role):
                self.notes.append(event)
                if role == "assistant":
                    self._complete = None
                    self._end_message()
            case _:
                self._add_outcome(event)

    def _add_outcome(self, event: Event) -> None:
        match event:
            case Note():
                self.notes.append(event)
            case Counted(_, used):
                self.used.append(used)
            case Done(text, reason):
                self.text, self.reason, self.outcome = text, reason, "answered"
            case Interrupted(text):
                self.text, self.outcome = text, "stopped"
            case Failed():
                self.failure = event
            case _:
                pass

    def _end_message(self) -> None:
        if self.partial:
            self._texts.append(self.partial)
        self.partial, self._reasoning_before = "", self.reasoning


async def collect_answer(
    events: AsyncGenerator[Event, None],
    show: Callable[[Event], Awaitable[None]],
    answer: Answer | None = None,
) -> Answer:
    """Follow a turn to its end. `show` gets each event before it is added to the answer."""
    answer = answer or Answer()
    async with aclosing(events):
        async for event in events:
            await show(event)
            answer.add(event)
    return answer
