"""The turn of a request. Each turn runs in a separate task. If the client disconnects, the turn is stopped
and the result so far is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from hermes import clock, secrets
from hermes.agent.answer import Answer, StreamText, collect_answer
from hermes.agent.events import (
    Done,
    Event,
    Note,
    NotStored,
    Stored,
    TextDelta,
    ThoughtDelta,
)
from hermes.agent.models.call_limit import Slots
from hermes.conversation.spending_limit import LimitReached
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.reasoning import strip_reasoning
from hermes.server.api_errors import DO_NOT_RETRY, Refused, translate_error
from hermes.server.api_keys import refuse_revoked
from hermes.server.conversations.locks import ConversationLocks, LockedConversation

log = logging.getLogger(__name__)

STOPPED = "the answer was stopped because the server is shutting down; the text so far is stored"
STOPPED_BY_COMMAND = "the answer was stopped by /stop; the text so far is stored"


class Piece(NamedTuple):
    """A piece of the answer or of the model's reasoning, for the client."""

    text: str
    is_reasoning: bool = False


class Turn:
    def __init__(
        self,
        locks: ConversationLocks,
        locked: LockedConversation,
        metrics: GatewayMetrics,
        slots: Slots,
        is_revoked: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the turn of the request of `locked` in a task. `slots` limits the concurrent turns of the whole
        gateway. `is_revoked` returns whether the API key of the request was revoked. If it was, the turn is stopped."""
        self._slots = slots
        self.locked, self.answer, self._is_revoked = locked, Answer(), is_revoked
        self.answer.prompt_id = locked.repeated_message_id
        if locked.note is not None:
            self.answer.notes.append(Note(locked.note))
        self.failure: Refused | None = None
        self._text = StreamText(self.answer)
        self._locks, self._metrics = locks, metrics
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._first_event, self._first_text = asyncio.Event(), asyncio.Event()
        self._stopping = False
        self.ended = asyncio.Event()
        """Set when the conversation is released. Background work may still be running."""
        locked.conversation.expect(True)
        self.task = asyncio.create_task(self._work(), name=f"api turn in {locked.conversation_id}")

    def stop(self) -> None:
        """Ask the turn to stop. The part of the answer that exists is stored."""
        self._stopping = True
        self.locked.conversation.stop()

    async def iterate_pieces(self, every: float) -> AsyncIterator[Piece | None]:
        """Yield the pieces of the answer. Yield None whenever no piece has arrived for `every` seconds."""
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
        """Wait for the first event of the turn. Then wait up to `seconds` for the first text of the answer or the end
        of the turn."""
        await self._first_event.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._first_text.wait()

    async def _work(self) -> None:
        began, conversation = clock.now(), self.locked.conversation
        try:
            with self._metrics.turns_running.count_inside():
                await collect_answer(self._run(), self._publish, self.answer)
            if self.answer.outcome == "stopped":
                self.failure = self._describe_stop()
            elif self.answer.failure is not None:
                failure = self.answer.failure
                level = logging.INFO if isinstance(failure.error, LimitReached) else logging.WARNING
                log.log(level, "an API request got no answer: %s", failure.hidden or failure.why)
                self.failure = translate_error(self.answer.failure.error)
        except Exception as problem:
            log.log(
                logging.DEBUG if translate_error(problem).status < 500 else logging.ERROR,
                "a turn of the API failed: %s",
                secrets.redact(repr(problem)),
                exc_info=True,
            )
            self.failure = translate_error(problem)
        finally:
            is_unstored = any(isinstance(note, NotStored) for note in self.answer.notes)
            # A message in the spool is stored later, in this session.
            await self._locks.leave(self.locked._replace(is_new=self.locked.is_new and not is_unstored))
            if not self.locked.is_answered:
                self._metrics.turns.add(self.answer.outcome)
                self._metrics.turn_seconds.observe(clock.now() - began)
            self._pieces.put_nowait(None)
            self._first_event.set()
            self._first_text.set()
            self.ended.set()
        await conversation.settle()

    async def _run(self) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer. First come the events of the answer that an earlier copy of the request left
        in the store, then those of the model."""
        locked = self.locked
        for event in replay_answer(locked.stored_answer, is_complete=locked.is_answered):
            yield event
        if not locked.is_answered:
            fields = {} if locked.mark is None else {"platform_message_id": locked.mark}
            async with self._slots, aclosing(locked.conversation.say(locked.content, **fields)) as events:
                async for event in events:
                    yield event

    @property
    def is_final(self) -> bool:
        """Whether the request of this turn is finished, so that the client need not send it again."""
        return self.failure is None or self.failure.message == STOPPED_BY_COMMAND

    def _describe_stop(self) -> Refused:
        if self._is_revoked():
            return refuse_revoked()
        if self._stopping:
            return Refused(503, STOPPED, code="stopped")
        return Refused(409, STOPPED_BY_COMMAND, code="stopped", headers=DO_NOT_RETRY)

    async def _publish(self, event: Event) -> None:
        if self._stopping or self._is_revoked():
            self.locked.conversation.stop()
        is_reasoning = isinstance(event, ThoughtDelta)
        text = event.text if isinstance(event, ThoughtDelta) else self._text.render(event)
        if text:
            self._pieces.put_nowait(Piece(text, is_reasoning))
            self._first_text.set()
        self._first_event.set()


def replay_answer(rows: Sequence[Mapping[str, Any]], *, is_complete: bool) -> Iterator[Event]:
    """Yield events that reproduce a stored answer, without the events of tools. `rows` are the rows of the answer. Each
    text is one event. With `is_complete`, the last event is `Done`."""
    text, reason = "", None
    for row in rows:
        if row["role"] == "assistant":
            if thought := row["reasoning_content"] or row["reasoning"]:
                yield ThoughtDelta(str(thought))
            text, reason = str(strip_reasoning(row["content"], "assistant") or ""), row["finish_reason"]
            if text:
                yield TextDelta(text)
            yield Stored(row["id"], "assistant")
    if is_complete:
        yield Done(text, reason)
