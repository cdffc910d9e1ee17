"""One turn for one request. It runs in its own task: a client that disconnects stops it, and the result is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import NamedTuple

from hermes import clock, secrets
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
)
from hermes.agent.models.model import Used
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.server.api_errors import Refused, translate_error
from hermes.server.locks import ConversationLocks, LockedConversation
from hermes.server.message_format import BETWEEN

log = logging.getLogger(__name__)

AGAIN = "\n\n[the answer broke off here; it starts again]\n\n"
RECAST = "\n\n[this was the model's reasoning; the answer follows]\n\n"


class Piece(NamedTuple):
    """Text on its way to a client."""

    text: str
    is_reasoning: bool = False


class Answer:
    """What has come of a turn so far."""

    def __init__(self) -> None:
        self.text = ""
        """Without reasoning, as `saying.stored` reads it from the store."""
        self.reasoning = ""
        self.said: int | None = None
        """The person's message that it answers; None if that could not be stored."""
        self.reason: str | None = None
        self.used: list[Used] = []
        self.notes: list[str] = []
        self.failure: Refused | None = None
        self._before = self._reasoning_before = ""
        self._fresh = True
        """Whether nothing of the message that comes now was streamed yet."""
        self._resumes_with = ""
        """What tells a client who reads along that the text it has is not the beginning of the answer."""

    def add(self, event: Event) -> str:
        """Take in what happened; the text that a client who reads along is to be given."""
        match event:
            case TextDelta(text) if text:
                between = BETWEEN if self._fresh and self._before else ""
                delta = f"{self._resumes_with or between}{text}"
                self.text = f"{self.text}{between}{text}"
                self._fresh, self._resumes_with = False, ""
                return delta
            case ThoughtDelta(text):
                self.reasoning += text
            case Recast() | Discarded():
                self._take_back(event)
            case Stored(message_id, "user"):
                self.said = message_id
            case Stored(_, "assistant"):
                self._before, self._fresh = self.text, True
                self._reasoning_before = self.reasoning
            case NotStored():
                self._add_not_stored(event)
            case Counted(_, used):
                self.used.append(used)
            case Note(text):
                self.notes.append(text)
            case Done(_, reason):
                self.reason = reason
            case Interrupted():
                why = "the answer was stopped: this server is ending; what was said is kept"
                self.failure = Refused(503, why, code="stopped")
            case Failed(_, error):
                self.failure = translate_error(error)
            case _:
                pass
        return ""

    def _take_back(self, event: Recast | Discarded) -> None:
        """Forget what was streamed of the message that comes now."""
        if not self._fresh or self._resumes_with:
            self._resumes_with = RECAST if isinstance(event, Recast) else AGAIN
        self.text, self._fresh = self._before, True
        self.reasoning = self.reasoning + event.text if isinstance(event, Recast) else self._reasoning_before

    def _add_not_stored(self, event: NotStored) -> None:
        if event.role == "assistant":
            self._before, self._fresh = self.text, True
            self._reasoning_before = self.reasoning
        consequence = (
            "kept beside the store until it can be" if event.spooled else "lost when the server ends"
        )
        self.notes.append(f"not stored ({event.why}); it is {consequence}")

    @property
    def tokens(self) -> tuple[int, int, int, int] | None:
        """Sent, of those from a cache, answered, of those in thought; None if nobody said."""
        if all(usage.prompt_tokens is None and usage.output_tokens is None for usage in self.used):
            return None
        return (
            sum(usage.prompt_tokens or 0 for usage in self.used),
            sum(usage.cache_read_tokens or 0 for usage in self.used),
            sum(usage.output_tokens or 0 for usage in self.used),
            sum(usage.reasoning_tokens or 0 for usage in self.used),
        )


class Turn:
    def __init__(self, locks: ConversationLocks, locked: LockedConversation, metrics: GatewayMetrics) -> None:
        self.locked, self.answer = locked, Answer()
        self.answer.said = locked.repeated_message_id
        if locked.note is not None:
            self.answer.notes.append(locked.note)
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
        began, outcome, conversation = clock.now(), "failed", self.locked.conversation
        try:
            async with aclosing(conversation.say(self.locked.content)) as events:
                async for event in events:
                    if self._stopping:
                        conversation.stop()
                    if isinstance(event, Done | Interrupted):
                        outcome = "answered" if isinstance(event, Done) else "stopped"
                    if isinstance(event, Failed):
                        log.warning("a request to the API got no answer: %s", event.why)
                    self._publish(event)
                    self._heard.set()
        except Exception as problem:
            log.log(
                logging.DEBUG if translate_error(problem).status < 500 else logging.ERROR,
                "a turn for the API broke off: %s",
                secrets.redact(repr(problem)),
                exc_info=True,
            )
            self.answer.failure = translate_error(problem)
        finally:
            await self._locks.leave(self.locked)
            self._metrics.turns.add(outcome)
            self._metrics.turn_seconds.observe(clock.now() - began)
            self._pieces.put_nowait(None)
            self._heard.set()
            self._some.set()
            self.over.set()
        await conversation.settle()

    def _publish(self, event: Event) -> None:
        if isinstance(event, Counted):
            self._metrics.count_usage(event.used)
        delta = self.answer.add(event)
        if isinstance(event, ThoughtDelta) and event.text:
            self._pieces.put_nowait(Piece(event.text, is_reasoning=True))
            self._some.set()
        elif delta:
            self._pieces.put_nowait(Piece(delta))
            self._some.set()
