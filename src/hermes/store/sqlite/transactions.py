"""One writing connection, a few reading ones, and the promise that what is acknowledged lasts."""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw

from hermes import errors
from hermes.logs import get_logger
from hermes.store import derived
from hermes.store.engine import Reader, Unreachable, Writer
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter
from hermes.store.sqlite.connection_set import SqliteConnections
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.group_commit import CommitQueue, Ticket, interrupted_writes, writes_at_work
from hermes.store.sqlite.opener import marked_damage
from hermes.store.sqlite.process_fairness import PATIENCE_S

if TYPE_CHECKING:
    from hermes.store.sqlite.scope import Owners, ScopedConnection

log = get_logger(__name__)
T = TypeVar("T")

SETTLE_ROUNDS = 1000
COMMIT = ("COMMIT",)
TOLD_AS_OURS = (apsw.Error, UnicodeDecodeError, Unreachable)
"""What is wrong with the file, and not with what was asked of it."""
MOST_RECOVERIES = 10
AT_FIRST_S = 0.100
"""How long a writer tries on its own before it stands in line."""


class SqliteCore(SqliteConnections):
    """Snapshots and transactions; `SqliteEngine` puts search and upkeep on top."""

    def __init__(self, path: Path, **figures: Any) -> None:
        self._queue = CommitQueue(self)
        self._at_work = False  # whether the leader's batch has the lock, or is being undone
        self._is_committing = False
        self._committed: list[object] = []  # holds something once the batch under way is committed
        super().__init__(path, **figures)

    # ---------------------------------------------------------------- reading

    def read(
        self, *, settled: bool = False, wait: bool = True, owners: Owners | None = None
    ) -> AbstractContextManager[Reader]:
        return _Snapshot(self, settled, wait, owners)

    def _refuse_locked_read(self) -> None:
        """Without a log nobody reads while a commit waits for other readers: a handler would wait for itself."""
        for outer in interrupted_writes(get_ident()):
            owner = None if outer.queue is None else outer.queue.owner
            if self._journal == "wal" or not isinstance(owner, SqliteCore):
                continue
            if owner._guard is self._guard and owner._is_committing and owner._queue.is_led_by(outer):
                raise self._refused_nested()

    # ---------------------------------------------------------------- writing

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        self._writable()
        result: T = self._queue.do(Ticket(work, share=share, repeatable=repeatable))
        self._writes += 1
        if self._writes % self._checkpoint_every == 0:
            if self._journal == "wal":
                self._checkpointer.ask()
            self._damage = self._damage or marked_damage(self.path)  # another process may have seen some
        return result

    def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with the writing connection that no transaction allows, while nobody else writes."""
        self._writable()

        def durably(_: SqliteWriter) -> T:
            self._ensure_durable()
            try:
                self._begin_within(self._deadline)
                self._connection.execute("ROLLBACK")
                result = work(self._connection)
                if self._lasted() or self._restore_log(committed=True):
                    return result
                raise self._removed_again()
            finally:
                self._log_lock.release()

        return cast(T, self._queue.do(Ticket(durably, outside=True)))

    def transact(self, batch: list[Ticket]) -> None:
        """One commit for the whole batch; see `commit.Owner`."""
        committed = self._committed = []
        self._is_committing = False
        try:
            if batch[0].outside:
                self._at_work = True
                self._run_all(batch)
            else:
                if self._closed:
                    self._usable()
                self._begin(impatient=batch[0].impatient)
                self._at_work = True
                if len(batch) == 1:
                    batch[0].result = batch[0].work(self._writer)
                else:
                    self._run_all(batch)
                # In one step of C, so that no exception of a signal handler comes between the commit and its note.
                self._is_committing = True
                committed.extend(map(self._connection.execute, COMMIT))
                self._is_committing = False
                if self._journal == "wal" and not self._guard.log_in_place():
                    committed.clear()  # it is as if it had never been, until it is written again
                    self._write_again(batch)
                    committed.append(None)
                self._log_lock.release()
            for ticket in batch:
                ticket.finished = True
            self._at_work = False
            committed.clear()  # while the cursor lives, its statement must be prepared anew for the next commit
        except Exception as problem:
            if committed:
                raise  # from a signal handler: `undo` tells the others that their writes are stored
            self._roll_back()
            self._fail(batch, self._told(problem) if isinstance(problem, TOLD_AS_OURS) else problem)
            self._at_work = False

    def undo(self, batch: list[Ticket]) -> None:
        """Before the commit it is as if nothing had been asked; after it the followers have theirs."""
        while True:
            try:
                self._await_recovery()
                committed = bool(self._committed) and self._lasted()
                self._roll_back()
                break
            except apsw.ThreadingViolationError:  # the interrupted thread still lets go of its cursors
                time.sleep(0.0001)
        for ticket in batch:
            ticket.finished = ticket.finished or committed
        self._committed = []
        self._at_work = False

    def find_way_past(self, ticket: Ticket, interrupted: list[Ticket]) -> Callable[[Ticket], object] | None:
        """A write of a signal handler. The queue may be held by the frame it interrupts, so it takes another way into
        the file, unless that frame holds the lock on it."""
        owners = [outer.queue.owner for outer in interrupted if outer.queue is not None]
        for outer in interrupted:
            owner = None if outer.queue is None else outer.queue.owner
            if isinstance(owner, SqliteCore) and owner._guard is self._guard and owner._holds_lock(outer):
                raise self._refused_nested()
        if self not in owners:
            return None
        if ticket.outside or ticket.impatient:
            raise self._refused_nested()
        return self._write_beside

    def _holds_lock(self, ticket: Ticket) -> bool:
        return (
            self._queue.is_led_by(ticket)
            and not self._committed
            and (self._at_work or self._connection.in_transaction)
        )

    def _refused_nested(self) -> errors.HermesError:
        return errors.make_error(
            errors.StoreBusy,
            f"{self.path}: a signal handler interrupted a write of the same thread; nothing was read or written."
            " Use the store after the handler has returned",
        )

    def _write_beside(self, ticket: Ticket) -> object:
        """By a store of its own, for this one write."""
        if self._guard.log_was_removed():  # which is saved through the connection of the interrupted frame
            raise self._refused_nested()
        beside = SqliteCore(self.path, synchronous=self._synchronous, deadline=self._deadline, recovers=False)
        try:
            return beside._queue.do(Ticket(ticket.work, share=ticket.share, repeatable=ticket.repeatable))
        finally:
            beside.close()

    @staticmethod
    def _fail(batch: list[Ticket], problem: Exception) -> None:
        for ticket in batch:
            ticket.error = ticket.error or problem
            ticket.finished = True

    def _begin(self, *, impatient: bool = False) -> None:
        """Take the write lock, in turn with other processes, before the deadline."""
        if not self._durable:
            self._ensure_durable()
        if impatient:
            if self._turnstile.occupied():
                raise apsw.BusyError("others are waiting")
            self._begin_within(0)
            return
        started = time.monotonic()
        until, alone = started + self._deadline, started + min(AT_FIRST_S, self._deadline)
        # Somebody who has waited long goes first. Only who has waited as long joins the line: a line that everybody
        # stood in would never end, and each handing-over costs a nap.
        if self._turnstile.clears_before(alone):
            try:
                self._begin_within(alone - time.monotonic())
                return
            except apsw.BusyError:
                pass
        try:
            self._turnstile.enter(min(until, time.monotonic() + PATIENCE_S))
            for attempt in range(1, self._max_retries + 1):
                try:
                    self._begin_within(until - time.monotonic())
                    return
                except apsw.BusyError:
                    if attempt == self._max_retries or time.monotonic() >= until:
                        raise
                least, most = self._retry_s
                time.sleep(least + (most - least) * os.urandom(1)[0] / 255)
        finally:
            self._turnstile.leave()

    def _begin_within(self, seconds: float) -> None:
        for _ in range(MOST_RECOVERIES):
            self._patience.seconds = seconds
            try:
                # From here on the log stays the one that others use, until the lock is released.
                if self._log_lock.share() or self._share_log(seconds):
                    self._connection.execute("BEGIN IMMEDIATE")
                    if self._journal != "wal" or self._guard.log_in_place(to_begin=True):
                        return
                    self._connection.execute("ROLLBACK")
            except (apsw.IOError, apsw.CorruptError, apsw.NotADBError):
                if self._lasted():
                    raise
            finally:
                self._patience.seconds = self._deadline
            # The log was removed. Nothing was read through the connection that this transaction could be based on.
            self._restore_log()
            self._ensure_durable()
        raise self._removed_again()

    def _removed_again(self) -> errors.HermesError:
        return errors.make_error(
            errors.StoreFailed,
            f"the write-ahead log of {self.path} was removed again and again; nothing was written",
        )

    def _run_all(self, batch: list[Ticket]) -> None:
        if len(batch) == 1:
            batch[0].result = batch[0].work(self._writer)
            return
        for ticket in batch:
            self._connection.execute("SAVEPOINT one")
            try:
                ticket.result = ticket.work(self._writer)
            except Exception as problem:
                if not self._connection.in_transaction:
                    raise  # SQLite gave the whole transaction up (a full disk, a failing one): all fail with it
                self._connection.execute("ROLLBACK TO one")
                ticket.error = self._told(problem) if isinstance(problem, TOLD_AS_OURS) else problem
            self._connection.execute("RELEASE one")

    def _roll_back(self) -> None:
        self._await_recovery()
        if not self._closed and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._log_lock.release()

    def _write_again(self, batch: list[Ticket]) -> None:
        """The log was removed during a commit: write its changes again if they are neither in the file nor in the log
        that is in its place."""
        for _ in range(MOST_RECOVERIES):
            if self._restore_log(committed=True):
                return
            for ticket in batch:
                if ticket.error is None and not ticket.repeatable:
                    told = f"{self.path} was replaced under the store; the change may not have lasted"
                    ticket.error = errors.make_error(errors.StoreFailed, told)
            self._begin()
            self._writer.repeating = True
            try:
                self._run_all([ticket for ticket in batch if ticket.error is None])
                self._connection.execute("COMMIT")
            finally:
                self._writer.repeating = False
            if self._lasted():
                return
        raise self._removed_again()


class _Snapshot:
    """One read: `with store.read() as reader`. A class, because a generator costs a tenth of a short read."""

    __slots__ = ("_connection", "_generation", "_owners", "_scope", "_settled", "_store", "_wait", "_way")

    def __init__(self, store: SqliteCore, settled: bool, wait: bool, owners: Owners | None) -> None:
        self._store = store
        self._settled = settled
        self._wait = wait
        self._owners = owners
        self._scope: ScopedConnection | None = None
        self._connection: apsw.Connection | None = None
        self._way: Inside | None = None

    def __enter__(self) -> Reader:
        store, thread = self._store, get_ident()
        if thread in writes_at_work:
            store._refuse_locked_read()
        try:
            self._way = Inside()
            self._way.enter(thread)
            store._usable()
            if store._loss is not None:
                store._check_loss()
            if store._guard.log_is_missing():  # of a log that was cut, a read fails: see `_told`
                store.settle_log(reading=True)
            if self._owners is None:
                connection, self._generation = store.readers.take(store._new_plain)
            else:
                self._scope, self._generation = store.readers.take_scoped(store._new_scoped)
                connection = self._scope.connection
            self._connection = connection
            if connection.in_transaction:  # its last user was interrupted
                connection.execute("ROLLBACK")
            if self._scope is not None and self._owners is not None:
                self._scope.is_for(self._owners)
            reader = SqliteReader(connection, store._names)
            connection.execute("BEGIN")
            if self._settled and not store.read_only and reader.value(derived.ANY_NOTED) is not None:
                self._settle(connection, reader)
        except BaseException as problem:
            self.__exit__(type(problem), problem, None)
            raise
        return reader

    def _settle(self, connection: apsw.Connection, reader: SqliteReader) -> None:
        """Bring derived columns up to date, and begin the snapshot anew after that."""
        for _ in range(SETTLE_ROUNDS):
            connection.execute("COMMIT")
            try:
                if self._wait:
                    self._store.write(derived.refresh, share=False)
                else:
                    self._store._queue.do(Ticket(derived.refresh, impatient=True))
            except errors.StoreError as problem:  # a list a little out of date is better than none
                if self._wait:
                    path = self._store.path
                    log.warning("%s: changes by other programs are not taken in yet: %s", path, problem)
                connection.execute("BEGIN")
                return
            connection.execute("BEGIN")
            if reader.value(derived.ANY_NOTED) is None:
                return

    def __exit__(self, _: object, problem: BaseException | None, trace: object) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            self._leave()
            return
        try:
            try:
                if connection.in_transaction:
                    connection.execute("COMMIT")
            except TOLD_AS_OURS as failure:
                problem = failure
            if problem is not None and isinstance(problem, TOLD_AS_OURS):
                raise self._store._told(problem) from problem
        finally:
            self._store.readers.give_back(connection, self._generation, self._scope)
            self._leave()

    def _leave(self) -> None:
        if self._way is not None:
            self._way.leave()
            self._way = None

    def __del__(self) -> None:
        """A signal handler may raise as `__exit__` begins."""
        if self._way is not None:
            self.__exit__(None, None, None)
