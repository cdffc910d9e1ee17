"""Transactions: snapshots for readers, and durable commits through one writing connection."""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import apsw

from hermes import errors
from hermes.logs import get_logger
from hermes.store import derived
from hermes.store.engine import Reader, Unreachable, Writer
from hermes.store.sqlite.connection import DEADLINE_S, SqliteReader, SqliteWriter
from hermes.store.sqlite.connection_set import ConnectionSet
from hermes.store.sqlite.damage_mark import read_damage_mark
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.group_commit import CommitQueue, Ticket, interrupted_writes, writes_at_work
from hermes.store.sqlite.process_fairness import PATIENCE_S
from hermes.store.sqlite.wal import file_guard

if TYPE_CHECKING:
    from hermes.store.sqlite.scope import Owners, ScopedConnection
    from hermes.store.sqlite.shared_transaction import SharedTransaction

log = get_logger(__name__)
T = TypeVar("T")

SETTLE_ROUNDS = 1000
COMMIT = ("COMMIT",)
FILE_PROBLEMS = (apsw.Error, UnicodeDecodeError, Unreachable)
"""Errors of the file, as opposed to errors of the caller."""
MOST_RECOVERIES = 10
AT_FIRST_S = 0.100
"""How long a writer tries to get the write lock by itself, before it joins the queue of processes."""


