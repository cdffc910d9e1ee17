"""A live conversation: its session under a lease, the agent that answers in it, and the running turn.

All surfaces use this class for their conversations. Differences between surfaces are in `Surface` and
`AgentScope`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.agent.context.message_size import MessageTooLarge, check_message
from hermes.agent.events import Counted, Done, Event, Failed, Moved, Note, Stored
from hermes.agent.models.model import NoSuchModel, Unreachable
from hermes.agent.models.provider_errors import hide_detail
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.conversation import working_directory
from hermes.conversation.agents import AgentProvider, AgentScope
from hermes.conversation.live_session import StoreT
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.results import NOTHING_YET, add_usage
from hermes.conversation.session_moves import SessionMoves
from hermes.conversation.spending_limit import LimitReached
from hermes.conversation.surface import Surface
from hermes.db.store_queue import call_store_early

if TYPE_CHECKING:
    from hermes.agent.agent import Agent
    from hermes.agent.approvals.request import Decision

GRACE_S = 0.5
GONE = (NoSuchModel, Unreachable)
NOT_KEPT = (MessageTooLarge, LimitReached)
"""The errors that prevent a turn and after which the person's message is not stored."""
NO_COMPRESSION = "Compression is not available here."


class Conversation(SessionMoves[StoreT]):
    def __init__(
        self,
        store: StoreT,
        agents: AgentProvider,
        scope: AgentScope,
        surface: Surface,
        models: ModelSelector | None = None,
    ) -> None:
        self.total = self.last_turn = NOTHING_YET
        """The usage since the session was entered, and the usage of the last turn."""
        self.working_since: float | None = None
        self.turn: Turn | None = None
        self._expected = self._stop_at_once = False
        super().__init__(store, agents, scope, surface, models)

    def _begin_record(self) -> None:
        super()._begin_record()
        self.total = self.last_turn = NOTHING_YET

    # ---------------------------------------------------------------- turns

    async def say(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events. `content` is the person's message, and `fields` are further columns of the
        message. If `content` is None, the turn answers the last stored message.

        The last event is Done, Interrupted or Failed. If the stored model of the session is no longer
        available, the default model answers and a Note event reports the change.
        """
        self.working_since, self.last_turn, self._expected = clock.now(), NOTHING_YET, True
        try:
            while True:
                try:
                    await self._check_limit()
                    agent = (await self.prepare()).agent
                    if content is not None:
                        await check_message(agent, content)
                    await self._schedule_begin(content)
                    self.turn = self._make_turn(agent, content)
                except errors.HermesError as problem:
                    if not self.surface.stores_unanswered:
                        raise self._hide_detail(problem) from None
                    if content is not None and not isinstance(problem, NOT_KEPT):
                        yield await self.record.say("user", content, **fields)
                    yield self._choose_detail(Failed(str(problem), problem))
                    return
                notice = None if self.models is None else self.models.take_notice()
                if notice is not None:
                    yield Note(notice)
                replacement = None
                async with aclosing(self.turn.events(content, **fields)) as events:
                    async for event in events:
                        if isinstance(event, Failed) and isinstance(event.error, GONE):
                            replacement = await self._fall_back()
                            if replacement is not None:
                                break
                        yield self._choose_detail(event)
                        if (note := await self._handle_event(event)) is not None:
                            yield note
                if replacement is None:
                    return
                yield Note(replacement)
                content, fields = None, {}
        finally:
            self.turn = self.working_since = None
            self._expected = self._stop_at_once = False

    async def _check_limit(self) -> None:
        """Raise `LimitReached` if the person may not use the model now."""
        limit = self.scope.limit
        if limit is not None:
            await call_store_early(limit.check, self.store, self.scope.owner)

    async def _schedule_begin(self, content: Any) -> None:
        """Arrange that `_begin_work` is called together with the store call that stores the message `content`. If no
        message will be stored, because `content` is None or the conversation is incognito, call it now."""
        if content is not None and isinstance(self.record, StoredRecord):
            self.record.prepare_next(self._begin_work)
        else:
            await call_store_early(self._begin_work)

    def _begin_work(self) -> None:
        """Reopen the session if it was ended. Store its working directory and git branch if the conversation
        has moved to another directory."""
        self._reopen()
        if self.exists and self._is_elsewhere:
            with suppress(errors.StoreError):
                branch = working_directory.read_branch(self.cwd)
                self.store.set_session_workspace(self.session_id, self.cwd, branch)
                self._is_elsewhere = False

    def _make_turn(self, agent: Agent, content: Any) -> Turn:
        self._open = True
        if self.scope.room is not None:
            self.scope.room.begin_turn(content)
        turn = agent.turn()
        if self._stop_at_once:
            turn.stop()
        return turn

    async def _handle_event(self, event: Event) -> Note | None:
        match event:
            case Stored(_, "user") if self.exists and self.record.lease is None:
                with suppress(errors.StoreError):  # the lease was not available when the session was entered
                    await self.record.hold()
            case Stored(_, "user") if self.queued_title is not None:
                return Note(await call_store_early(self._apply_title))
            case Counted():
                self.total, self.last_turn = add_usage(self.total, event), add_usage(self.last_turn, event)
            case Moved():
                self.queued_title = None
            case Done():
                self._schedule_title()
                self._background.start(self._transcribe(self.record))
            case Failed(_, errors.LeaseLost()):
                self.forget()
            case _:
                pass
        return None

    def _choose_detail(self, event: Event) -> Event:
        """Return an event about an error, with or without the error message of the model provider. Return other events
        unchanged.

        The message can contain keys, account names and addresses. Therefore only the owner of the machine gets it, in a
        place where nobody else can read it.
        """
        match event:
            case Note(_, hint, detail) if detail and self.scope.machine:
                return Note(detail, hint)
            case Failed(why, error) if isinstance(error, errors.HermesError):
                shown = self._hide_detail(error)
                return event if shown is error else Failed(str(shown), shown, why)
            case _:
                return event

    def _hide_detail(self, problem: errors.HermesError) -> errors.HermesError:
        return problem if self.scope.machine else hide_detail(problem)

    def expect(self, answer: bool) -> None:
        """Announce that a turn will begin (`answer` is True), or withdraw the announcement (`answer` is False). After
        an announcement, `stop` stops the turn even before it begins."""
        self._expected, self._stop_at_once = answer, False

    def stop(self) -> bool:
        """Stop the running or announced turn. Return whether there was one."""
        if self.turn is not None:
            self.turn.stop()
            return True
        self._stop_at_once = self._expected
        return self._expected

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer an approval request of the running turn. Return False if no request with this number is
        pending."""
        return self.turn is not None and self.turn.decide(number, decision)

    def steer(self, content: Any, **fields: Any) -> bool:
        """Add a message to the running turn. Return False if no turn is running, or if the turn accepts no
        more messages."""
        if self.turn is None or not self.turn.steer(content, **fields):
            return False
        if self.scope.room is not None:
            self.scope.room.hear(content)
        return True

    # ---------------------------------------------------------------- other work

    async def compress(self, focus: str | None = None) -> AsyncGenerator[Event, None]:
        """Compress the context now and yield the events of the compression. `focus` says what the summary should
        keep."""
        try:
            await self._check_limit()
        except LimitReached as problem:
            yield Note(str(problem))
            return
        prepared = await self.prepare()
        if prepared.compressor is None:
            yield Note(NO_COMPRESSION)
            return
        async for event in prepared.compressor.compress_by_hand(focus):
            yield self._choose_detail(event)
            await self._handle_event(event)

    async def close(self, grace: float = GRACE_S) -> None:
        """Release all leases at the end of the program. Wait up to `grace` seconds for background tasks, then
        cancel them."""
        await self._background.cancel(grace)
        if self.surface.end_reason is not None:
            await self._end(self.record, self.surface.end_reason if self._open else None, None)
        self._left.append(self.record)
        await self.close_left()
        if self.models is not None:
            await self._agents.close()
