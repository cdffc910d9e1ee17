"""The connections of one store: opening, use, reopening after the log was removed, and closing.

The log is SQLite's write-ahead log, `<store>-wal`. It counts as removed if another program deleted or
replaced it while the store is open here.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import apsw

from hermes import errors
from hermes.logs import get_logger
from hermes.store.engine import Unreachable
from hermes.store.sqlite.checkpoint import Checkpointer
from hermes.store.sqlite.connection import (
    Patience,
    SqliteWriter,
    connect,
    connect_read_only,
    damage_error,
    descriptor_error,
    is_lack_of_room,
    run,
    translate_error,
    upkeep_command,
)
from hermes.store.sqlite.damage_mark import mark_damaged
from hermes.store.sqlite.group_commit import CommitQueue, Ticket, interrupted_writes, is_main_thread
from hermes.store.sqlite.migrations import check_documented_version
from hermes.store.sqlite.opener import make_durable, open_database, take_log_away
from hermes.store.sqlite.process_fairness import WriterQueue
from hermes.store.sqlite.reader_pool import ReaderPool
from hermes.store.sqlite.wal import file_guard, log_recovery
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS
from hermes.store.sqlite.wal.log_lock import NAP_S, LogLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes.store.sqlite.raw import RawConnection
    from hermes.store.sqlite.scope import ScopedConnection

log = get_logger(__name__)

LARGE_CACHE = "PRAGMA cache_size=-8000"
"""A page cache of 8 MB.

Ranking looks up the length of every matching text. SQLite's default of 2 MB is too small for that: each search
would read most pages from the file again.
"""
UNREADABLE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError)
EXIT_S, EXIT_NAP_S = 2.0, 0.001
"""How long program exit waits for a write of another thread.

