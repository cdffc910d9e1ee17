"""One conversation at work: its record under a lease, its agent, and the turn that runs.

The mailboxes of chats and the HTTP interface work in conversations the same way. Knows no platform.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.agent.approvals.request import Decision
from hermes.agent.components import LEAST_SAID
from hermes.agent.events import Done, Event, Failed, Moved, Note
from hermes.agent.title_generation import make_title_while_young
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.gateway.sessions.agents import Mind, Minds, Whose
from hermes.store.processes import this_process

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore

SAVING_S = 60.0
_numbers = count(1)


class Talking:
    def __init__(
        self, minds: Minds, store: ScopedStore, whose: Whose, make_session: Callable[[], Awaitable[str]]
    ) -> None:
        """`make_session` makes the session in which a conversation continues whose session was deleted."""
        self.store, self._minds, self.whose = store, minds, whose
        self._make_session = make_session
        self.replaced_by: str | None = None
        """The session that took the place of a deleted one."""
        # Two chats that go on in one conversation are two who work in it: one waits for the other.
        self._surface = f"gateway, chat {next(_numbers)}"
        self._record: StoredRecord | None = None
        self._left: list[StoredRecord] = []
        self._mind: Mind | None = None
        self._turn: Turn | None = None
        self._behind: set[asyncio.Task[Any]] = set()
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
            source=self.whose.platform,
            surface=self._surface,
            make_session=self._replace_session,
        )
        await record.hold()
        if self._record is not None:
            self._left.append(self._record)
        self._record, self._mind = record, None

    async def _replace_session(self) -> str:
        self.replaced_by = await self._make_session()
        return self.replaced_by

    async def let_go(self) -> None:
        """Let others work in what was left for another session, once nothing is to be finished under its lease."""
        while self._left:
            await self._left.pop().close()

    async def leave(self) -> None:
        """Let others work in it."""
        if self._record is not None:
            self._left.append(self._record)
        self._record, self._mind = None, None
        await self.let_go()

    def where(self, held: errors.LeaseHeld) -> str:
        """Where somebody else works in the conversation, as a person in a chat may know it."""
        holder = held.holder.holder
        return "in another chat" if holder[:3] == this_process() else str(holder.surface).partition(",")[0]

    # ---------------------------------------------------------------- a turn

    async def say(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """One turn; None tries again with what was said last. `fields` are those of the person's message."""
        assert self._record is not None
        self.working_since = clock.now()
        try:
            mind = await self._ready(self._record)
            await asyncio.to_thread(self._reopen, self._record.session_id)
            if self.whose.room is not None:
                self.whose.room.begin_turn(content)
            self._turn = mind.agent.turn()
            if self._stop_at_once:
                self._turn.stop()
            async with aclosing(self._turn.events(content, **fields)) as events:
                async for event in events:
                    if isinstance(event, Failed) and isinstance(event.error, errors.LeaseLost):
                        raise event.error
                    yield event
                    if isinstance(event, Done):
                        self._title_later(mind, self._record.session_id)
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
        """Say something into the answer that is being made; False if there is none, or if it is too late."""
        if self._turn is None or not self._turn.steer(content, **fields):
            return False
        if self.whose.room is not None:
            self.whose.room.hear(content)
        return True

    async def _ready(self, record: StoredRecord) -> Mind:
        if self._mind is None:
            self._mind = await self._minds.mind(self.whose, self.store, record)
        return self._mind

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
            mind = await self._ready(self._record)
            if mind.parts.save is not None:
                async with asyncio.timeout(SAVING_S):
                    return await mind.parts.save(mind.agent, least)
        return False

    async def compress(self, focus: str | None) -> list[str]:
        """Make room by hand; what happened, a line each."""
        assert self._record is not None
        mind = await self._ready(self._record)
        if mind.compressor is None:
            return ["This conversation cannot be compressed."]
        told = []
        async for event in mind.compressor.compress_by_hand(focus):
            if isinstance(event, Note):
                told.append(event.text)
            elif isinstance(event, Moved):
                told.append(f"Compressed: {event.before} → {event.after} messages.")
        return told or ["Nothing was compressed."]

    def _title_later(self, mind: Mind, session_id: str) -> None:
        make = mind.parts.make_title
        if make is not None:
            task = asyncio.create_task(make_title_while_young(self.store, session_id, make))
            self._behind.add(task)
            task.add_done_callback(self._behind.discard)

    @property
    def goes_on_behind(self) -> bool:
        """Whether something is being made beside the conversation: its title."""
        return bool(self._behind)

    async def settle(self) -> None:
        """Wait for what goes on behind the conversation."""
        await asyncio.gather(*self._behind, return_exceptions=True)

    async def close(self) -> None:
        """Let others work in it, and leave what goes on behind it."""
        for task in self._behind:
            task.cancel()
        await self.settle()
        await self.leave()
