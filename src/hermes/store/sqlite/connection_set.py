"""The connections of one store: opened, handed out, opened anew after its log was removed, and closed."""

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
from hermes.config import config_file
from hermes.logs import get_logger
from hermes.store.engine import Unreachable
from hermes.store.sqlite.connection import (
    DEADLINE_S,
    NO_DESCRIPTORS,
    Patience,
    SqliteWriter,
    connect,
    connect_read_only,
    damaged,
    is_lack_of_room,
    out_of_descriptors,
    run,
    translated,
    upkeep,
)
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.group_commit import CommitQueue, Ticket, interrupted_writes, is_main_thread
from hermes.store.sqlite.migrations import check_documented_version
from hermes.store.sqlite.opener import make_durable, mark_damaged, open_database, take_log_away
from hermes.store.sqlite.process_fairness import Turnstile
from hermes.store.sqlite.reader_pool import ReaderPool
from hermes.store.sqlite.wal import file_guard as guards
from hermes.store.sqlite.wal import log_recovery
from hermes.store.sqlite.wal.checkpoint import Checkpointer
from hermes.store.sqlite.wal.log_lock import NAP_S, LogLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes.store.sqlite.raw import RawConnection
    from hermes.store.sqlite.scope import ScopedConnection

log = get_logger(__name__)

LARGE_CACHE = "PRAGMA cache_size=-8000"
"""Ranking looks the length of every match up: with SQLite's own 2 MB most of that was read anew for each search."""
UNREADABLE = (apsw.IOError, apsw.CorruptError, apsw.NotADBError)
EXIT_S, EXIT_NAP_S = 2.0, 0.001
"""How long a program that ends waits for a write of another thread, if there is a log to be saved."""
FOR_READING = "; ".join(("PRAGMA query_only=ON", LARGE_CACHE))


