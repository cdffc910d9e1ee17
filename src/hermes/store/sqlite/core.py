"""One writing connection, a few reading ones, and the promise that what is acknowledged lasts."""

from __future__ import annotations

import os
import time
from _thread import get_ident, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar, cast

import apsw

from hermes import config, errors
from hermes.logs import log_of
from hermes.store import derived
from hermes.store.engine import Reader, Unreachable, Writer
from hermes.store.sqlite import encryption, log_recovery
from hermes.store.sqlite import guard as guards
from hermes.store.sqlite.checkpoint import Checkpointer
from hermes.store.sqlite.commit import CommitQueue, Ticket, await_own_writes, interrupted_writes
from hermes.store.sqlite.connection import (
    DEADLINE_S,
    Patience,
    SqliteReader,
    SqliteWriter,
    connect,
    connect_read_only,
    damaged,
    run,
    translated,
    upkeep,
)
from hermes.store.sqlite.forking import Inside
from hermes.store.sqlite.migrations import check_documented_version
from hermes.store.sqlite.opening import (
    make_durable,
    mark_damaged,
    marked_damage,
    open_database,
    take_log_away,
)
from hermes.store.sqlite.readers import ReaderPool
from hermes.store.sqlite.turnstile import PATIENCE_S, Turnstile

if TYPE_CHECKING:
    from hermes.store.sqlite.raw import RawConnection
    from hermes.store.sqlite.scope import Owners, ScopedConnection

log = log_of(__name__)
T = TypeVar("T")

SETTLE_ROUNDS = 1000
LARGE_CACHE = "PRAGMA cache_size=-8000"
"""Ranking looks the length of every match up: with SQLite's own 2 MB most of that was read anew for each search."""
COMMIT = ("COMMIT",)
FOR_READING = "; ".join(("PRAGMA query_only=ON", LARGE_CACHE))
TOLD_AS_OURS = (apsw.Error, UnicodeDecodeError, Unreachable)
"""What is wrong with the file, and not with what was asked of it."""
AT_FIRST_S = 0.100
"""How long a writer tries on its own before it stands in line."""