A removed log can be saved only after that write. The second value is the pause between checks.
"""
FOR_READING = "; ".join(("PRAGMA query_only=ON", LARGE_CACHE))


class ConnectionSet:
    """Opens, lends and closes the connections of one store, and reopens them after its log was removed.

    The constructor opens nothing. After `open`, other stores of this process may block the commit queue of
    this store, to recover a removed log.
    """

    connection: apsw.Connection
    """The writing connection. In a read-only store it is a reading connection."""
    guard: file_guard.Guard
    journal: str
    """How SQLite makes changes atomic: `wal` (a write-ahead log) or `delete` (a rollback journal)."""
    log_lock: LogLock
    checkpointer: Checkpointer
    writer: SqliteWriter
    is_durable = False
    """Whether the writing connection is configured for durable commits."""
    _is_sync_deferred = False  # whether a commit returns before the log is on disk

    def __init__(
        self, path: Path, queue: CommitQueue, *, read_only: bool, synchronous: str, deadline: float
    ) -> None:
        self.is_closed = True
        self._why_closed = ""
        self.queue = queue
        self.loss: errors.HermesError | None = None  # acknowledged changes that cannot be saved
        self.path = path
        self.read_only = read_only
        self.synchronous = synchronous
        self.deadline = deadline
        self.patience = Patience(deadline)
        self.writer_queue = WriterQueue(path)
        self.column_names: dict[str, tuple[str, ...]] = {}
        self.readers = ReaderPool(path, deadline)
        self.raw_connections: list[RawConnection] = []
        self.damage: errors.HermesError | None = None
        self.pid = os.getpid()
        self.is_stopped = False  # True while another store of this process recovers the log
        self._recovery: LockType | None = None  # held by the thread that recovers the log for the main thread
        self._has_recovered = False

    def open(self, lock: LogLock | None = None) -> None:
        self._found_log = os.path.exists(f"{self.path}-wal")
        opened = open_database(self.path, read_only=self.read_only, deadline=self.deadline, lock=lock)
        self.connection, self.guard, self.journal = opened
        self.is_durable = False
        self.guard.stores.add(self)
        self.log_lock = LogLock(self.guard, has_log=self.journal == "wal")
        if self.journal == "wal" and not self.read_only:
            with suppress(OSError):
                LogLock(self.guard).close()  # reserves a descriptor for saving a removed log
        self.checkpointer = Checkpointer(self.path, self.guard)
        if self.read_only:
            self.readers.add(self.connection)
        else:
            self.connection.set_busy_handler(self.patience)
        self.writer = SqliteWriter(self.connection, self.column_names)
        self.is_closed = False

    # ---------------------------------------------------------------- connections

    def open_reader(self) -> apsw.Connection:
        return self._new_reader(FOR_READING)

    def open_scoped_reader(self) -> ScopedConnection:
        from hermes.store.sqlite.scope import ScopedConnection

        # Not `query_only`, which would also forbid changing the scope. In a rollback-journal store, a read-only
        # connection could not roll back a transaction that a crash left unfinished.
        try:
            if self.journal == "wal" and not self.read_only:
                connection = connect(self.path, read_only=True)
                self._prepare(connection, LARGE_CACHE)
            else:
                connection = self._new_reader(LARGE_CACHE)
            return ScopedConnection(connection)
        except apsw.Error as problem:
            raise self.translate_error(problem) from problem

    def _new_reader(self, prepare: LiteralString) -> apsw.Connection:
        try:
            connection = connect_read_only(self.path) if self.read_only else connect(self.path)
            self._prepare(connection, prepare)
            return connection
        except apsw.Error as problem:
            raise self.translate_error(problem) from problem

    def _prepare(self, connection: apsw.Connection, how: LiteralString) -> None:
        """Check the schema version of the store through a new connection, then run the statements `how` on it. They
        set the pragmas of the connection. After an error, close the connection.
        """
        try:
            check_documented_version(connection, self.path)
            run(connection, how)
        except BaseException:
            connection.close(True)
            raise

    def ensure_durable(self) -> None:
        """Configure the writing connection for durable commits before the first write. Reads do not need it."""
        if not self.is_durable:
            make_durable(self.path, self.connection, self.synchronous)
            self.is_durable, self._is_sync_deferred = True, False

    def defer_sync(self, deferred: bool) -> None:
        """Set whether the next commits may return before they are on disk.

        A store with a rollback journal ignores this; its commits always wait for the disk.
        """
        if deferred != self._is_sync_deferred and self.journal == "wal" and self.synchronous != "NORMAL":
            run(self.connection, "PRAGMA synchronous=NORMAL" if deferred else "PRAGMA synchronous=FULL")
            self._is_sync_deferred = deferred

    def share_log(self, seconds: float) -> bool:
        """Acquire the log lock of this store in shared mode. Wait at most `seconds`, then raise `apsw.BusyError`.

        A process that opens the store or saves a removed log holds the log lock exclusively. Return False if this
        process itself is recovering the log at the moment, because waiting would then be of no use.
        """
        until = time.monotonic() + seconds
        while not self.log_lock.share():
            if self.guard.recovering is not None:
                return False
            if time.monotonic() >= until:
                raise apsw.BusyError("another program is opening the store or saving its write-ahead log")
            time.sleep(NAP_S)
        return True

    def has_lasted(self) -> bool:
        """Return whether the log that holds the last commit is still the log that other processes read.

        The result is always True for a store with a rollback journal.
        """
        return self.journal != "wal" or self.guard.is_log_in_place()

    # ---------------------------------------------------------------- a removed log; see `log_recovery`

    def settle_log(self, *, reading: bool = False) -> None:
        """If the write-ahead log was removed, copy its content into the database file and continue with a new log.

        If the content cannot be copied now, raise an error. The exception is a call before a read (`reading`): it
        returns without an error if all other processes still read the same data as the connections of this store.
        """
        self.check_loss()

        def settle(_: object) -> None:
            if not self.is_closed and self.guard.is_log_removed():
                if reading and self.read_only and log_recovery.is_readable(self.guard):
                    return
                self.restore_log(wait=log_recovery.STOP_FOR_READ_S if reading else log_recovery.STOP_S)

        try:
            self.queue.do(Ticket(settle, outside=True))
        except errors.StoreError:
            self.check_loss()
            if not reading or self.is_closed or not log_recovery.is_readable(self.guard):
                raise

    def check_loss(self) -> None:
        """Raise an error if acknowledged changes of this store were lost, that is, if `self.loss` is set.

        The raised error is a new object with the message of `self.loss`. Raising the same object again would
        accumulate tracebacks.
        """
        if self.loss is not None:
            raise errors.make_error(errors.StoreFailed, str(self.loss))

    def restore_log(self, *, committed: bool = False, wait: float = log_recovery.STOP_S) -> bool:
        """Recover the content of the removed write-ahead log, for all stores of this process on the same file.

        `committed` means that the log was removed during a commit. Return False if the changes of that commit are
        lost, so that the caller has to repeat them. `wait` limits how long the recovery waits for other threads and
        processes, in seconds.
        """
        self.log_lock.release()
        if self.guard.is_store_exchanged():
            self.damage = errors.make_error(
                errors.StoreFailed,
                f"{self.path} was moved, deleted or replaced while it was open here; the last change may be lost."
                " Close this SessionDB and open the store again at its new place",
            )
            raise self.damage
        self._has_recovered = True
        try:
            return self._do_beside_signals(
                lambda: log_recovery.restore_log(self, committed=committed, wait=wait)
            )
        except OSError as problem:
            if problem.errno not in NO_DESCRIPTORS:
                raise
            raise descriptor_error(self.path) from problem

    def _do_beside_signals(self, work: Callable[[], bool]) -> bool:
        """Run `work` and return its result. If this is the main thread, run it in another thread and wait for
        it.

        In the main thread a signal handler may raise at any point, for example after connections were closed
        and before they are open again.
        """
        if not is_main_thread():
            return work()
        outcome: list[bool | BaseException] = []
        over = allocate_lock()
        over.acquire()

        def do() -> None:
            try:
                outcome.append(work())
            except BaseException as problem:  # noqa: BLE001 - raised in the waiting thread
                outcome.append(problem)
            finally:
                over.release()

        self._recovery = over
        try:
            start_new_thread(do, ())
        except RuntimeError:  # no more threads can be started
            do()
        self.await_recovery()
        result = outcome[0]
        if isinstance(result, BaseException):
            raise result
        return result

    def await_recovery(self) -> None:
        """If a signal handler interrupted the main thread while another thread recovered the removed log for it, wait
        until that recovery has ended.
        """
        over = self._recovery
        if over is not None:
            with over:
                self._recovery = None

    def renew_checkpointer(self) -> None:
        """If the checkpointer of this store was stopped, start a new one. After `open` this is not needed, because
        `open` creates one.
        """
        if not self.is_closed and self.checkpointer.is_stopped:
            self.checkpointer = Checkpointer(self.path, self.guard)

    def stop_reads(self, until: float) -> bool:
        """Wait until the running reads of this store have ended, but not beyond the time `until`. New reads are
        blocked until the caller calls `self.readers.release()`. Return whether all reads have ended.
        """
        return self.readers.hold(until) and all(side.is_idle(until) for side in [*self.raw_connections])

    def checkpoint_all(self, seconds: float) -> tuple[int, int, int]:
        """Copy the whole write-ahead log into the database file, and empty the log. Wait at most `seconds` for other
        connections.

        Return SQLite's busy flag (0 if the checkpoint was complete), the number of frames in the log, and how many of
        them were copied.
        """
        self.patience.seconds = seconds
        try:
            busy, frames, moved = run(self.connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
        finally:
            self.patience.seconds = self.deadline
        return busy, frames, moved

    def leave_log_alone(self, alone: bool) -> None:
        """Set what SQLite does with the write-ahead log when the connections of this store are closed.

        If `alone` is true, closing them leaves the log and the database file unchanged. If it is false, closing the
        last connection copies the log into the database file and removes the log.
        """
        for connection in (
            *self.readers.get_idle(),
            *(side.connection for side in self.raw_connections),
            self.connection,
        ):
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(alone))

    def stop_for_good(self, problem: errors.HermesError) -> None:
        self.damage = self.loss = problem

    def close_connections(self) -> None:
        sides = [*self.raw_connections]
        self._close_all()
        self.raw_connections.extend(sides)  # they open again at their next use

    def reopen(self, lock: LogLock | None) -> None:
        try:
            self.open(lock)
        except BaseException as problem:
            self.is_closed = True
            self._why_closed = f": it could not be opened again after its log was removed ({problem})"
            raise

    # ---------------------------------------------------------------- closing and checks

    def close(self) -> None:
        if self.is_closed:
            return
        if os.getpid() != self.pid:
            self._abandon()
            return
        if any(outer.queue is self.queue for outer in interrupted_writes(get_ident())):
            self._close_later()
        else:
            self._close_now()

    def _close_now(self) -> None:
        self.checkpointer.stop()  # outside the queue: it may wait for a fork, which waits for the queue
        # In the queue, so that a commit in progress ends first.
        self.queue.do(Ticket(lambda _: self._shut(), outside=True))

    def _close_later(self) -> None:
        """Close the store in another thread, because the caller is a signal handler that has interrupted a write of
        this store. The other thread waits until this write has ended.
        """
        try:
            start_new_thread(self._close_now, ())
        except RuntimeError:  # no more threads can be started
            raise errors.make_error(
                errors.StoreBusy,
                f"{self.path}: a signal handler interrupted a write of the same thread; the store is not closed."
                " Close it after the handler has returned",
            ) from None

    def _shut(self) -> None:
        if not self.is_closed:
            self.checkpointer.stop()
            self.is_closed = True
            problem = None
            self.guard.examine_log()
            was_cut = self.guard.is_log_cut()
            if self.loss is not None or was_cut:
                self.leave_log_alone(True)
                log_recovery.drop_foreign_log(self.guard)
            was_removed = was_cut or self.guard.is_log_missing()
            if self.journal == "wal" and self.damage is None and was_removed:
                problem = log_recovery.save_before_close(self)
            elif self._has_recovered and self.journal == "wal" and self.damage is None:
                # A program that still has the removed log open deletes the current log when it closes.
                with suppress(apsw.Error):
                    if self.log_lock.share() and self.guard.is_log_in_place():
                        self.checkpoint_all(log_recovery.STOP_FOR_READ_S)
            self.readers.close()
            self._close_all()
            self.writer_queue.close()
            if problem is not None:
                raise problem
            self.check_loss()

    def _close_all(self) -> None:
        self.guard.stores.discard(self)
        self.log_lock.close()
        last = file_guard.begin_leaving(self.guard)
        for connection in self.readers.empty():
            connection.close(True)
        for side in self.raw_connections:
            side.suspend()
        self.raw_connections.clear()
        self.connection.close(True)
        if last:
            file_guard.finish_leaving(self.guard)
            if self.read_only and not self._found_log:
                take_log_away(self.path)

    def _abandon(self) -> None:
        """In a forked child, mark this store as closed, but keep the connection objects of the parent in memory.

        If they were freed, SQLite would close them, which would affect the parent.
        """
        self.is_closed = True
        _PARENTS.append((self.connection, *self.readers.empty(), *self.raw_connections))

    def close_at_exit(self) -> None:
        """Close the store at program exit. If other threads are still writing after `EXIT_S` seconds, leave
        it open.
        """
        until = time.monotonic() + EXIT_S
        while not self.queue.is_idle and time.monotonic() < until:
            time.sleep(EXIT_NAP_S)
        if self.queue.is_idle and not self.is_closed and os.getpid() == self.pid:
            self._close_now()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Close the store if the program has dropped it without closing it. Messages that are not indexed yet are
        indexed at the next use.
        """
        try:
            if os.getpid() == self.pid:
                self._shut()
            elif not self.is_closed:
                self._abandon()
        except Exception as problem:
            if is_finalizing():
                return  # modules can no longer be relied on; see `_close_at_exit`
            if self.loss is not None or isinstance(problem, errors.StoreError):
                log.error("%s: a store was left open: %s", self.path, problem)
            else:
                log.debug("a store was left open and could not be closed", exc_info=True)

    def check_usable(self) -> None:
        if self.is_closed:
            raise errors.make_error(
                errors.StoreClosed, f"{self.path}: this SessionDB is closed{self._why_closed}"
            )
        if os.getpid() != self.pid:
            raise errors.make_error(
                errors.StoreClosed,
                f"{self.path}: opened before a fork; a child process must open its own SessionDB",
            )

    def check_writable(self) -> None:
        self.check_usable()
        if self.read_only:
            raise errors.make_error(errors.StoreReadOnly, f"{self.path} is open read-only")
        if self.loss is not None:
            self.check_loss()
        if self.damage is not None:
            raise self.damage

    def translate_error(self, problem: Exception) -> errors.HermesError:
        """Return the `HermesError` for an error of SQLite. After damage, stop all further writes."""
        if isinstance(problem, Unreachable):
            return self._stop_writing(damage_error(self.path, str(problem)), problem)
        if not isinstance(problem, apsw.Error):
            sentence = f"{self.path} contains text that is not UTF-8, written by another program"
            command = upkeep_command(self.path, "repair")
            return errors.make_error(
                errors.StoreDamaged, f"{sentence}; `{command}` replaces each broken byte by U+FFFD"
            )
        if self.loss is not None:
            return self.loss
        if isinstance(problem, apsw.NotADBError | apsw.CorruptError) and not self.guard.is_in_place():
            sentence = f"{self.path} was replaced by another file while it was open here; open it again"
            return errors.make_error(errors.StoreFailed, sentence)
        if isinstance(problem, UNREADABLE):
            self.guard.examine_log()
        if isinstance(problem, UNREADABLE) and self.guard.is_log_cut():
            return log_recovery.note_cut_log(self)
        is_unreadable = isinstance(problem, apsw.IOError | apsw.CorruptError) and not is_lack_of_room(problem)
        if is_unreadable and self.guard.is_log_removed():
            sentence = f"the write-ahead log of {self.path} was removed while it was being read; try again"
            return errors.make_error(errors.StoreFailed, sentence)
        error = translate_error(problem, self.path)
        if not isinstance(error, errors.StoreDamaged):
            return error
        from hermes.store.sqlite.search import index_damage

        if index_damage.is_only_index_broken(self.path):
            sentence = f"the search index of {self.path} is damaged; messages are not. It is rebuilt when the store is"
            return errors.make_error(errors.IndexDamaged, f"{sentence} next opened for writing")
        return self._stop_writing(error, problem)

    def _stop_writing(self, error: errors.HermesError, problem: Exception) -> errors.HermesError:
        """Record that the database file is damaged, so that no process writes to it any more.

        `problem` is the error of SQLite, and its text is stored beside the file. Return `error` unchanged, so that
        the caller can raise it.
        """
        if self.damage is None:
            self.damage = error
            mark_damaged(self.path, str(problem))
        return error


_PARENTS: list[Any] = []


def _close_at_exit() -> None:
    """At program exit, close each store whose write-ahead log was removed, which saves the content of the log. If the
    content cannot be saved, log the error. Later during the exit, the Python modules that this needs may already be
    unusable.
    """
    for store in file_guard.list_endangered_stores():
        try:
            store.close_at_exit()
        except errors.HermesError as problem:
            log.error("%s", problem)


atexit.register(_close_at_exit)
