"""Builds the answer of a turn from its events. Every surface uses this module for the answer, but displays
the events in its own way."""

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
from hermes.errors import LeaseLost

BETWEEN = "\n\n"
"""The separator between two texts of the same turn, for example the text before a tool call and the text
after it."""
INTERRUPTED = "interrupted"
NO_TEXT = "there is no answer"
NO_END = "the turn ended without an answer"
AGAIN = "\n\n[the answer broke off here; it starts again]\n\n"
RECAST = "\n\n[this was the model's reasoning; the answer follows]\n\n"

Outcome = Literal["answered", "stopped", "failed"]


class Answer:
    """The answer of a turn, built from the events received so far."""

    def __init__(self) -> None:
        self.text = ""
        """The last text of the turn, without reasoning. It is empty until the turn ends, and it stays empty
        if the turn fails."""
        self.partial = ""
        """The text of the message that is being streamed."""
        self.reasoning = ""
        self.outcome: Outcome = "failed"
        self.reason: str | None = None
        """The finish reason that the model reported."""
        self.failure: Failed | None = None
        self.notes: list[Note | NotStored] = []
        """Notices for the person, besides the answer."""
        self.used: list[Used] = []
        self.prompt_id: int | None = None
        """The id of the stored message that this turn answers; None if the message could not be stored."""
        self.message_id: int | None = None
        """The id of the last assistant message that was stored; None if there is none."""
        self.completed: list[tuple[int, str]] = []
        """The id and text of each answer that was complete before the person added another message to the
        same turn."""
        self._texts: list[str] = []
        self._reasoning_before = ""
        self._complete: tuple[int, str] | None = None

    @property
    def whole_text(self) -> str:
        """All texts of the turn so far, without reasoning."""
        return BETWEEN.join(text for text in (*self._texts, self.partial) if text)

    @property
    def separator(self) -> str:
        """The text to insert before the next streamed piece of text, so that all pieces together give `whole_text`.
        It is `BETWEEN` if the piece starts a further text of the turn; otherwise it is empty."""
        return BETWEEN if self._texts and not self.partial else ""

    @property
    def problem(self) -> str | None:
        """Why the answer is missing or incomplete; None if there is a complete answer."""
        if self.outcome == "answered":
            return None if self.text.strip() else NO_TEXT
        if self.outcome == "stopped":
            return INTERRUPTED
        return NO_END if self.failure is None else self.failure.why

    @property
    def lost_lease(self) -> LeaseLost | None:
        """The error raised because another process took over the lease; None if the turn did not fail for
        this reason."""
        error = None if self.failure is None else self.failure.error
        return error if isinstance(error, LeaseLost) else None

    @property
    def tokens(self) -> tuple[int, int, int, int] | None:
        """Prompt, cached prompt, output and reasoning tokens; None if the provider reported no counts.

        The cached tokens are part of the prompt tokens, and the reasoning tokens are part of the output
        tokens.
        """
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
    show: Callable[[Event], Awaitable[None]] | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Read the events of a turn to the end and return its answer. `show` receives each event before the event
    is added to the answer."""
    answer = answer or Answer()
    async with aclosing(events):
        async for event in events:
            if show is not None:
                await show(event)
            answer.add(event)
    return answer


class StreamText:
    """Converts the events of a turn into text for a client that reads the answer as a stream. Text that was sent to
    the client cannot be withdrawn."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._resumes_with = ""
        """A line to send before the next text, or an empty string. The line says that the text sent so far is
        not part of the answer."""

    def render(self, event: Event) -> str:
        """Return the text to send to the client for an event; empty if there is nothing to send. Call this method
        before the event is added to the `Answer`."""
        match event:
            case TextDelta(text) if text:
                prefix, self._resumes_with = self._resumes_with or self._answer.separator, ""
                return f"{prefix}{text}"
            case Recast() | Discarded() if self._answer.partial or self._resumes_with:
                self._resumes_with = RECAST if isinstance(event, Recast) else AGAIN
            case _:
                pass
        return ""
