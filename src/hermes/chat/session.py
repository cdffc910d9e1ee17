"""The conversation that a person is in: begun, last_turn up, branched, gone back in, ended. Knows no terminal.

The row of a new one is made with its first message, so that one in which nothing was said leaves nothing behind. One
that is only looked at stays as it was: it is reopened when something is said in it, and ended when it is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock, errors
from hermes.agent.agent import Agent
from hermes.agent.components import NO_WISH, AgentComponents, AgentInputs, ManualCompressor, ModelChoice
from hermes.agent.events import Counted, Done, Event, Failed, Moved, Note, Stored
from hermes.agent.models.model import Model, NoSuchModel, Unreachable, Used, strip_address
from hermes.agent.transcript import IncognitoRecord, StoredRecord
from hermes.agent.turn import Turn
from hermes.chat import working_directory
from hermes.chat.answerer import Answerer
from hermes.chat.view.calls import Call, Reasoning, collect_outputs, read_tool_rows
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

NOTHING_YET = Counted("", Used(), 0.0)
SAVING_S, GRACE_S = 60.0, 0.5
GONE = (NoSuchModel, Unreachable)


class RewindResult(NamedTuple):
    messages: int
    content: Any
    """What the person had said there, to be said again."""


class LiveConversation:
    def __init__(
        self,
        db: SessionDB,
        parts: AgentComponents,
        *,
        can_ask: bool = False,
        wish: ModelChoice = NO_WISH,
        source: str = "cli",
        cwd: Path | None = None,
        incognito: bool = False,
    ) -> None:
        self.db, self.parts, self.source, self.incognito = db, parts, source, incognito
        self.answerer = Answerer(parts, wish, incognito=incognito)
        self.cwd = cwd or Path.cwd()
        self.queued_title: str | None = None
        self.started_at = clock.now()
        self.total = self.last_turn = NOTHING_YET
        """What was used since the conversation was entered, and by the last turn."""
        self.turn: Turn | None = None
        self._can_ask = can_ask
        self._agent: Agent | None = None
        self.compressor: ManualCompressor | None = None
        self._open = self._is_elsewhere = False
        self._background: set[asyncio.Task[Any]] = set()
        self._ending: dict[asyncio.Task[Any], StoredRecord] = {}
        """What is saved and ended behind us."""
        self.record = self._make_record()

    # ---------------------------------------------------------------- who answers

    async def get_agent(self) -> Agent:
        """Raises what is wrong with the model; it is tried again the next time."""
        model = await self.answerer.load_model()
        if self._agent is not None and self._agent.model is model:
            return self._agent
        tools = self.answerer.tools
        working = AgentInputs(self.db, model, tools, self.cwd, self.source, self.incognito)
        make, record = self.parts.make_compressor, self.record
        if make is not None and isinstance(record, StoredRecord):
            self.compressor = await asyncio.to_thread(make, record, working)
        self._agent = Agent(
            self.db,
            record,
            model,
            tools=tools,
            prompt=lambda: self.parts.make_prompt(working),
            price=self.parts.price,
            cwd=self.cwd,
            can_ask=self._can_ask,
            compressor=self.compressor,
            most_steps=self.parts.most_steps,
        )
        return self._agent

    async def choose_model(self, name: str) -> Model:
        """Go on with another model; as before, if there is none of this name."""
        model = await self.answerer.choose(name)
        if self.exists:
            await asyncio.to_thread(self.db.set_session_model, self.session_id, model.name)
        return model

    # ---------------------------------------------------------------- which conversation

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def exists(self) -> bool:
        """Whether it is in the store."""
        return isinstance(self.record, StoredRecord) and self.record.exists

    @property
    def epoch(self) -> int | None:
        return self.record.epoch if isinstance(self.record, StoredRecord) else None

    def get_title(self) -> str | None:
        return self.db.get_session_title(self.session_id) if self.exists else None

    @property
    def previous_id(self) -> str | None:
        """The session that `begin` left for this one, as long as this one is not stored."""
        return self.record.previous_id if isinstance(self.record, StoredRecord) else None

    async def ensure_session(self) -> bool:
        """Whether the session is stored: at a terminal, that happens with the first message."""
        return self.exists

    def _make_record(self, previous_id: str | None = None) -> StoredRecord | IncognitoRecord:
        if self.incognito:
            return IncognitoRecord()
        return self._make_stored_record(None, self.cwd, previous_id)

    def _make_stored_record(
        self, session_id: str | None, cwd: Path, previous_id: str | None = None
    ) -> StoredRecord:
        """The record of a session that exists, or of a new one; should it be deleted, another begins in `cwd`."""
        new: dict[str, Any] = working_directory.describe_origin(cwd)
        if self.answerer.wish.base_url is not None:
            new["model_config"] = {"base_url": strip_address(self.answerer.wish.base_url)}
        return StoredRecord(
            self.db,
            session_id,
            source=self.source,
            previous_id=previous_id,
            choose_title=lambda: self.queued_title,
            **new,
        )

    def _enter(self, record: StoredRecord | IncognitoRecord, *, is_open: bool) -> None:
        self.record, self._open, self._agent, self.compressor = record, is_open, None, None
        self._is_elsewhere = False
        self.queued_title, self.started_at = None, clock.now()
        self.total = self.last_turn = NOTHING_YET

    async def begin(self, title: str | None = None) -> None:
        """Leave the conversation for a new one. The agent may still save what matters of the old one, behind us."""
        previous_id = self.session_id if self.exists else self.previous_id
        self._release("new_session", save=True)
        self._enter(self._make_record(previous_id), is_open=False)
        self.queued_title = title

    async def leave_trashed(self) -> str | None:
        """Go on in a new conversation if the session of this one was deleted or trashed; the id of that, else None."""
        record, old = self.record, self.session_id
        if not isinstance(record, StoredRecord) or not record.exists:
            return None
        if await asyncio.to_thread(self.db.get_session, old) is not None:
            return None
        await record.close()
        self._enter(self._make_record(), is_open=False)
        return old

    async def check_free(self, session_id: str) -> None:
        """`LeaseHeld` if another process works in a conversation."""
        lease = await asyncio.to_thread(self.db.leases.find_holder, session_id)
        if lease is not None and lease.holder[:3] != identify_process():
            raise errors.LeaseHeld(f"session {session_id!r} is in use", lease)

    async def switch_to(
        self, session_id: str, *, asked_cwd: Path | None = None, take_over: bool = False
    ) -> list[str]:
        """Go on in a conversation; what a person should know, a line each. `LeaseHeld` if somebody else works in it."""
        row = await asyncio.to_thread(self.db.get_session, session_id)
        if row is None:
            raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id}")
        where = working_directory.choose_directory(row["cwd"], asked_cwd, self.cwd)
        record = self._make_stored_record(session_id, where.cwd)
        await self._finish_ending(session_id)
        unwritable = await self._hold(record, take_over)
        self._release("resumed_other")
        self._enter(record, is_open=False)
        self.cwd, self._is_elsewhere = where.cwd, str(where.cwd) != row["cwd"]
        note = " ".join(filter(None, (where.note, self.answerer.restore(row))))
        return [line for line in (note, unwritable) if line]

    async def _finish_ending(self, session_id: str) -> None:
        """Stop saving what was left, and release its lease: it is entered again."""
        for task, record in list(self._ending.items()):
            if record.session_id == session_id:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await record.close()  # also if the task had not begun

    async def _hold(self, record: StoredRecord, take_over: bool) -> str | None:
        """Take the lease. A store that cannot be written now keeps nobody from reading on; what to say about it."""
        try:
            await record.hold(take_over=take_over)
        except errors.LeaseHeld:
            raise
        except errors.StoreError as problem:
            if await asyncio.to_thread(self.db.leases.find_holder, record.session_id) is not None:
                raise  # somebody may be at work in it
            return f"The store cannot be written now: {problem}"
        return None

    async def branch(self, title: str | None) -> str:
        """Go on in a conversation of its own with the same context; its id. Nothing is copied."""
        child = await asyncio.to_thread(
            lambda: self.db.branch(self.session_id, lease_epoch=self.epoch, title=title)
        )
        assert isinstance(self.record, StoredRecord)
        await self.record.close()  # the old one has ended already
        await self._enter_branch(child)
        return child

    async def branch_off(self, session_id: str) -> str:
        """The same of a conversation that somebody else works in, who keeps it; the branch's id."""
        child = await asyncio.to_thread(lambda: self.db.branch(session_id, end_parent=False))
        self._release("resumed_other")
        await self._enter_branch(child)
        return child

    async def _enter_branch(self, child: str) -> None:
        record = self._make_stored_record(child, self.cwd)
        await record.hold()
        self._enter(record, is_open=True)

    def _release(self, reason: str, *, save: bool = False) -> None:
        """End the conversation and let others have it, without making anybody wait."""
        record, is_open, agent = self.record, self._open, self._agent
        if isinstance(record, StoredRecord):
            saving = agent if save and is_open else None
            task = asyncio.create_task(self._end(record, reason if is_open else None, saving))
            self._track(task)
            self._ending[task] = record
            task.add_done_callback(lambda task: self._ending.pop(task, None))

    async def _end(self, record: StoredRecord, reason: str | None, saving: Agent | None) -> None:
        try:
            if saving is not None and self.parts.save is not None:
                with suppress(errors.HermesError, TimeoutError):
                    await asyncio.wait_for(self.parts.save(saving), SAVING_S)
        finally:
            if reason is not None:
                with suppress(errors.StoreError):
                    self.db.end_session(record.session_id, reason)
            await self._transcribe(record)
            await record.close()

    async def leave(self) -> None:
        """The end of the program: what is under way behind us has a moment left."""
        if self._background:
            await asyncio.wait(self._background, timeout=GRACE_S)
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if isinstance(self.record, StoredRecord):
            await self._end(self.record, "cli_close" if self._open else None, None)
        await self.answerer.close()

    async def step_aside(self) -> None:
        """Let another program work in the conversation, which may come back."""
        if isinstance(self.record, StoredRecord):
            await self.record.close()

    async def step_back(self) -> None:
        if isinstance(self.record, StoredRecord):
            await self.record.hold()

    async def _transcribe(self, record: StoredRecord | IncognitoRecord) -> None:
        if self.parts.transcribe is not None and isinstance(record, StoredRecord) and record.exists:
            with suppress(errors.StoreError, OSError):  # the store has it; the copy follows another time
                await asyncio.to_thread(self.parts.transcribe, self.db, record.session_id)

    def forget(self) -> None:
        """Somebody else has the conversation: it is theirs to end."""
        self._open = False

    # ---------------------------------------------------------------- saying

    async def say(self, content: Any) -> AsyncGenerator[Event, None]:
        """One turn. None tries again with what was said last.

        If the model that the conversation was held with is gone, the usual one answers, and that is said.
        """
        async with aclosing(self._run_turn(content)) as events:
            async for event in events:
                if isinstance(event, Failed) and isinstance(event.error, GONE):
                    notice = await self.answerer.fall_back()
                    if notice is not None:
                        yield Note(notice)
                        break
                yield event
            else:
                return
        async with aclosing(self._run_turn(None)) as events:
            async for event in events:
                yield event

    async def _run_turn(self, content: Any) -> AsyncGenerator[Event, None]:
        agent = await self.get_agent()
        if (news := self.answerer.take_notice()) is not None:
            yield Note(news)
        if self.exists and not self._open:
            with suppress(errors.StoreError):  # what is said next tells that the store cannot be written
                await asyncio.to_thread(self._reopen)
        self._open = True
        self.turn, self.last_turn = agent.turn(), NOTHING_YET
        try:
            async with aclosing(self.turn.events(content)) as events:
                async for event in events:
                    yield event
                    async for more in self._handle_event(event):
                        yield more
        finally:
            self.turn = None

    def _reopen(self) -> None:
        self.db.reopen_session(self.session_id)
        if self._is_elsewhere:
            self.db.set_session_workspace(self.session_id, self.cwd, working_directory.read_branch(self.cwd))

    async def _handle_event(self, event: Event) -> AsyncGenerator[Event, None]:
        match event:
            case Stored(_, "user") if isinstance(self.record, StoredRecord) and self.record.lease is None:
                with suppress(errors.StoreError):  # it could not be had when the conversation was entered
                    await self.record.hold()
            case Stored(_, "user") if self.queued_title is not None:
                yield Note(await asyncio.to_thread(self._apply_title))
            case Counted():
                self.total, self.last_turn = (
                    _add_counts(self.total, event),
                    _add_counts(self.last_turn, event),
                )
            case Moved():
                self.queued_title = None
            case Done():
                self._schedule_title()
                self._run_later(self._transcribe(self.record))
            case Failed(_, errors.LeaseLost()):
                self.forget()
            case _:
                pass

    def _apply_title(self) -> str:
        title, self.queued_title = self.queued_title, None
        if title is None or not self.exists:
            return "The title is not set."
        if (stored := self.get_title()) is not None:  # it was given when the session was created
            return f"Session title set: {stored}"
        try:
            self.db.set_session_title(self.session_id, title)
        except errors.InvalidTitle as problem:
            return f"Not titled: {problem}"
        except errors.StoreError as problem:
            self.queued_title = title  # tried again with the next message
            return f"Not titled yet: {problem}"
        return f"Session title set: {title}"

    def _schedule_title(self) -> None:
        if self.parts.make_title is not None and self.exists:
            from hermes.agent.title_generation import make_title_while_young

            self._run_later(make_title_while_young(self.db, self.session_id, self.parts.make_title))

    def _run_later(self, work: Any) -> None:
        self._track(asyncio.create_task(work))

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def stop(self) -> bool:
        """Stop the running turn; whether there was one."""
        if self.turn is not None:
            self.turn.stop()
        return self.turn is not None

    async def compress(self, focus: str | None = None) -> AsyncGenerator[Event, None]:
        """Compress now; the events of it."""
        await self.get_agent()
        if self.compressor is None:
            yield Note("There is no compression here.")
            return
        async for event in self.compressor.compress_by_hand(focus):
            yield event

    # ---------------------------------------------------------------- going back

    async def load_rows(self) -> list[Row]:
        """What is in the context, without marks of other programs."""
        return [row for row in await self.record.context() if row.get("role") != "session_meta"]

    async def load_calls(self) -> list[Call]:
        """The tool calls of the whole conversation: also those before a compression, and those last_turn back."""
        return [item for item in await self.load_outputs() if isinstance(item, Call)]

    async def load_outputs(self) -> list[Call | Reasoning]:
        """The same, and the reasoning between them."""
        rows = await self.load_rows()
        if not self.exists:
            return collect_outputs(rows)
        stored = await asyncio.to_thread(read_tool_rows, self.db, self.session_id)
        return collect_outputs([*stored, *(row for row in rows if "id" not in row)])

    async def take_back(self, message_id: int) -> RewindResult:
        """Go back to before a message of the person."""
        done = await asyncio.to_thread(
            lambda: self.db.rewind_to_message(self.session_id, message_id, lease_epoch=self.epoch)
        )
        return RewindResult(done["rewound_count"], done["target_message"]["content"])

    async def bring_back(self) -> int:
        """Bring back what was taken back last, unless something was said since; how many messages."""
        return await asyncio.to_thread(
            lambda: self.db.restore_last_rewind(self.session_id, lease_epoch=self.epoch)
        )


def _add_counts(before: Counted, event: Counted) -> Counted:
    used = Used._make(_add_optional(left, right) for left, right in zip(before.used, event.used, strict=True))
    if before.cost_usd is None or event.cost_usd is None:  # what nobody knows makes the sum unknown, too
        return Counted(event.model, used, None)
    return Counted(event.model, used, before.cost_usd + event.cost_usd)


def _add_optional(left: Any, right: Any) -> Any:
    """Two counts together; unknown if nobody said either."""
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0)
