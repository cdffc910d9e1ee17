"""Moves of a live conversation to another session: a new start, its undo, resume and branch.
In a chat of a platform, one transaction changes the route of the chat and ends or reopens the sessions. It runs under
the lease of the target session. The lease of the old session is kept until the message that caused the move is
processed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes import errors
from hermes.agent.components import LEAST_SAID
from hermes.agent.transcript import IncognitoRecord
from hermes.conversation import working_directory
from hermes.conversation.agents import LiveRecord, PreparedAgent
from hermes.conversation.live_session import Row, StoreT
from hermes.conversation.session_agent import SessionAgent
from hermes.db.store_queue import call_store

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore


class SessionMoves(SessionAgent[StoreT]):
    async def begin(self, title: str | None = None) -> None:
        """Leave the current session for a new one. The agent first saves facts from the old session to memory.

        At a terminal, the agent saves them in the background, and the new session is stored together with its first
        message.
        """
        if self.surface.route is not None or self.surface.is_per_request:
            await self.save()
            await self.start_afresh("session_reset", title)
            return
        if self.incognito:
            await self._leave_in_memory(self._make_record())
            return
        previous_id = self.session_id if self.exists else self.previous_id
        self._end_later("new_session", save=True)
        self._set_record(self._make_record(previous_id=previous_id))
        self.queued_title = title

    async def _leave_in_memory(self, record: LiveRecord) -> None:
        """Switch to the incognito conversation `record`. The current one is kept in memory until the program
        ends, unless it is empty."""
        left = self.record
        if await left.context():
            self._in_memory[left.session_id] = left
        self._set_record(record)

    def list_in_memory(self) -> list[str]:
        """Return the ids of the incognito conversations that were left, in the order in which they were
        left."""
        return [session_id for session_id in self._in_memory if session_id != self.session_id]

    async def return_in_memory(self, session_id: str) -> None:
        """Return to the incognito conversation `session_id`, which the person left earlier."""
        await self._leave_in_memory(self._in_memory.pop(session_id))

    async def start_afresh(self, reason: str, title: str | None = None) -> str:
        """End the session and continue in a new one that is linked to it. Return the new session's id."""
        old, epoch, key = self.session_id, self.epoch, self._get_session_key()
        child = await call_store(
            lambda: self.store.reset(old, reason=reason, lease_epoch=epoch, session_key=key, title=title)
        )
        await self._enter_child(child)
        return child

    async def undo_start(self) -> list[str] | None:
        """Return to the session that the person left by starting a new one, if no message was written in the new one.
        Return notes for the person.

        Return None if there is no new start to undo. Raise `LeaseHeld` if another process works in the previous
        session.
        """
        if self.incognito:
            left = self.list_in_memory()
            if not left or await self.record.context():
                return None
            await self.return_in_memory(left[-1])
            return []
        if not self.exists:
            previous = self.previous_id
            if previous is None:
                return None
            return await self.switch_to(await call_store(self.store.get_compression_tip, previous))
        undone, epoch = self.session_id, self.epoch
        row = await call_store(self.store.get_session, undone)
        if row is None or row["relation"] != "reset" or row["parent_session_id"] is None:
            return None
        previous = await call_store(self.store.get_compression_tip, row["parent_session_id"])
        try:
            await self._move(previous, lambda: self.store.undo_reset(undone, lease_epoch=epoch))
        except errors.InvalidArgument:
            return None
        return []

    async def switch_to(
        self, session_id: str, *, asked_cwd: Path | None = None, take_over: bool = False, reopen: bool = True
    ) -> list[str]:
        """Continue in the session `session_id`. Return notes for the person. Raises `LeaseHeld` if another
        process works in that session.

        `asked_cwd` is the working directory that the person asked for. `take_over` takes the lease away from another
        process. If `reopen` is False, an ended session is reopened with the next message, not now. All three apply
        only to terminals.
        """
        row = await call_store(self.store.get_session, session_id)
        if row is None:
            raise _build_unknown(session_id)
        if self.surface.route is not None:
            await self._switch_chat(session_id)
            return []
        if self.surface.is_per_request:
            await self.enter(session_id)
            await self.close_left()
            return []
        where = working_directory.choose_directory(row["cwd"], asked_cwd, self.cwd)
        record = self._make_record(session_id, where.cwd)
        await self._background.end_session_now(session_id)
        unwritable = await self._hold(record, take_over)
        self._end_later("resumed_other")
        self._set_record(record)
        self.scope = self.scope._replace(cwd=where.cwd)
        self._is_elsewhere = str(where.cwd) != row["cwd"]
        if reopen:
            await call_store(self._reopen)
            self._open = True
        if self.models is not None:
            self.models.restore(row)
        return [line for line in (where.note, unwritable) if line]

    async def _switch_chat(self, session_id: str) -> None:
        await self.ensure_session()
        key, epoch, store = self._get_session_key(), self.epoch, cast("ScopedStore", self.store)
        assert key is not None

        def switch() -> str:
            route = store.switch_session(key, session_id, lease_epoch=epoch)
            if route is None:
                raise _build_unknown(session_id)
            return route.session_id

        await self._move(session_id, switch)

    async def _move(self, session_id: str, change: Callable[[], str]) -> None:
        """Take the lease of the session `session_id`, run `change`, which changes the store, and work in the session
        whose id `change` returns.

        If another process holds the lease, or if `change` fails, nothing changes.
        """
        had_lease = self.record.lease is not None
        record = await self._hold_session(session_id)
        try:
            live = await call_store(change)
        except BaseException:
            if record is not self.record or not had_lease:
                await record.close()
            raise
        await self._enter_held(record, live)
        self._open = True
        await self._follow(live)

    async def _hold(self, record: LiveRecord, take_over: bool) -> str | None:
        """Take the lease of the session of `record` and return None. If the store cannot be written, return a message
        for the person instead of raising an error, because the session can still be read. With `take_over`, take the
        lease away from another process."""
        try:
            await record.hold(take_over=take_over)
        except errors.LeaseHeld:
            raise
        except errors.StoreError as problem:
            if await call_store(self.store.leases.find_holder, record.session_id) is not None:
                raise  # another process may work in it
            return f"The store cannot be written now: {problem}"
        return None

    async def branch(self, title: str | None = None) -> str:
        """Continue in a branch: a new session with the same context. Return its id. The messages are not copied."""
        if isinstance(self.record, IncognitoRecord):
            await self._leave_in_memory(self.record.copy())
            return self.session_id
        old, epoch, key = self.session_id, self.epoch, self._get_session_key()
        child = await call_store(
            lambda: self.store.branch(old, lease_epoch=epoch, session_key=key, title=title)
        )
        await self._enter_child(child)
        return child

    async def branch_off(self, session_id: str) -> str:
        """Continue in a branch of the session `session_id`. Another process continues to work in that session. Return
        the id of the branch."""
        child = await call_store(lambda: self.store.branch(session_id, end_parent=False))
        record = self._make_record(child)
        await record.hold()
        self._end_later("resumed_other")
        self._set_record(record)
        self._open = True
        return child

    async def _enter_child(self, child: str) -> None:
        """Work in `child`, a child of the current session. The current session has already ended in the
        store."""
        await self.enter(child)
        self._open = True
        await self._follow(child)

    async def _follow(self, session_id: str) -> None:
        """Finish a move to the session `session_id`. In a chat of a platform, call `handle_move` of its route. On other
        surfaces, release the leases of the sessions that were left."""
        if self.surface.route is not None:
            await self.surface.route.handle_move(session_id)
        else:
            await self.close_left()

    def _get_session_key(self) -> str | None:
        return None if self.surface.route is None else self.surface.route.session_key

    # ---------------------------------------------------------------- the end of a session

    async def leave_trashed(self) -> str | None:
        """If the current session was deleted or moved to the trash, begin a new one and return the id of the old one.
        Otherwise return None."""
        record, old = self.record, self.session_id
        if not record.exists or await call_store(self.store.get_session, old) is not None:
            return None
        await record.close()
        self._set_record(self._make_record())
        return old

    def _reopen(self) -> None:
        """Reopen the current session if it was ended, for example when another process left it."""
        with suppress(errors.StoreError):  # storing the message reports the same error
            session: Row | None = self.store.get_session(self.session_id) if self.exists else None
            if session is not None and session["ended_at"] is not None:
                self.store.reopen_session(self.session_id)

    def _end_later(self, reason: str, *, save: bool = False) -> None:
        """End the current session and release its lease, in the background. With `save`, the agent saves facts to
        memory first."""
        saving = self._prepared if save and self._open else None
        ending = self._end(self.record, reason if self._open else None, saving)
        self._background.start(ending, self.record)

    async def _end(self, record: LiveRecord, reason: str | None, saving: PreparedAgent | None) -> None:
        try:
            if saving is not None:
                await self._save(saving, LEAST_SAID)
        finally:
            if reason is not None and record.exists:
                with suppress(errors.StoreError):
                    await call_store(self.store.end_session, record.session_id, reason)
            await self._transcribe(record)
            await record.close()


def _build_unknown(session_id: str) -> errors.HermesError:
    return errors.make_error(errors.UnknownSession, f"Session not found: {session_id}")
