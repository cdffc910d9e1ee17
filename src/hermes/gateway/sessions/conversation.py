"""A live conversation: its record under a lease, its agent, and the running turn.

Mailboxes and the HTTP interface use it the same way. Knows no platform.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.agent.approvals.request import Decision
from hermes.agent.components import LEAST_SAID, AgentComponents
from hermes.agent.events import Done, Event, Failed, Note
from hermes.agent.title_generation import make_title_while_young
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.gateway.sessions.agents import AgentProvider, AgentScope, PreparedAgent
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore

SAVING_S = 60.0
_numbers = count(1)


class Conversation:
    def __init__(
        self,
        agents: AgentProvider,
        store: ScopedStore,
        scope: AgentScope,
        make_session: Callable[[], Awaitable[str]],
    ) -> None:
        """`make_session` makes the session in which a conversation continues whose session was deleted."""
        self.store, self._agents, self.scope = store, agents, scope
        self._make_session = make_session
        self.replaced_by: str | None = None
        """The session that took the place of a deleted one."""
        # Two chats that go on in one conversation are two who work in it: one waits for the other.
        self._surface = f"gateway, chat {next(_numbers)}"
        self._record: StoredRecord | None = None
        self._left: list[StoredRecord] = []
        self._prepared: PreparedAgent | None = None
        self._turn: Turn | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self.working_since: float | None = None
        self._expected = self._stop_at_once = False

    @property
    def session_id(self) -> str | None:
        return None if self._record is None else self._record.session_id

    @property
    def epoch(self) -> int | None:
        return None if self._record is None else self._record.epoch

    async def enter(self, session_id: str) -> None:
        """Work in this session from now on; `LeaseHeld` if another process does."""
        if self._record is not None and self._record.session_id == session_id and self._record.lease:
            return
        record = StoredRecord(
            self.store,
            session_id,
            source=self.scope.platform,
            surface=self._surface,
            make_session=self._replace_session,
        )
        await record.hold()
        if self._record is not None:
            self._left.append(self._record)
        self._record, self._prepared = record, None

    async def _replace_session(self) -> str:
        self.replaced_by = await self._make_session()
        return self.replaced_by

    async def close_left(self) -> None:
        """Let others work in what was left for another session, once nothing is to be finished under its lease."""
        while self._left:
            await self._left.pop().close()

    async def leave(self) -> None:
        """Release the lease."""
        if self._record is not None:
            self._left.append(self._record)
        self._record, self._prepared = None, None
        await self.close_left()

    def describe_holder(self, problem: errors.LeaseHeld) -> str:
        """Where the conversation is open, in words for a person in a chat."""
        holder = problem.holder.holder
        return (
            "in another chat" if holder[:3] == identify_process() else str(holder.surface).partition(",")[0]
        )

    # ---------------------------------------------------------------- a turn

    async def say(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Run a turn; None repeats the last message. `fields` are columns of the person's message."""
        assert self._record is not None
        self.working_since = clock.now()
        try:
            prepared = await self._prepare(self._record)
            await asyncio.to_thread(self._reopen, self._record.session_id)
            if self.scope.room is not None:
                self.scope.room.begin_turn(content)
            self._turn = prepared.agent.turn()
            if self._stop_at_once:
                self._turn.stop()
            async with aclosing(self._turn.events(content, **fields)) as events:
                async for event in events:
                    if isinstance(event, Failed) and isinstance(event.error, errors.LeaseLost):
                        raise event.error
                    yield event
                    if isinstance(event, Done):
                        self._schedule_title(prepared, self._record.session_id)
        except errors.LeaseLost:
            raise
        except errors.HermesError as problem:  # there is nobody to answer; what was said is kept all the same
            if content is not None and self._turn is None:
                yield await self._record.say("user", content, **fields)
            yield Failed(str(problem), problem)
        finally:
            self._turn, self.working_since = None, None
            self._expected = self._stop_at_once = False

    def expect(self, answer: bool) -> None:
        """An answer is about to be made, or will not be after all; until it begins it can be stopped, too."""
        self._expected, self._stop_at_once = answer, False

    def stop(self) -> bool:
        """Stop the answer that is being made, or is about to be; whether there was one."""
        if self._turn is not None:
            self._turn.stop()
            return True
        self._stop_at_once = self._expected
        return self._expected

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer an approval that the turn asked for; False if it does not wait for it (any longer)."""
        return self._turn is not None and self._turn.decide(number, decision)

    def steer(self, content: Any, **fields: Any) -> bool:
        """Add a message to the running turn; False if there is none, or if it is too late."""
        if self._turn is None or not self._turn.steer(content, **fields):
            return False
        if self.scope.room is not None:
            self.scope.room.hear(content)
        return True

    async def _prepare(self, record: StoredRecord) -> PreparedAgent:
        if self._prepared is None:
            self._prepared = await self._agents.prepare_agent(self.scope, self.store, record)
        return self._prepared

    def _reopen(self, session_id: str) -> None:
        """A terminal that went on in it has ended it when it was left."""
        session = self.store.get_session(session_id)
        if session is not None and session["ended_at"] is not None:
            self.store.reopen_session(session_id)

    # ---------------------------------------------------------------- beside the turn

    async def save(self, least: int = LEAST_SAID) -> bool:
        """Give the agent its silent turn to keep what matters, if the person said at least so much since the last
        time. It may fail, and it may not take long; whether it came to its end."""
        if self._record is None:
            return False
        with suppress(errors.HermesError, TimeoutError):
            prepared = await self._prepare(self._record)
            if prepared.parts.save is not None:
                async with asyncio.timeout(SAVING_S):
                    return await prepared.parts.save(prepared.agent, least)
        return False

    async def compress(self, focus: str | None) -> AsyncGenerator[Event, None]:
        """Compress now; the events of it."""
        assert self._record is not None
        prepared = await self._prepare(self._record)
        if prepared.compressor is None:
            yield Note("There is no compression here.")
            return
        async for event in prepared.compressor.compress_by_hand(focus):
            yield event

    def get_components(self) -> AgentComponents:
        """What its agent is made of. May read files."""
        return self._agents.get_components(self.scope)

    def _schedule_title(self, prepared: PreparedAgent, session_id: str) -> None:
        make = prepared.parts.make_title
        if make is not None:
            task = asyncio.create_task(make_title_while_young(self.store, session_id, make))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    @property
    def has_background_work(self) -> bool:
        """Whether background work runs: the title is being generated."""
        return bool(self._background)

    async def settle(self) -> None:
        """Wait for background work."""
        await asyncio.gather(*self._background, return_exceptions=True)

    async def close(self) -> None:
        """Release the lease and cancel background work."""
        for task in self._background:
            task.cancel()
        await self.settle()
        await self.leave()
