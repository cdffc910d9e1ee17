"""One live conversation: its session under a lease, the agent that answers in it, and the turn that runs.

Every surface holds its conversations with this class; what differs between surfaces is in `Surface` and `AgentScope`.
The row of a new session is made with its first message, so that a conversation in which nothing was said leaves nothing
behind. At a terminal, a session that is only looked at stays as it was: it is reopened when something is said in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hermes import clock, errors
from hermes.agent.components import LEAST_SAID, AgentComponents
from hermes.agent.events import Counted, Done, Event, Failed, Moved, Note, Stored
from hermes.agent.models.model import Model, NoSuchModel, Unreachable, strip_address
from hermes.agent.transcript import IncognitoRecord, StoredRecord
from hermes.agent.turn import Turn
from hermes.conversation import working_directory
from hermes.conversation.agents import AgentProvider, AgentScope, LiveRecord, PreparedAgent
from hermes.conversation.background_tasks import BackgroundTasks
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.results import NOTHING_YET, RewindResult, add_usage
from hermes.conversation.surface import Surface
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.agent.agent import Agent
    from hermes.agent.approvals.request import Decision
    from hermes.db.session_db import AnyStore

StoreT = TypeVar("StoreT", bound="AnyStore")
Row = dict[str, Any]

SAVING_S, GRACE_S = 60.0, 0.5
GONE = (NoSuchModel, Unreachable)
NO_COMPRESSION = "There is no compression here."


class Conversation(Generic[StoreT]):
    def __init__(
        self,
        store: StoreT,
        agents: AgentProvider,
        scope: AgentScope,
        surface: Surface,
        models: ModelSelector | None = None,
    ) -> None:
        """With `models` the model is chosen per conversation, and `agents` is closed with it."""
        self.store, self.scope, self.surface, self.models = store, scope, surface, models
        self._agents = agents
        self.queued_title: str | None = None
        self.started_at = clock.now()
        self.total = self.last_turn = NOTHING_YET
        """What was used since the session was entered, and by the last turn."""
        self.working_since: float | None = None
        self.replaced_by: str | None = None
        """The session that took the place of a deleted one."""
        self.turn: Turn | None = None
        self._expected = self._stop_at_once = False
        self._prepared: PreparedAgent | None = None
        self._open = self._is_elsewhere = False
        self._left: list[LiveRecord] = []
        self._background = BackgroundTasks()
        self.record = self._make_record()

    # ---------------------------------------------------------------- the agent

    @property
    def parts(self) -> AgentComponents:
        """What its agent is made of."""
        return self._agents.get_components(self.scope)

    @property
    def cwd(self) -> Path:
        return self.scope.cwd or Path.cwd()

    async def prepare(self) -> PreparedAgent:
        """The agent. Raises if the model cannot be used; the next call tries again."""
        while (prepared := self._prepared) is None:
            record = self.record
            prepared = await self._agents.prepare_agent(self.scope, self.store, record)
            is_current = self.models is None or self.models.model is prepared.agent.model
            if is_current and record is self.record:  # else the model or the session was changed meanwhile
                self._prepared = prepared
        return prepared

    async def choose_model(self, name: str) -> Model:
        """Continue with another model. Raises, and changes nothing, if there is none of this name."""
        assert self.models is not None
        model = await self.models.choose(name)
        self._prepared = None
        if self.exists:
            await asyncio.to_thread(self.store.set_session_model, self.session_id, model.name)
        return model

    async def _fall_back(self) -> str | None:
        """Let the usual model answer in place of one that is gone; what to say about it, None if there is no other."""
        notice = None if self.models is None else await self.models.fall_back()
        if notice is not None:
            self._prepared = None
        return notice

    # ---------------------------------------------------------------- the session

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def exists(self) -> bool:
        """Whether it is in the store."""
        return self.record.exists

    @property
    def incognito(self) -> bool:
        return self.surface.incognito

    @property
    def epoch(self) -> int | None:
        return self.record.epoch

    def get_title(self) -> str | None:
        return self.store.get_session_title(self.session_id) if self.exists else None

    @property
    def previous_id(self) -> str | None:
        """The session that `begin` left for this one, as long as this one is not stored."""
        return self.record.previous_id

    async def ensure_session(self) -> bool:
        """Whether the session is stored. A new one is stored with its first message."""
        return self.exists

    def _make_record(
        self, session_id: str | None = None, cwd: Path | None = None, previous_id: str | None = None
    ) -> LiveRecord:
        """The record of a session that exists, or of a new one. If it is deleted, another begins in `cwd`."""
        if self.surface.incognito and session_id is None:
            return IncognitoRecord()
        new: dict[str, Any] = {}
        if self.surface.make_session is None:
            new.update(working_directory.describe_origin(cwd or self.cwd))
        if self.models is not None and self.models.wish.base_url is not None:
            new["model_config"] = {"base_url": strip_address(self.models.wish.base_url)}
        return StoredRecord(
            self.store,
            session_id,
            source=self.scope.platform,
            surface=self.surface.name,
            make_session=None if self.surface.make_session is None else self._replace_session,
            previous_id=previous_id,
            choose_title=lambda: self.queued_title,
            **new,
        )

    async def _replace_session(self) -> str:
        assert self.surface.make_session is not None
        self.replaced_by = await self.surface.make_session()
        return self.replaced_by

    def _set_record(self, record: LiveRecord) -> None:
        self.record, self._prepared = record, None
        self._open = self._is_elsewhere = False
        self.queued_title, self.started_at = None, clock.now()
        self.total = self.last_turn = NOTHING_YET

    async def enter(self, session_id: str) -> None:
        """Work in this session from now on; `LeaseHeld` if another process does.

        The lease of the session before is kept until `close_left`: what was begun under it can be finished.
        """
        old = self.record
        if old.session_id == session_id and old.lease is not None:
            return
        record = self._make_record(session_id)
        await record.hold()
        self._left.append(old)
        self._set_record(record)

    async def close_left(self) -> None:
        """Release the leases of sessions that were left for another."""
        while self._left:
            await self._left.pop().close()

    async def leave(self) -> None:
        """Release all leases. `enter` comes back."""
        self._left.append(self.record)
        self._set_record(self._make_record())
        await self.close_left()

    async def step_aside(self) -> None:
        """Release the lease of the session for another program that may give it back."""
        await self.record.close()

    async def step_back(self) -> None:
        await self.record.hold()

    def forget(self) -> None:
        """Somebody else has the session: it is theirs to end."""
        self._open = False

    # ---------------------------------------------------------------- going to another session

    async def begin(self, title: str | None = None) -> None:
        """Leave the session for a new one, after the agent saved what matters of the old one.

        At a terminal it saves in the background.
        """
        previous_id = self.session_id if self.exists else self.previous_id
        self._end_later("new_session", save=True)
        self._set_record(self._make_record(previous_id=previous_id))
        self.queued_title = title

    async def switch_to(
        self, session_id: str, *, asked_cwd: Path | None = None, take_over: bool = False
    ) -> list[str]:
        """Continue in another session; lines that a person should know. `LeaseHeld` if somebody else works in it."""
        row = await asyncio.to_thread(self.store.get_session, session_id)
        if row is None:
            raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id}")
        where = working_directory.choose_directory(row["cwd"], asked_cwd, self.cwd)
        record = self._make_record(session_id, where.cwd)
        await self._background.hurry(session_id)
        unwritable = await self._hold(record, take_over)
        self._end_later("resumed_other")
        self._set_record(record)
        self.scope = self.scope._replace(cwd=where.cwd)
        self._is_elsewhere = str(where.cwd) != row["cwd"]
        restored = None if self.models is None else self.models.restore(row)
        note = " ".join(filter(None, (where.note, restored)))
        return [line for line in (note, unwritable) if line]

    async def check_free(self, session_id: str) -> None:
        """`LeaseHeld` if another process works in a session."""
        lease = await asyncio.to_thread(self.store.leases.find_holder, session_id)
        if lease is not None and lease.holder[:3] != identify_process():
            raise errors.LeaseHeld(f"session {session_id!r} is in use", lease)

    async def _hold(self, record: LiveRecord, take_over: bool) -> str | None:
        """Take the lease. A store that cannot be written now keeps nobody from reading; what to say about it."""
        try:
            await record.hold(take_over=take_over)
        except errors.LeaseHeld:
            raise
        except errors.StoreError as problem:
            if await asyncio.to_thread(self.store.leases.find_holder, record.session_id) is not None:
                raise  # somebody may be at work in it
            return f"The store cannot be written now: {problem}"
        return None

    async def branch(self, title: str | None = None) -> str:
        """Continue in a new session with the same context; its id. Nothing is copied."""
        old, epoch = self.session_id, self.epoch
        child = await asyncio.to_thread(lambda: self.store.branch(old, lease_epoch=epoch, title=title))
        await self.enter(child)
        self._open = True
        await self.close_left()  # the old one has ended already
        return child

    async def branch_off(self, session_id: str) -> str:
        """Continue in a branch of a session that somebody else works in, and keeps; the branch's id."""
        child = await asyncio.to_thread(lambda: self.store.branch(session_id, end_parent=False))
        record = self._make_record(child)
        await record.hold()
        self._end_later("resumed_other")
        self._set_record(record)
        self._open = True
        return child

    async def leave_trashed(self) -> str | None:
        """Begin a new session if this one was deleted or trashed; the id of the old one, else None."""
        record, old = self.record, self.session_id
        if not record.exists or await asyncio.to_thread(self.store.get_session, old) is not None:
            return None
        await record.close()
        self._set_record(self._make_record())
        return old

    def _end_later(self, reason: str, *, save: bool = False) -> None:
        """End the session and release its lease, in the background."""
        saving = self._prepared if save and self._open else None
        ending = self._end(self.record, reason if self._open else None, saving)
        self._background.start(ending, self.session_id)

    async def _end(self, record: LiveRecord, reason: str | None, saving: PreparedAgent | None) -> None:
        try:
            if saving is not None:
                await self._save(saving, LEAST_SAID)
        finally:
            if reason is not None and record.exists:
                with suppress(errors.StoreError):
                    await asyncio.to_thread(self.store.end_session, record.session_id, reason)
            await self._transcribe(record)
            await record.close()

    async def close(self, grace: float = GRACE_S) -> None:
        """End of the program: release all leases. Background work has `grace` seconds left."""
        await self._background.cancel(grace)
        if self.surface.end_reason is not None:
            await self._end(self.record, self.surface.end_reason if self._open else None, None)
        self._left.append(self.record)
        await self.close_left()
        if self.models is not None:
            await self._agents.close()

    # ---------------------------------------------------------------- a turn

    async def say(self, content: Any, **fields: Any) -> AsyncGenerator[Event, None]:
        """Run a turn. None repeats the last message; `fields` are columns of the person's message.

        The last event is Done, Interrupted or Failed. If the model that the session was held with is gone, the usual
        one answers, and a note says so.
        """
        self.working_since, self.last_turn, self._expected = clock.now(), NOTHING_YET, True
        try:
            while True:
                try:
                    agent = (await self.prepare()).agent
                    await asyncio.to_thread(self._reopen)
                    self.turn = self._make_turn(agent, content)
                except errors.HermesError as problem:
                    if not self.surface.stores_unanswered:
                        raise
                    if content is not None:
                        yield await self.record.say("user", content, **fields)
                    yield Failed(str(problem), problem)
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
                        yield event
                        if (note := await self._handle_event(event)) is not None:
                            yield note
                if replacement is None:
                    return
                yield Note(replacement)
                content, fields = None, {}
        finally:
            self.turn = self.working_since = None
            self._expected = self._stop_at_once = False

    def _reopen(self) -> None:
        """Whoever left the session last may have ended it."""
        with suppress(errors.StoreError):  # storing the message tells that the store cannot be written
            session = self.store.get_session(self.session_id) if self.exists else None
            if session is not None and session["ended_at"] is not None:
                self.store.reopen_session(self.session_id)
            if self.exists and self._is_elsewhere:
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
                with suppress(errors.StoreError):  # it could not be had when the session was entered
                    await self.record.hold()
            case Stored(_, "user") if self.queued_title is not None:
                return Note(await asyncio.to_thread(self._apply_title))
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

    def expect(self, answer: bool) -> None:
        """A turn is about to begin, or will not begin after all; until it begins it can be stopped, too."""
        self._expected, self._stop_at_once = answer, False

    def stop(self) -> bool:
        """Stop the turn that runs, or is about to; whether there was one."""
        if self.turn is not None:
            self.turn.stop()
            return True
        self._stop_at_once = self._expected
        return self._expected

    def decide(self, number: int, decision: Decision) -> bool:
        """Answer an approval that the turn asked for; False if it does not wait for it (any longer)."""
        return self.turn is not None and self.turn.decide(number, decision)

    def steer(self, content: Any, **fields: Any) -> bool:
        """Add a message to the running turn; False if there is none, or if it is too late."""
        if self.turn is None or not self.turn.steer(content, **fields):
            return False
        if self.scope.room is not None:
            self.scope.room.hear(content)
        return True

    # ---------------------------------------------------------------- beside the turn

    async def save(self, least: int = LEAST_SAID) -> bool:
        """Run the agent's silent turn that saves what matters, if the person sent at least `least` messages since the
        last one. It may fail, and is bounded in time; whether it came to its end."""
        if not self.exists:
            return False
        with suppress(errors.HermesError):
            return await self._save(await self.prepare(), least)
        return False

    async def _save(self, prepared: PreparedAgent, least: int) -> bool:
        save = self.parts.save
        if save is not None:
            with suppress(errors.HermesError, TimeoutError):
                async with asyncio.timeout(SAVING_S):
                    return await save(prepared.agent, least)
        return False

    async def compress(self, focus: str | None = None) -> AsyncGenerator[Event, None]:
        """Compress the context now; the events of it."""
        prepared = await self.prepare()
        if prepared.compressor is None:
            yield Note(NO_COMPRESSION)
            return
        async for event in prepared.compressor.compress_by_hand(focus):
            yield event
            await self._handle_event(event)

    def _apply_title(self) -> str:
        title, self.queued_title = self.queued_title, None
        if title is None or not self.exists:
            return "The title is not set."
        if (stored := self.get_title()) is not None:  # the session was created with it
            return f"Session title set: {stored}"
        try:
            self.store.set_session_title(self.session_id, title)
        except errors.InvalidTitle as problem:
            return f"Not titled: {problem}"
        except errors.StoreError as problem:
            self.queued_title = title  # tried again with the next message
            return f"Not titled yet: {problem}"
        return f"Session title set: {title}"

    def _schedule_title(self) -> None:
        make = self.parts.make_title
        if make is not None and self.exists:
            from hermes.agent.title_generation import make_title_while_young

            self._background.start(make_title_while_young(self.store, self.session_id, make))

    async def _transcribe(self, record: LiveRecord) -> None:
        transcribe = self.parts.transcribe
        if transcribe is not None and record.exists:
            with suppress(errors.StoreError, OSError):  # the store has it; the copy follows another time
                await asyncio.to_thread(transcribe, self.store, record.session_id)

    @property
    def has_background_work(self) -> bool:
        """Whether background work runs, such as the generation of a title."""
        return bool(self._background)

    async def settle(self) -> None:
        """Wait for background work."""
        await self._background.wait()

    # ---------------------------------------------------------------- going back

    async def load_rows(self) -> list[Row]:
        """What is in the context, without marks of other programs."""
        return [row for row in await self.record.context() if row.get("role") != "session_meta"]

    async def take_back(self, message_id: int) -> RewindResult:
        """Rewind to before a message of the person."""
        done = await asyncio.to_thread(
            lambda: self.store.rewind_to_message(self.session_id, message_id, lease_epoch=self.epoch)
        )
        return RewindResult(done["rewound_count"], done["target_message"]["content"])

    async def bring_back(self) -> int:
        """Bring back what was taken back last, unless something was said since; how many messages."""
        if not self.exists:
            return 0
        return await asyncio.to_thread(
            lambda: self.store.restore_last_rewind(self.session_id, lease_epoch=self.epoch)
        )
