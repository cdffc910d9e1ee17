"""The session of a live conversation: its record under a lease, its title and its messages.

The row of a new session is inserted together with its first message, so a conversation without messages leaves
nothing in the store. A chat of a platform is an exception: its session is stored before its first message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hermes import clock, errors
from hermes.agent.models.model import strip_address
from hermes.agent.transcript import LEASE_S, IncognitoRecord, StoredRecord
from hermes.conversation import working_directory
from hermes.conversation.agents import AgentScope, LiveRecord
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.results import RewindResult
from hermes.conversation.surface import Surface
from hermes.db.store_queue import call_store_early
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore
    from hermes.store.chats.leases import Lease

T = TypeVar("T")
StoreT = TypeVar("StoreT", bound="AnyStore")
Row = dict[str, Any]


class LiveSession(Generic[StoreT]):
    def __init__(
        self, store: StoreT, scope: AgentScope, surface: Surface, models: ModelSelector | None = None
    ) -> None:
        self.store, self.scope, self.surface, self.models = store, scope, surface, models
        self.queued_title: str | None = None
        self.started_at = clock.now()
        self.replaced_by: str | None = None
        """The id of the session that replaced this conversation's deleted session; None if no session was
        replaced."""
        self._open = self._is_elsewhere = self._is_entered = False
        self._left: list[LiveRecord] = []
        self.record = self._make_record()

    @property
    def session_id(self) -> str:
        return self.record.session_id

    @property
    def known_id(self) -> str | None:
        """The id of the session, or None if it is not known yet. In a chat of a platform, the id is known only when
        the session is stored."""
        return self.session_id if self.exists or self.surface.route is None else None

    @property
    def exists(self) -> bool:
        """Whether the session is in the store."""
        return self.record.exists

    @property
    def incognito(self) -> bool:
        return self.surface.incognito

    @property
    def epoch(self) -> int | None:
        """The epoch of the session's lease; None without a lease."""
        return self.record.epoch

    @property
    def cwd(self) -> Path:
        return self.scope.cwd or Path.cwd()

    @property
    def previous_id(self) -> str | None:
        """The id of the session that the person left for this new one. None once the new session is stored."""
        return self.record.previous_id

    def _make_record(
        self, session_id: str | None = None, cwd: Path | None = None, previous_id: str | None = None
    ) -> LiveRecord:
        """Return an object that reads and writes the session `session_id`. If `session_id` is None, it creates a new
        session with its first message.

        If the session is deleted later, the object continues in a new session with the working directory `cwd`.
        `previous_id` is the session that the person left for a new one.
        """
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
            keeps_partial=self.surface.keeps_partial,
            make_id=self.surface.make_id,
            **new,
        )

    async def _replace_session(self) -> str:
        assert self.surface.make_session is not None
        self.replaced_by = await self.surface.make_session()
        return self.replaced_by

    def _set_record(self, record: LiveRecord) -> None:
        self.record = record
        self._begin_record()

    def _begin_record(self) -> None:
        """Reset the state that belongs to the current session, such as a title that waits to be stored."""
        self._open = self._is_elsewhere = False
        self.queued_title, self.started_at = None, clock.now()

    # ---------------------------------------------------------------- the lease

    async def ensure_session(self) -> bool:
        """Return whether the session is stored. In a chat of a platform, store it first if necessary. At a terminal,
        the session is stored with its first message, so the result may be False."""
        if self.surface.route is not None:
            await self.surface.route.open_session()
        return self.exists

    async def enter(self, session_id: str) -> None:
        """Take the lease of the session `session_id` and work in it from now on. Raise `LeaseHeld` if another process
        works in it.
        The lease of the previous session is kept until `close_left` is called, so that work in that session can be
        finished.
        """
        await self._enter_held(await self._hold_session(session_id), session_id)

    async def enter_and_call(
        self, find: Callable[[], str | None], call: Callable[[str, int], T]
    ) -> tuple[str, T] | None:
        """Take the lease of the session whose id `find` returns, and then run `call` with this id and the epoch of the
        lease. Work in that session from now on. Return the id and the result of `call`.

        All of this is one store call. If `find` returns None, or if this conversation already holds the lease of
        another session, return None and change nothing. The caller must then use `enter`.
        """
        record, surface = self.record, self.surface.name

        def work() -> tuple[str, Lease, T] | None:
            session_id = find()
            if session_id is None or (record.lease is not None and record.session_id != session_id):
                return None
            lease = record.lease or self.store.leases.acquire(session_id, surface, LEASE_S)
            try:
                return session_id, lease, call(session_id, lease.epoch)
            except errors.StoreError:
                if record.lease is None:
                    self.store.leases.release(lease)
                raise

        entering = asyncio.ensure_future(call_store_early(work))
        try:
            entered = await asyncio.shield(entering)
        except asyncio.CancelledError:  # the thread still acquires the lease, so release it
            with suppress(errors.StoreError):
                if record.lease is None and (entered := await entering) is not None:
                    await call_store_early(self.store.leases.release, entered[1])
            raise
        if entered is None:
            return None
        session_id, lease, result = entered
        if record.lease is None:
            held = self._find_record(session_id)
            assert isinstance(held, StoredRecord)
            held.adopt_lease(lease)
            await self._enter_held(held, session_id)
        return session_id, result

    def _find_record(self, session_id: str) -> LiveRecord:
        """Return the record for the stored session `session_id`: the current record if it belongs to this session,
        otherwise a new record."""
        is_current = self.exists and self.session_id == session_id
        return self.record if is_current else self._make_record(session_id)

    async def _hold_session(self, session_id: str) -> LiveRecord:
        """Return a record that holds the lease of the session `session_id`. If the lease of the current record is for
        the same conversation, this is the current record."""
        record = self.record
        if record.lease is not None:
            if record.session_id == session_id:
                return record
            root = await call_store_early(self.store.get_conversation_root, session_id)
            if root == record.lease.conversation_id:
                return record
            record = self._make_record(session_id)
        else:
            record = self._find_record(session_id)
        await record.hold()
        return record

    async def _enter_held(self, record: LiveRecord, session_id: str) -> None:
        """Work in the session `session_id` from now on. `record` already holds the lease of the session's
        conversation."""
        self._is_entered = True
        if isinstance(record, StoredRecord) and record.session_id != session_id:
            await record.move(session_id)
        elif record is self.record:
            return
        if record is not self.record:
            self._left.append(self.record)
        self._set_record(record)

    def observe(self, session_id: str | None) -> None:
        """Make `session_id` the current session without taking its lease, for commands that only read. None means that
        no session exists yet. Do nothing if this object has entered a session with `enter`."""
        if not self._is_entered and session_id != (self.session_id if self.exists else None):
            self._set_record(self._make_record(session_id))

    async def check_free(self, session_id: str) -> None:
        """Raise `LeaseHeld` if another process or another surface works in the session."""
        lease = await call_store_early(self.store.leases.find_holder, session_id)
        if lease is not None and lease.holder != (*identify_process(), self.surface.name):
            raise errors.LeaseHeld(f"session {session_id!r} is in use", lease)

    async def close_left(self) -> None:
        """Release the leases of the sessions that were left for another session."""
        while self._left:
            await self._left.pop().close()

    async def leave(self) -> None:
        """Release all leases. `enter` takes a lease again later."""
        self._left.append(self.record)
        self._is_entered = False
        if isinstance(self.record, StoredRecord) and self.exists:
            self.record.forget()
            self._begin_record()
        else:
            self._set_record(self._make_record())
        await self.close_left()

    async def step_aside(self) -> None:
        """Release the lease of the session, so that another program can work in it. `step_back` takes the
        lease again."""
        await self.record.close()

    async def step_back(self) -> None:
        await self.record.hold()

    def forget(self) -> None:
        """Note that this process must not end the session, because another process has taken it over or will continue
        in it."""
        self._open = False

    # ---------------------------------------------------------------- the title

    def get_title(self) -> str | None:
        return self.store.get_session_title(self.session_id) if self.exists else None

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

    # ---------------------------------------------------------------- messages and rewinds

    async def load_rows(self) -> list[Row]:
        """Return the messages of the live context, without rows in which other programs store metadata."""
        return [row for row in await self.record.context() if row.get("role") != "session_meta"]

    async def list_prompts(self, limit: int) -> list[Row]:
        """Return the last messages of the person, newest first, with `id`, `timestamp` and `preview`."""
        if isinstance(self.record, IncognitoRecord):
            return self.record.list_prompts(limit)
        if not self.exists:
            return []
        return await call_store_early(self.store.list_recent_user_messages, self.session_id, limit)

    async def take_back(self, message_id: int) -> RewindResult:
        """Rewind the conversation to the point before the message `message_id`, which the person wrote."""
        if isinstance(self.record, IncognitoRecord):
            taken = self.record.rewind(message_id)
            return RewindResult(len(taken), taken[0]["content"])
        done = await call_store_early(
            lambda: self.store.rewind_to_message(self.session_id, message_id, lease_epoch=self.epoch)
        )
        return RewindResult(done["rewound_count"], done["target_message"]["content"])

    async def bring_back(self) -> int:
        """Undo the last rewind, unless there are newer messages. Return the number of restored messages."""
        if isinstance(self.record, IncognitoRecord):
            return self.record.restore_rewound()
        if not self.exists:
            return 0
        return await call_store_early(
            lambda: self.store.restore_last_rewind(self.session_id, lease_epoch=self.epoch)
        )