class Transactions:
    """The reads and writes of one store through its connections. Owns the commit queue."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        synchronous: str = "FULL",
        deadline: float = DEADLINE_S,
        checkpoint_every_n_writes: int = 50,
        write_max_retries: int = 15,
        write_retry_s: tuple[float, float] = (0.020, 0.150),
        recovers: bool = True,
    ) -> None:
        """Open the store.

        Acquiring the write lock is tried up to `write_max_retries` times, because SQLite returns a few busy
        errors without calling the busy handler. If the log was removed, and `recovers` is true, the other
        stores of this process save its content before this store is opened.
        """
        self._checkpoint_every = checkpoint_every_n_writes
        self._max_retries = write_max_retries
        self._retry_s = write_retry_s
        self.writes = self._commits = 0
        self.shared: dict[int, SharedTransaction] = {}
        """By thread: the transaction of the calls that run together."""
        self._at_work = False  # whether the leader's batch has the write lock, or is being undone
        self._is_committing = False
        self._committed: list[object] = []  # not empty once the current batch is committed
        self.queue = CommitQueue(self)
        self.connections = ConnectionSet(
            path, self.queue, read_only=read_only, synchronous=synchronous, deadline=deadline
        )
        if recovers:
            file_guard.recover_log_of(path)
        self.connections.open()

    # ---------------------------------------------------------------- reading

    def read(self) -> AbstractContextManager[Reader]:
        return Snapshot(self)

    def refuse_locked_read(self) -> None:
        """Without a write-ahead log, raise `StoreBusy` if a signal handler reads during a commit that it has
        interrupted.

        With a rollback journal, a commit blocks new readers. The handler would therefore wait for its own
        thread.
        """
        for outer in interrupted_writes(get_ident()):
            owner = None if outer.queue is None else outer.queue.owner
            if self.connections.journal == "wal" or not isinstance(owner, Transactions):
                continue
            if (
                owner.connections.guard is self.connections.guard
                and owner._is_committing
                and owner.queue.is_led_by(outer)
            ):
                raise self._make_nested_error()

    # ---------------------------------------------------------------- writing

    def count_write(self) -> None:
        """Record that one write was committed. After every `checkpoint_every_n_writes` commits, ask for a
        checkpoint.
        """
        self.count_writes(1)

    def count_writes(self, writes: int) -> None:
        """Record that `writes` writes were committed together in one commit. See `count_write`."""
        self.writes += writes
        self._commits += 1
        if self._commits % self._checkpoint_every == 0:
            connections = self.connections
            if connections.journal == "wal":
                connections.checkpointer.ask()
            # Another process may have found damage.
            connections.damage = connections.damage or read_damage_mark(connections.path)

    def sync_log(self) -> None:
        """Wait until all commits that returned before they were on disk are on disk. See `defer_sync`.

        If the write-ahead log was removed since then, its recovery has already stored these commits durably.
        """
        connections = self.connections
        observed = connections.guard.log
        if connections.journal == "wal" and connections.synchronous != "NORMAL" and observed is not None:
            try:
                observed.sync()
            except OSError as problem:
                sentence = f"{connections.path}: the log could not be written to disk: {problem.strerror}"
                raise errors.make_error(errors.StoreFailed, sentence) from problem

    def write_if_free(self, work: Callable[[Writer], T]) -> T:
        """Run a transaction if the write lock is free now. Raise `StoreBusy` otherwise."""
        self.connections.check_writable()
        return cast(T, self.queue.do(Ticket(work, impatient=True)))

    def refresh_derived(self, *, wait: bool) -> None:
        """Bring derived columns up to date. If `wait` is false, do so only if the write lock is free now."""
        if not wait:
            self.queue.do(Ticket(derived.refresh, impatient=True))
            return
        self.connections.check_writable()
        self.queue.do(Ticket(derived.refresh))
        self.count_write()

    def run_alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on the writing connection, outside a transaction, while no other thread writes."""
        connections = self.connections
        connections.check_writable()

        def durably(_: SqliteWriter) -> T:
            connections.ensure_durable()
            connections.defer_sync(False)
            try:
                self._begin_within(connections.deadline)
                connections.connection.execute("ROLLBACK")
                result = work(connections.connection)
                if connections.has_lasted() or connections.restore_log(committed=True):
                    return result
                raise self._make_removed_again_error()
            finally:
                connections.log_lock.release()

        return cast(T, self.queue.do(Ticket(durably, outside=True)))

    def transact(self, batch: list[Ticket]) -> None:
        """Commit the whole batch once. See `group_commit.Owner`."""
        connections = self.connections
        committed = self._committed = []
        self._is_committing = False
        try:
            if batch[0].outside:
                self._at_work = True
                self._run_all(batch)
            else:
                if connections.is_closed:
                    connections.check_usable()
                self._begin(impatient=batch[0].impatient)
                self._at_work = True
                if len(batch) == 1:
                    batch[0].result = batch[0].work(connections.writer)
                else:
                    self._run_all(batch)
                # One step in C, so that no exception of a signal handler can come between the commit and its record.
                self._is_committing = True
                committed.extend(map(connections.connection.execute, COMMIT))
                self._is_committing = False
                if connections.journal == "wal" and not connections.guard.is_log_in_place():
                    committed.clear()  # the commit counts as lost until it is repeated
                    self._write_again(batch)
                    committed.append(None)
                connections.log_lock.release()
            for ticket in batch:
                ticket.finished = True
            self._at_work = False
            committed.clear()  # a live cursor would force a new prepare of the statement at the next commit
        except Exception as problem:
            if committed:
                raise  # raised by a signal handler: `undo` marks the writes of the others as stored
            self.roll_back()
            self._fail(batch, self.translate(problem))
            self._at_work = False

    def begin_shared(self) -> None:
        """Begin a transaction that stays open after this call. The thread leads the commit queue."""
        if self.connections.is_closed:
            self.connections.check_usable()
        self.connections.check_writable()
        self._begin(deferred=True)

    def commit_shared(self) -> None:
        """Commit the transaction of `begin_shared`. Raise an error if its changes are lost."""
        connections = self.connections
        connections.connection.execute("COMMIT")
        if not connections.guard.is_log_in_place() and not connections.restore_log(committed=True):
            raise self._make_removed_again_error()
        connections.log_lock.release()

    def undo(self, batch: list[Ticket]) -> None:
        """Roll back an uncommitted batch. If the batch was committed, mark its tickets as finished."""
        while True:
            try:
                self.connections.await_recovery()
                committed = bool(self._committed) and self.connections.has_lasted()
                self.roll_back()
                break
            except apsw.ThreadingViolationError:  # the interrupted thread is still releasing its cursors
                time.sleep(0.0001)
        for ticket in batch:
            ticket.finished = ticket.finished or committed
        self._committed = []
        self._at_work = False

    def find_way_past(self, ticket: Ticket, interrupted: list[Ticket]) -> Callable[[Ticket], object] | None:
        """Return a function that performs the write of a signal handler. See `group_commit.Owner`.

        The interrupted write may hold the queue, so the handler's write uses a separate store. Raise an error
        if the interrupted write holds the write lock, because the handler's write would wait for it forever.
        """
        owners = [outer.queue.owner for outer in interrupted if outer.queue is not None]
        for outer in interrupted:
            owner = None if outer.queue is None else outer.queue.owner
            if (
                isinstance(owner, Transactions)
                and owner.connections.guard is self.connections.guard
                and owner._has_lock(outer)
            ):
                raise self._make_nested_error()
        if self not in owners:
            return None
        if ticket.outside or ticket.impatient:
            raise self._make_nested_error()
        return self._write_beside

    def _has_lock(self, ticket: Ticket) -> bool:
        return (
            self.queue.is_led_by(ticket)
            and not self._committed
            and (self._at_work or self.connections.connection.in_transaction)
        )

    def _make_nested_error(self) -> errors.HermesError:
        return errors.make_error(
            errors.StoreBusy,
            f"{self.connections.path}: a signal handler interrupted a write of the same thread; nothing was read or"
            " written. Use the store after the handler has returned",
        )

    def _write_beside(self, ticket: Ticket) -> object:
        """Perform the write `ticket` through a separate store, which is opened on the same file for this write
        only."""
        connections = self.connections
        if connections.guard.is_log_removed():  # only the interrupted connection could save the log
            raise self._make_nested_error()
        beside = Transactions(
            connections.path,
            synchronous=connections.synchronous,
            deadline=connections.deadline,
            recovers=False,
        )
        try:
            return beside.queue.do(Ticket(ticket.work, share=ticket.share, repeatable=ticket.repeatable))
        finally:
            beside.connections.close()

    def translate(self, problem: Exception) -> Exception:
        return self.connections.translate_error(problem) if isinstance(problem, FILE_PROBLEMS) else problem

    @staticmethod
    def _fail(batch: list[Ticket], problem: Exception) -> None:
        for ticket in batch:
            ticket.error = ticket.error or problem
            ticket.finished = True

    def _begin(self, *, impatient: bool = False, deferred: bool = False) -> None:
        """Acquire the write lock before the deadline, taking turns with other processes. With `deferred`, the
        commit need not be on disk when it returns."""
        connections = self.connections
        if not connections.is_durable:
            connections.ensure_durable()
        connections.defer_sync(deferred)
        if impatient:
            if connections.writer_queue.is_occupied():
                raise apsw.BusyError("other processes are waiting")
            self._begin_within(0)
            return
        started = time.monotonic()
        until, alone = started + connections.deadline, started + min(AT_FIRST_S, connections.deadline)
        # A process that has waited long goes first. A process joins the queue only after a long wait: if all joined
        # at once, the queue would never be empty, and each handover costs a sleep.
        if connections.writer_queue.wait_until_free(alone):
            try:
                self._begin_within(alone - time.monotonic())
                return
            except apsw.BusyError:
                pass
        try:
            connections.writer_queue.join(min(until, time.monotonic() + PATIENCE_S))
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
            connections.writer_queue.leave()

    def _begin_within(self, seconds: float) -> None:
        connections = self.connections
        for _ in range(MOST_RECOVERIES):
            connections.patience.seconds = seconds
            try:
                # From here until the lock is released, all processes use the same log.
                if connections.log_lock.share() or connections.share_log(seconds):
                    connections.connection.execute("BEGIN IMMEDIATE")
                    if connections.journal != "wal" or connections.guard.is_log_in_place(to_begin=True):
                        return
                    connections.connection.execute("ROLLBACK")
            except (apsw.IOError, apsw.CorruptError, apsw.NotADBError):
                if connections.has_lasted():
                    raise
            finally:
                connections.patience.seconds = connections.deadline
            # The log was removed. The transaction has not read anything yet, so it can start again.
            connections.restore_log()
            connections.ensure_durable()
        raise self._make_removed_again_error()

    def _make_removed_again_error(self) -> errors.HermesError:
        return errors.make_error(
            errors.StoreFailed,
            f"the write-ahead log of {self.connections.path} was removed repeatedly; nothing was written",
        )

    def _run_all(self, batch: list[Ticket]) -> None:
        connections = self.connections
        if len(batch) == 1:
            batch[0].result = batch[0].work(connections.writer)
            return
        for ticket in batch:
            connections.connection.execute("SAVEPOINT follower")
            try:
                ticket.result = ticket.work(connections.writer)
            except Exception as problem:
                if not connections.connection.in_transaction:
                    raise  # SQLite rolled back the whole transaction (for example, a full disk): all writes fail
                connections.connection.execute("ROLLBACK TO follower")
                ticket.error = self.translate(problem)
            connections.connection.execute("RELEASE follower")

    def roll_back(self) -> None:
        connections = self.connections
        connections.await_recovery()
        if not connections.is_closed and connections.connection.in_transaction:
            connections.connection.execute("ROLLBACK")
        connections.log_lock.release()

    def _write_again(self, batch: list[Ticket]) -> None:
        """Recover from a log that was removed during a commit, and repeat the commit if its changes were lost."""
        connections = self.connections
        for _ in range(MOST_RECOVERIES):
            if connections.restore_log(committed=True):
                return
            for ticket in batch:
                if ticket.error is None and not ticket.repeatable:
                    sentence = f"{connections.path} was replaced during a write; the change may be lost"
                    ticket.error = errors.make_error(errors.StoreFailed, sentence)
            self._begin()
            connections.writer.repeating = True
            try:
                self._run_all([ticket for ticket in batch if ticket.error is None])
                connections.connection.execute("COMMIT")
            finally:
                connections.writer.repeating = False
            if connections.has_lasted():
                return
        raise self._make_removed_again_error()