class SqliteConnections:
    """Opens, closes and hands out the connections of one store, and opens them anew after its log was removed."""

    _queue: CommitQueue
    _why_closed = ""
    _loss: errors.HermesError | None = None  # acknowledged changes that cannot be saved

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
        """The retries are for the few refusals that SQLite gives without asking the busy handler. `recovers`: first
        let the other stores of this process save a log that was removed."""
        self._checkpoint_every = checkpoint_every_n_writes
        self._max_retries = write_max_retries
        self._retry_s = write_retry_s
        self._closed = True
        self.path = path
        self.read_only = read_only
        self._synchronous = synchronous
        self._deadline = deadline
        self._patience = Patience(deadline)
        self._turnstile = Turnstile(path)
        self._names: dict[str, tuple[str, ...]] = {}
        self.readers = ReaderPool(path, deadline)
        self._side: list[RawConnection] = []
        self._writes = 0
        self._damage: errors.HermesError | None = None
        self._pid = os.getpid()
        self.is_stopped = False  # while another store of this process recovers the log
        self._recovery: LockType | None = None  # held by the thread that recovers the log for the main thread
        self._has_recovered = False
        if recovers:
            guards.recover_log_of(path)
        self._open()

    def _open(self, lock: LogLock | None = None) -> None:
        self._found_log = os.path.exists(f"{self.path}-wal")
        opened = open_database(self.path, read_only=self.read_only, deadline=self._deadline, lock=lock)
        self._connection, self._guard, self._journal = opened
        self._durable = False
        self._guard.stores.add(self)
        self._log_lock = LogLock(self._guard, has_log=self._journal == "wal")
        if self._journal == "wal" and not self.read_only:
            with suppress(OSError):
                LogLock(
                    self._guard
                ).close()  # one in reserve, for a removed log is saved without free descriptors, too
        self._checkpointer = Checkpointer(self.path, self._guard)
        if self.read_only:
            self.readers.add(self._connection)
        else:
            self._connection.set_busy_handler(self._patience)
        self._writer = SqliteWriter(self._connection, self._names)
        self._closed = False

    @property
    def spool_allowed(self) -> bool:
        """What is encrypted is not kept in plain text beside itself, unless a person says so."""
        return not encryption.in_use(self.path) or config_file.read_setting("sessions", "spool") is True

    # ---------------------------------------------------------------- connections

    def _new_plain(self) -> apsw.Connection:
        return self._new_reader(FOR_READING)

    def _new_scoped(self) -> ScopedConnection:
        from hermes.store.sqlite.scope import ScopedConnection

        # Not `query_only`, which would also forbid to say whose turn it is. Without a log, who may only read could not
        # take back what a crash left half written.
        try:
            if self._journal == "wal" and not self.read_only:
                connection = connect(self.path, read_only=True)
                self._prepare(connection, LARGE_CACHE)
            else:
                connection = self._new_reader(LARGE_CACHE)
            return ScopedConnection(connection)
        except apsw.Error as problem:
            raise self._told(problem) from problem

    def _new_reader(self, prepare: LiteralString) -> apsw.Connection:
        try:
            connection = connect_read_only(self.path) if self.read_only else connect(self.path)
            self._prepare(connection, prepare)
            return connection
        except apsw.Error as problem:
            raise self._told(problem) from problem

    def _prepare(self, connection: apsw.Connection, how: LiteralString) -> None:
        """Opening may have left it to the first who reads the schema to look at the version."""
        try:
            check_documented_version(connection, self.path)
            run(connection, how)
        except BaseException:
            connection.close(True)
            raise

    def _ensure_durable(self) -> None:
        """Not when a store is opened: a store that is only read need not."""
        if not self._durable:
            make_durable(self.path, self._connection, self._synchronous)
            self._durable = True

    def _share_log(self, seconds: float) -> bool:
        """Wait for other processes that open the store or save a removed log. False if this one does the latter."""
        until = time.monotonic() + seconds
        while not self._log_lock.share():
            if self._guard.recovering is not None:
                return False
            if time.monotonic() >= until:
                raise apsw.BusyError("another program opens the store, or saves its write-ahead log")
            time.sleep(NAP_S)
        return True

    def _lasted(self) -> bool:
        """Whether what was just committed is where other processes will read it."""
        return self._journal != "wal" or self._guard.log_in_place()

    # ---------------------------------------------------------------- a log that was removed; see `log_recovery`

    def settle_log(self, *, reading: bool = False) -> None:
        """If the log was removed, save what it held and go on with a new one. A read goes on with the old one if that
        is not possible now and everybody else would read the same."""
        self._check_loss()

        def settle(_: object) -> None:
            if not self._closed and self._guard.log_was_removed():
                if reading and self.read_only and log_recovery.is_readable(self._guard):
                    return
                self._restore_log(wait=log_recovery.STOP_FOR_READ_S if reading else log_recovery.STOP_S)

        try:
            self._queue.do(Ticket(settle, outside=True))
        except errors.StoreError:
            self._check_loss()
            if not reading or self._closed or not log_recovery.is_readable(self._guard):
                raise

    def _check_loss(self) -> None:
        """Raise the error that says what was lost, each time anew: an error that is kept would gather tracebacks."""
        if self._loss is not None:
            raise errors.make_error(errors.StoreFailed, str(self._loss))

    def _restore_log(self, *, committed: bool = False, wait: float = log_recovery.STOP_S) -> bool:
        """False if what was just committed has to be written again."""
        self._log_lock.release()
        if self._guard.store_was_exchanged():
            self._damage = errors.make_error(
                errors.StoreFailed,
                f"{self.path} was moved, deleted or replaced while it was open here; the last change may not have"
                " lasted. Close this SessionDB and open the store again where it is now",
            )
            raise self._damage
        self._has_recovered = True
        try:
            return self._do_beside_signals(
                lambda: log_recovery.restore_log(self, committed=committed, wait=wait)
            )
        except OSError as problem:
            if problem.errno not in NO_DESCRIPTORS:
                raise
            raise out_of_descriptors(self.path) from problem

    def _do_beside_signals(self, work: Callable[[], bool]) -> bool:
        """A signal handler may raise in the main thread, also after connections were closed and before others are
        open. So another thread does it, and is waited for."""
        if not is_main_thread():
            return work()
        outcome: list[bool | BaseException] = []
        over = allocate_lock()
        over.acquire()

        def do() -> None:
            try:
                outcome.append(work())
            except BaseException as problem:  # noqa: BLE001 - raised in the thread that asked
                outcome.append(problem)
            finally:
                over.release()

        self._recovery = over
        try:
            start_new_thread(do, ())
        except RuntimeError:  # no more threads
            do()
        self._await_recovery()
        result = outcome[0]
        if isinstance(result, BaseException):
            raise result
        return result

    def _await_recovery(self) -> None:
        """Wait until connections can be used again, which a thread that was interrupted may have left behind."""
        over = self._recovery
        if over is not None:
            with over:
                self._recovery = None

    @property
    def guard(self) -> guards.Guard:
        return self._guard

    @property
    def queue(self) -> CommitQueue:
        return self._queue

    @property
    def is_closed(self) -> bool:
        return self._closed

    def renew_checkpointer(self) -> None:
        self._checkpointer.stop()
        self._checkpointer = Checkpointer(self.path, self._guard)

    def stop_reads(self, until: float) -> bool:
        """Wait for running reads to end, and let no new one begin until `readers.release()`."""
        return self.readers.hold(until) and all(side.is_idle(until) for side in [*self._side])

    def checkpoint_all(self, seconds: float) -> tuple[int, int, int]:
        """Empty the log; whether somebody is in the way, the number of its frames, and how many were moved."""
        self._patience.seconds = seconds
        try:
            busy, frames, moved = run(self._connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
        finally:
            self._patience.seconds = self._deadline
        return busy, frames, moved

    def leave_log_alone(self, alone: bool) -> None:
        """Whether closing leaves log and file as they are. Otherwise the last connection checkpoints, and cleans up."""
        for connection in (
            *self.readers.get_idle(),
            *(side.connection for side in self._side),
            self._connection,
        ):
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(alone))

    def stop_for_good(self, problem: errors.HermesError) -> None:
        self._damage = self._loss = problem

    def close_connections(self) -> None:
        sides = [*self._side]
        self._close_connections()
        self._side.extend(sides)  # opened anew when they are next used

    def reopen(self, lock: LogLock | None) -> None:
        try:
            self._open(lock)
        except BaseException as problem:
            self._closed = True
            self._why_closed = f": it could not be opened again after its log was removed ({problem})"
            raise

    # ---------------------------------------------------------------- closing, and what keeps others out

    def close(self) -> None:
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._abandon()
            return
        if any(outer.queue is self._queue for outer in interrupted_writes(get_ident())):
            self._close_later()
        else:
            self._close_now()

    def _close_now(self) -> None:
        self._checkpointer.stop()  # outside: it may have to wait for a fork, which waits for who is inside
        # In the queue, so that a commit that is on its way comes first.
        self._queue.do(Ticket(lambda _: self._shut(), outside=True))

    def _close_later(self) -> None:
        """A signal handler closes the store while it interrupts a write: that is finished, or given up, first."""
        try:
            start_new_thread(self._close_now, ())
        except RuntimeError:  # no more threads
            raise errors.make_error(
                errors.StoreBusy,
                f"{self.path}: a signal handler interrupted a write of the same thread; the store is not closed."
                " Close it after the handler has returned",
            ) from None

    def _shut(self) -> None:
        if not self._closed:
            self._checkpointer.stop()
            self._closed = True
            problem = None
            self._guard.examine_log()
            was_cut = self._guard.log_was_cut()
            if self._loss is not None or was_cut:
                self.leave_log_alone(True)
                log_recovery.drop_foreign_log(self._guard)
            was_removed = was_cut or self._guard.log_is_missing()
            if self._journal == "wal" and self._damage is None and was_removed:
                problem = log_recovery.save_before_close(self)
            elif self._has_recovered and self._journal == "wal" and self._damage is None:
                # A program that still has the removed log open deletes, when it closes, the one in its place.
                with suppress(apsw.Error):
                    if self._log_lock.share() and self._guard.log_in_place():
                        self.checkpoint_all(log_recovery.STOP_FOR_READ_S)
            self.readers.close()
            self._close_connections()
            self._turnstile.close()
            if problem is not None:
                raise problem
            self._check_loss()

    def _close_connections(self) -> None:
        self._guard.stores.discard(self)
        self._log_lock.close()
        last = guards.leaving(self._guard)
        for connection in self.readers.empty():
            connection.close(True)
        for side in self._side:
            side.suspend()
        self._side.clear()
        self._connection.close(True)
        if last:
            guards.left(self._guard)
            if self.read_only and not self._found_log:
                take_log_away(self.path)

    def _abandon(self) -> None:
        """In a forked child: the connections are the parent's. Keep them alive untouched, for closing would hurt it."""
        self._closed = True
        _PARENTS.append((self._connection, *self.readers.empty(), *self._side))

    def close_at_exit(self) -> None:
        """The program ends without closing the store. A thread that does not finish its write is not waited for."""
        until = time.monotonic() + EXIT_S
        while not self._queue.is_idle and time.monotonic() < until:
            time.sleep(EXIT_NAP_S)
        if self._queue.is_idle and not self._closed and os.getpid() == self._pid:
            self._close_now()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """A store that was left open is closed without more ado; its index catches up when it is next used."""
        try:
            if os.getpid() == self._pid:
                self._shut()
            elif not self._closed:
                self._abandon()
        except Exception as problem:
            if is_finalizing():
                return  # no module can be relied on any more; see `_close_at_exit`
            if self._loss is not None or isinstance(problem, errors.StoreError):
                log.error("%s: a store was left open: %s", self.path, problem)
            else:
                log.debug("a store was left open and could not be closed", exc_info=True)

    def _usable(self) -> None:
        if self._closed:
            raise errors.make_error(
                errors.StoreClosed, f"{self.path}: this SessionDB is closed{self._why_closed}"
            )
        if os.getpid() != self._pid:
            raise errors.make_error(
                errors.StoreClosed,
                f"{self.path}: opened before a fork; a child process must open its own SessionDB",
            )

    def _writable(self) -> None:
        self._usable()
        if self.read_only:
            raise errors.make_error(errors.StoreReadOnly, f"{self.path} is open read-only")
        if self._loss is not None:
            self._check_loss()
        if self._damage is not None:
            raise self._damage

    def _told(self, problem: Exception) -> errors.HermesError:
        if isinstance(problem, Unreachable):
            return self._stopped(damaged(self.path, str(problem)), problem)
        if not isinstance(problem, apsw.Error):
            sentence = f"{self.path} holds text that is not UTF-8, written by another program"
            command = upkeep(self.path, "repair")
            return errors.make_error(
                errors.StoreDamaged, f"{sentence}; `{command}` puts U+FFFD in place of each broken byte"
            )
        if self._loss is not None:
            return self._loss
        if isinstance(problem, apsw.NotADBError | apsw.CorruptError) and not self._guard.is_in_place():
            sentence = f"{self.path} was replaced by another file while it was open here; open it again"
            return errors.make_error(errors.StoreFailed, sentence)
        if isinstance(problem, UNREADABLE):
            self._guard.examine_log()
        if isinstance(problem, UNREADABLE) and self._guard.log_was_cut():
            return log_recovery.note_cut_log(self)
        is_unreadable = isinstance(problem, apsw.IOError | apsw.CorruptError) and not is_lack_of_room(problem)
        if is_unreadable and self._guard.log_was_removed():
            sentence = f"the write-ahead log of {self.path} was removed while it was being read; try again"
            return errors.make_error(errors.StoreFailed, sentence)
        told = translated(problem, self.path)
        if not isinstance(told, errors.StoreDamaged):
            return told
        from hermes.store.sqlite.upkeep import integrity

        if integrity.only_index_is_broken(self.path):
            sentence = f"the search index of {self.path} is damaged; messages are not. It is rebuilt when the store is"
            return errors.make_error(errors.IndexDamaged, f"{sentence} next open for writing")
        return self._stopped(told, problem)

    def _stopped(self, told: errors.HermesError, problem: Exception) -> errors.HermesError:
        """Nothing more is written to a damaged file, by anybody."""
        if self._damage is None:
            self._damage = told
            mark_damaged(self.path, str(problem))
        return told


_PARENTS: list[Any] = []


def _close_at_exit() -> None:
    """What a removed log holds is saved, or said to be lost, while the modules that do so still work."""
    for store in guards.list_endangered_stores():
        try:
            store.close_at_exit()
        except errors.HermesError as problem:
            log.error("%s", problem)


atexit.register(_close_at_exit)
