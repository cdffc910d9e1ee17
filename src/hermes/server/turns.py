"""One turn for one request. It runs in its own task: a client that disconnects stops it, and the result is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from hermes import clock, secrets
from hermes.agent.events import (
    Counted,
    Discarded,
    Event,
    Note,
    Recast,
    TextDelta,
    ThoughtDelta,
)
from hermes.conversation.answer import Answer, collect_answer
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.server.api_errors import Refused, translate_error
from hermes.server.locks import ConversationLocks, LockedConversation

log = logging.getLogger(__name__)

AGAIN = "\n\n[the answer broke off here; it starts again]\n\n"
STOPPED = "the answer was stopped: this server is ending; what was said is kept"
RECAST = "\n\n[this was the model's reasoning; the answer follows]\n\n"


class Piece(NamedTuple):
    """Text on its way to a client."""

    text: str
    is_reasoning: bool = False


class StreamText:
    """The text of an answer for a client that reads along. What the client has cannot be taken back."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._resumes_with = ""
        """Says that the text so far is not the beginning of the answer."""

    def render(self, event: Event) -> str:
        """What the client is sent for an event, before the event is added to the answer."""
        match event:
            case TextDelta(text) if text:
                prefix, self._resumes_with = self._resumes_with or self._answer.separator, ""
                return f"{prefix}{text}"
            case Recast() | Discarded() if self._answer.partial or self._resumes_with:
                self._resumes_with = RECAST if isinstance(event, Recast) else AGAIN
            case _:
                pass
        return ""


class Turn:
    def __init__(self, locks: ConversationLocks, locked: LockedConversation, metrics: GatewayMetrics) -> None:
        self.locked, self.answer = locked, Answer()
        self.answer.prompt_id = locked.repeated_message_id
        if locked.note is not None:
            self.answer.notes.append(Note(locked.note))
        self.failure: Refused | None = None
        self._text = StreamText(self.answer)
        self._locks, self._metrics = locks, metrics
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._heard, self._some = asyncio.Event(), asyncio.Event()
        self._stopping = False
        self.over = asyncio.Event()
        """The conversation is let go; what goes on is behind it."""
        self.task = asyncio.create_task(self._work(), name=f"api turn in {locked.conversation_id}")

    def stop(self) -> None:
        """End it at the next moment; what happened so far is kept."""
        self._stopping = True
        self.locked.conversation.stop()

    async def pieces(self, every: float) -> AsyncIterator[Piece | None]:
        """The answer as it comes; None where for so many seconds nothing came."""
        while True:
            try:
                async with asyncio.timeout(every):
                    piece = await self._pieces.get()
            except TimeoutError:
                yield None
                continue
            if piece is None:
                return
            yield piece

    async def wait_until_begun(self, seconds: float) -> None:
        """Wait until there is something to tell, or it is over; once the message is stored, not longer than that."""
        await self._heard.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._some.wait()

    async def _work(self) -> None:
        began, conversation = clock.now(), self.locked.conversation
        try:
            await collect_answer(conversation.say(self.locked.content), self._publish, self.answer)
            if self.answer.outcome == "stopped":
                self.failure = Refused(503, STOPPED, code="stopped")
            elif self.answer.failure is not None:
                log.warning("a request to the API got no answer: %s", self.answer.failure.why)
                self.failure = translate_error(self.answer.failure.error)
        except Exception as problem:
            log.log(
                logging.DEBUG if translate_error(problem).status < 500 else logging.ERROR,
                "a turn for the API broke off: %s",
                secrets.redact(repr(problem)),
                exc_info=True,
            )
            self.failure = translate_error(problem)
        finally:
            await self._locks.leave(self.locked)
            self._metrics.turns.add(self.answer.outcome)
            self._metrics.turn_seconds.observe(clock.now() - began)
            self._pieces.put_nowait(None)
            self._heard.set()
            self._some.set()
            self.over.set()
        await conversation.settle()

    async def _publish(self, event: Event) -> None:
        if self._stopping:
            self.locked.conversation.stop()
        if isinstance(event, Counted):
            self._metrics.count_usage(event.used)
        is_reasoning = isinstance(event, ThoughtDelta)
        text = event.text if isinstance(event, ThoughtDelta) else self._text.render(event)
        if text:
            self._pieces.put_nowait(Piece(text, is_reasoning))
            self._some.set()
        self._heard.set()