class SqliteCore:
    """Snapshots and transactions; `SqliteEngine` puts search and upkeep on top."""

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
    ) -> None:
        """The retries are for the few refusals that SQLite gives without asking the busy handler."""
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
        self._queue = CommitQueue(self)
        self._at_work = False  # whether the leader's batch has the lock, or is being undone
        self._committed: list[object] = []  # holds something once the batch under way is committed
        self._writes = 0
        self._damage: errors.HermesError | None = None
        self._pid = os.getpid()
        self.is_stopped = False  # while another store of this process recovers the log
        guards.recover_log_of(path)
        self._open()

    def _open(self, *, recovered: bool = False) -> None:
        self._found_log = os.path.exists(f"{self.path}-wal")
        opened = open_database(
            self.path, read_only=self.read_only, deadline=self._deadline, recovered=recovered
        )
        self._connection, self._guard, self._journal = opened
        self._durable = False
        self._guard.stores.add(self)
        self._checkpointer = Checkpointer(self.path, self._guard.log_in_place)
        if self.read_only:
            self.readers.add(self._connection)
        else:
            self._connection.set_busy_handler(self._patience)
        self._writer = SqliteWriter(self._connection, self._names)
        self._closed = False

    @property
    def spool_allowed(self) -> bool:
        """What is encrypted is not kept in plain text beside itself, unless a person says so."""
        return not encryption.in_use(self.path) or config.setting("sessions", "spool") is True

    # ---------------------------------------------------------------- reading

    @contextmanager
    def read(
        self, *, settled: bool = False, wait: bool = True, owners: Owners | None = None
    ) -> Iterator[Reader]:
        await_own_writes()
        with Inside():
            yield from self._read(settled, wait, owners)

    def _read(self, settled: bool, wait: bool, owners: Owners | None) -> Iterator[Reader]:
        self._usable()
        if self._guard.log_was_removed():
            self.settle_log(reading=True)
        scope = None
        if owners is None:
            connection, generation = self.readers.take(self._new_plain)
        else:
            scope, generation = self.readers.take_scoped(self._new_scoped)
            connection = scope.connection
        try:
            if connection.in_transaction:  # its last user was interrupted
                connection.execute("ROLLBACK")
            if scope is not None and owners is not None:
                scope.is_for(owners)
            reader = SqliteReader(connection, self._names)
            self._begin_snapshot(connection, reader, settled, wait)
            try:
                yield reader
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except TOLD_AS_OURS as problem:
            raise self._told(problem) from problem
        finally:
            self.readers.give_back(connection, generation, scope)

    def _begin_snapshot(
        self, connection: apsw.Connection, reader: SqliteReader, settled: bool, wait: bool
    ) -> None:
        connection.execute("BEGIN")
        if not settled or self.read_only:
            return
        for _ in range(SETTLE_ROUNDS):
            if reader.value(derived.ANY_NOTED) is None:
                return
            connection.execute("COMMIT")
            try:
                if wait:
                    self.write(derived.refresh, share=False)
                else:
                    self._queue.do(Ticket(derived.refresh, impatient=True))
            except errors.StoreError as problem:  # a list a little out of date is better than none
                if wait:
                    log.warning("%s: changes by other programs are not taken in yet: %s", self.path, problem)
                connection.execute("BEGIN")
                return
            connection.execute("BEGIN")

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

    # ---------------------------------------------------------------- writing

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        self._writable()
        result = self._queue.do(Ticket(work, share=share, repeatable=repeatable))
        self._writes += 1
        if self._writes % self._checkpoint_every == 0:
            if self._journal == "wal":
                self._checkpointer.ask()
            self._damage = self._damage or marked_damage(self.path)  # another process may have seen some
        return cast(T, result)

    def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with the writing connection that no transaction allows, while nobody else writes."""
        self._writable()

        def durably(writer: SqliteWriter) -> T:
            self._ensure_durable()
            return work(writer.raw)

        return cast(T, self._queue.do(Ticket(durably, outside=True)))

    def _ensure_durable(self) -> None:
        """Not when a store is opened: a store that is only read need not."""
        if not self._durable:
            make_durable(self.path, self._connection, self._synchronous)
            self._durable = True

    def transact(self, batch: list[Ticket]) -> None:
        """One commit for the whole batch; see `commit.Owner`."""
        committed = self._committed = []
        try:
            if batch[0].outside:
                self._at_work = True
                self._run_all(batch)
            else:
                self._usable()
                self._begin(impatient=batch[0].impatient)
                self._at_work = True
                self._run_all(batch)
                # In one step of C, so that no exception of a signal handler comes between the commit and its note.
                committed.extend(map(self._connection.execute, COMMIT))
                if not self._lasted():
                    committed.clear()  # it is as if it had never been, until it is written again
                    self._write_again(batch)
                    committed.append(None)
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
        return errors.raised(
            errors.StoreBusy,
            f"{self.path}: a signal handler interrupted a write of the same thread; nothing was written."
            " Write after the handler has returned",
        )

    def _write_beside(self, ticket: Ticket) -> object:
        """By a store of its own, for this one write."""
        beside = SqliteCore(self.path, synchronous=self._synchronous, deadline=self._deadline)
        try:
            return beside._queue.do(Ticket(ticket.work, share=ticket.share, repeatable=ticket.repeatable))
        finally:
            beside.close()

    @staticmethod
    def _fail(batch: list[Ticket], problem: Exception) -> None:
        for ticket in batch:
            ticket.error = ticket.error or problem
            ticket.finished = True

    def _lasted(self) -> bool:
        """Whether what was just committed is where other processes will read it."""
        return self._journal != "wal" or self._guard.log_in_place()

    def _begin(self, *, impatient: bool = False) -> None:
        """Take the write lock, in turn with other processes, before the deadline."""
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
        self._patience.seconds = seconds
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._lasted():
                return
            self._connection.execute("ROLLBACK")
        except (apsw.IOError, apsw.CorruptError, apsw.NotADBError):
            if self._lasted():
                raise
        finally:
            self._patience.seconds = self._deadline
        # Nothing was read through the connection that this transaction could be based on.
        self._restore_log()
        self._ensure_durable()
        self._begin_within(seconds)

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
        if not self._closed and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # ---------------------------------------------------------------- a log that was removed; see `log_recovery`

    def settle_log(self, *, reading: bool = False) -> None:
        """If the log was removed, save what it held and go on with a new one. A read goes on with the old one if that
        is not possible now and everybody else would read the same."""

        def settle(_: object) -> None:
            if not self._closed and self._guard.log_was_removed():
                if reading and self.read_only and log_recovery.is_readable(self._guard):
                    return
                self._restore_log(wait=log_recovery.STOP_FOR_READ_S if reading else log_recovery.STOP_S)

        try:
            self._queue.do(Ticket(settle, outside=True))
        except errors.StoreError:
            if not reading or self._closed or not log_recovery.is_readable(self._guard):
                raise

    def _restore_log(self, *, committed: bool = False, wait: float = log_recovery.STOP_S) -> bool:
        """False if what was just committed has to be written again."""
        if self._guard.store_was_exchanged():
            self._damage = errors.raised(
                errors.StoreFailed,
                f"{self.path} was moved, deleted or replaced while it was open here; the last change may not have"
                " lasted. Close this SessionDB and open the store again where it is now",
            )
            raise self._damage
        return log_recovery.restore_log(self, committed=committed, wait=wait)

    def _write_again(self, batch: list[Ticket]) -> None:
        """The log was removed during a commit: write its changes again if they are neither in the file nor in the log
        that is in its place."""
        if self._restore_log(committed=True):
            return
        for ticket in batch:
            if ticket.error is None and not ticket.repeatable:
                told = f"{self.path} was replaced under the store; the change may not have lasted"
                ticket.error = errors.raised(errors.StoreFailed, told)
        self._begin()
        self._writer.repeating = True
        try:
            self._run_all([ticket for ticket in batch if ticket.error is None])
            self._connection.execute("COMMIT")
        finally:
            self._writer.repeating = False

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
        self._checkpointer = Checkpointer(self.path, self._guard.log_in_place)

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
        self._damage = problem

    def close_connections(self) -> None:
        sides = [*self._side]
        self._close_connections()
        self._side.extend(sides)  # opened anew when they are next used

    def reopen(self, *, recovered: bool) -> None:
        self._closed = True  # should it fail
        self._open(recovered=recovered)

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
            raise errors.raised(
                errors.StoreBusy,
                f"{self.path}: a signal handler interrupted a write of the same thread; the store is not closed."
                " Close it after the handler has returned",
            ) from None

    def _shut(self) -> None:
        if not self._closed:
            self._checkpointer.stop()
            self._closed = True
            problem = None
            if self._journal == "wal" and self._damage is None and self._guard.log_was_removed():
                problem = log_recovery.save_before_close(self)
            self.readers.close()
            self._close_connections()
            self._turnstile.close()
            if problem is not None:
                raise problem

    def _close_connections(self) -> None:
        self._guard.stores.discard(self)
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

    def __del__(self) -> None:
        """A store that was left open is closed without more ado; its index catches up when it is next used."""
        try:
            if os.getpid() == self._pid:
                self._shut()
            elif not self._closed:
                self._abandon()
        except Exception:
            log.debug("a store was left open and could not be closed", exc_info=True)

    def _usable(self) -> None:
        if self._closed:
            raise errors.raised(errors.StoreClosed, f"{self.path}: this SessionDB is closed")
        if os.getpid() != self._pid:
            raise errors.raised(
                errors.StoreClosed,
                f"{self.path}: opened before a fork; a child process must open its own SessionDB",
            )

    def _writable(self) -> None:
        self._usable()
        if self.read_only:
            raise errors.raised(errors.StoreReadOnly, f"{self.path} is open read-only")
        if self._damage is not None:
            raise self._damage

    def _told(self, problem: Exception) -> errors.HermesError:
        if isinstance(problem, Unreachable):
            return self._stopped(damaged(self.path, str(problem)), problem)
        if not isinstance(problem, apsw.Error):
            sentence = f"{self.path} holds text that is not UTF-8, written by another program"
            command = upkeep(self.path, "repair")
            return errors.raised(
                errors.StoreDamaged, f"{sentence}; `{command}` puts U+FFFD in place of each broken byte"
            )
        if isinstance(problem, apsw.NotADBError | apsw.CorruptError) and not self._guard.is_in_place():
            sentence = f"{self.path} was replaced by another file while it was open here; open it again"
            return errors.raised(errors.StoreFailed, sentence)
        if isinstance(problem, apsw.IOError | apsw.CorruptError) and self._guard.log_was_removed():
            sentence = f"the write-ahead log of {self.path} was removed while it was being read; try again"
            return errors.raised(errors.StoreFailed, sentence)
        told = translated(problem, self.path)
        if not isinstance(told, errors.StoreDamaged):
            return told
        from hermes.store.sqlite import doctor

        if doctor.only_index_is_broken(self.path):
            sentence = f"the search index of {self.path} is damaged; messages are not. It is rebuilt when the store is"
            return errors.raised(errors.IndexDamaged, f"{sentence} next open for writing")
        return self._stopped(told, problem)

    def _stopped(self, told: errors.HermesError, problem: Exception) -> errors.HermesError:
        """Nothing more is written to a damaged file, by anybody."""
        if self._damage is None:
            self._damage = told
            mark_damaged(self.path, str(problem))
        return told


_PARENTS: list[Any] = []