class Snapshot:
    """The context manager of one read: see `Access.read`.

    It is a class, because a generator would make a short read 10 % slower.
    """

    __slots__ = (
        *("_connection", "_generation", "_owners", "_scope"),
        *("_settled", "_transactions", "_wait", "_way"),
    )

    def __init__(
        self,
        transactions: Transactions,
        settled: bool = False,
        wait: bool = True,
        owners: Owners | None = None,
    ) -> None:
        self._transactions = transactions
        self._settled = settled
        self._wait = wait
        self._owners = owners
        self._scope: ScopedConnection | None = None
        self._connection: apsw.Connection | None = None
        self._way: Inside | None = None

    def __enter__(self) -> Reader:
        connections, thread = self._transactions.connections, get_ident()
        if thread in writes_at_work:
            self._transactions.refuse_locked_read()
        try:
            self._way = Inside()
            self._way.enter(thread)
            connections.check_usable()
            if connections.loss is not None:
                connections.check_loss()
            # Check only for a missing log. A read of a cut log fails by itself (see `translate_error`).
            if connections.guard.is_log_missing():
                connections.settle_log(reading=True)
            if self._owners is None:
                connection, self._generation = connections.readers.take(connections.open_reader)
            else:
                self._scope, self._generation = connections.readers.take_scoped(
                    connections.open_scoped_reader
                )
                connection = self._scope.connection
            self._connection = connection
            if connection.in_transaction:  # its last user was interrupted
                connection.execute("ROLLBACK")
            if self._scope is not None and self._owners is not None:
                self._scope.is_for(self._owners)
            reader = SqliteReader(connection, connections.column_names)
            connection.execute("BEGIN")
            if self._settled and not connections.read_only and reader.value(derived.ANY_NOTED) is not None:
                self._settle(connection, reader)
        except BaseException as problem:
            self.__exit__(type(problem), problem, None)
            raise
        return reader

    def _settle(self, connection: apsw.Connection, reader: SqliteReader) -> None:
        """Before a read, bring the derived columns up to date, and then begin a new snapshot that contains their new
        values.

        If this is not possible now, the read continues with the old values.
        """
        for _ in range(SETTLE_ROUNDS):
            connection.execute("COMMIT")
            try:
                self._transactions.refresh_derived(wait=self._wait)
            except errors.StoreError as problem:  # a slightly outdated list is better than an error
                if self._wait:
                    path = self._transactions.connections.path
                    log.warning("%s: changes by other programs are not included yet: %s", path, problem)
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
            except FILE_PROBLEMS as failure:
                problem = failure
            if problem is not None and isinstance(problem, FILE_PROBLEMS):
                raise self._transactions.connections.translate_error(problem) from problem
        finally:
            self._transactions.connections.readers.give_back(connection, self._generation, self._scope)
            self._leave()

    def _leave(self) -> None:
        if self._way is not None:
            self._way.leave()
            self._way = None

    def __del__(self) -> None:
        """End the read and give its connection back, in case a signal handler raised an exception at the beginning of
        `__exit__`.
        """
        if self._way is not None:
            self.__exit__(None, None, None)
