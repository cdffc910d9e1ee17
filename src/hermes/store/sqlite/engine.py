"""The SQLite engine: one writing connection, a few reading ones, and the promise that what is acknowledged lasts.

What is needed only for upkeep or after damage is imported there and then: opening a store stays light.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from hermes import clock, errors
from hermes.store import derived
from hermes.store.engine import Reader, Writer
from hermes.store.matching import Node
from hermes.store.sqlite import guard as guards
from hermes.store.sqlite import index, search
from hermes.store.sqlite.checkpoint import Checkpointer
from hermes.store.sqlite.commit import CommitQueue, Ticket
from hermes.store.sqlite.connection import (
    DEADLINE_S,
    Patience,
    SqliteReader,
    SqliteWriter,
    connect,
    pragma,
    run,
    translated,
)
from hermes.store.sqlite.opening import mark_damaged, open_database
from hermes.store.sqlite.raw import RawConnection
from hermes.store.sqlite.turnstile import Turnstile
from hermes.store.values import Backup, Health, MessageFilter, Optimized, SearchAnswer

log = logging.getLogger(__name__)
T = TypeVar("T")

INDEX_EVERY_N_WRITES = 32
INDEX_AT_LAST = 8 * INDEX_EVERY_N_WRITES
SETTLE_ROUNDS = 1000
SEARCH_CATCH_UP_S = 2.0
CLOSE_CATCH_UP_S = 0.25
READS_END_S = 5.0
AT_FIRST_S = 0.020
"""How long a writer tries on its own before it stands in line."""
SHORT_TAIL, QUIET_S = 64, 1.0
"""A tail this short that grew within the last second is read, not indexed, by a search."""


class SqliteEngine:
    """See `hermes.store.engine.Engine`."""

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
        self._readers: deque[apsw.Connection] = deque()
        self._reading: set[apsw.Connection] = set()
        self._side: list[apsw.Connection] = []
        self._queue = CommitQueue(self._transact)
        self._checkpointer = Checkpointer(path)
        self._writes = 0
        self._indexed_at = 0
        self._damage: errors.HermesError | None = None
        self._pid = os.getpid()
        self._generation = 0
        self._open()

    def _open(self) -> None:
        opened = open_database(self.path, read_only=self.read_only, synchronous=self._synchronous)
        self._connection, self._guard, self._journal = opened
        if self.read_only:
            self._readers.append(self._connection)
        else:
            self._connection.set_busy_handler(self._patience)
        self._writer = SqliteWriter(self._connection, self._names)
        self._closed = False

    # ---------------------------------------------------------------- reading

    @contextmanager
    def read(self, *, settled: bool = False) -> Iterator[Reader]:
        connection, generation = self._take_reader(), self._generation
        try:
            reader = SqliteReader(connection, self._names)
            self._begin_snapshot(connection, reader, settled)
            try:
                yield reader
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except (apsw.Error, UnicodeDecodeError) as problem:
            raise self._told(problem) from problem
        finally:
            if generation == self._generation and not self._closed:
                self._readers.append(connection)
            else:  # the store was closed or opened anew meanwhile: this connection sees what nobody else does
                connection.close(True)
            self._reading.discard(connection)

    def _begin_snapshot(self, connection: apsw.Connection, reader: SqliteReader, settled: bool) -> None:
        connection.execute("BEGIN")
        if not settled or self.read_only:
            return
        for _ in range(SETTLE_ROUNDS):
            if reader.value(derived.ANY_NOTED) is None:
                return
            connection.execute("COMMIT")
            try:
                self.write(derived.refresh, share=False)
            except errors.StoreError as problem:  # a list a little out of date is better than none
                log.warning("%s: changes by other programs are not taken in yet: %s", self.path, problem)
                connection.execute("BEGIN")
                return
            connection.execute("BEGIN")

    def _take_reader(self) -> apsw.Connection:
        self._usable()
        try:
            connection = self._readers.popleft()
            if connection.in_transaction:  # its last user was interrupted
                connection.execute("ROLLBACK")
        except IndexError:
            connection = self._new_reader()
        self._reading.add(connection)
        return connection

    def _new_reader(self) -> apsw.Connection:
        try:
            connection = connect(self.path, read_only=self.read_only)
            if not self.read_only:
                run(connection, "PRAGMA query_only=ON")
            return connection
        except apsw.Error as problem:
            raise self._told(problem) from problem

    # ---------------------------------------------------------------- writing

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        self._writable()
        result = self._mending_the_index(
            lambda: self._queue.do(Ticket(work, share=share, repeatable=repeatable))
        )
        self._writes += 1
        if self._writes % self._checkpoint_every == 0 and self._journal == "wal":
            self._checkpointer.ask()
        unindexed = self._writes - self._indexed_at
        # While other threads wait to write, they come first; the tail only grows a little longer.
        if unindexed >= INDEX_EVERY_N_WRITES and (unindexed >= INDEX_AT_LAST or not self._queue.has_waiting):
            self._indexed_at = self._writes
            self._index_if_free()
        return cast(T, result)

    def alone(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with the writing connection that no transaction allows, while nobody else writes."""
        self._writable()
        return cast(T, self._queue.do(Ticket(lambda writer: work(writer.raw), outside=True)))

    def _transact(self, batch: list[Ticket]) -> None:
        """One commit for the whole batch; see `CommitQueue`."""
        begun = False
        try:
            if batch[0].outside:
                self._run_all(batch)
            else:
                self._usable()
                self._begin(impatient=batch[0].impatient)
                begun = True
                self._run_all(batch)
                self._connection.execute("COMMIT")
                if not self._lasted():
                    self._write_again(batch)
        except (apsw.Error, UnicodeDecodeError) as problem:
            self._roll_back()
            told = self._told(problem)
            for ticket in batch:
                ticket.error = ticket.error or told
        except Exception as problem:  # noqa: BLE001 - whatever a work raises is its caller's to hear
            self._roll_back()
            for ticket in batch:
                ticket.error = ticket.error or problem
        except BaseException:
            # Interrupted. Before the commit it is as if nothing had been asked; after it the followers have theirs.
            committed = begun and not self._connection.in_transaction and self._lasted()
            self._roll_back()
            for ticket in batch:
                ticket.finished = committed
            raise
        for ticket in batch:
            ticket.finished = True

    def _lasted(self) -> bool:
        """Whether what was just committed is where other processes will read it."""
        return self._journal != "wal" or self._guard.log_in_place()

    def _begin(self, *, impatient: bool = False) -> None:
        """Take the write lock, in turn with other processes, before the deadline."""
        if impatient:
            if self._turnstile.occupied():
                raise apsw.BusyError("others are waiting")
            self._begin_within(0)
            return
        until = time.monotonic() + self._deadline
        if not self._turnstile.occupied():
            try:
                self._begin_within(min(AT_FIRST_S, self._deadline))
                return
            except apsw.BusyError:
                pass
        self._turnstile.enter(until)
        try:
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
        finally:
            self._patience.seconds = self._deadline

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
                known = isinstance(problem, apsw.Error | UnicodeDecodeError)
                ticket.error = self._told(problem) if known else problem
            self._connection.execute("RELEASE one")

    def _roll_back(self) -> None:
        if not self._closed and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _write_again(self, batch: list[Ticket]) -> None:
        """The log was taken away under us: what was just committed may be in a file nobody will read.

        It can be written into the new log only by connections that know nothing of the old one. Where this process
        has others that cannot be closed, nothing more is acknowledged.
        """
        self._checkpointer.stop()
        if not self._is_only_user():
            self._damage = errors.raised(
                errors.StoreFailed,
                f"another program took the write-ahead log of {self.path} away; the last change may not have lasted."
                " Close every SessionDB of this process on that file and open it again",
            )
            raise self._damage
        log.error("%s: another program took its write-ahead log away; writing the last rows again", self.path)
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._generation += 1
        self._close_connections()
        self._open()
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

    def _is_only_user(self) -> bool:
        """Whether every connection of this process to the file is ours to close, once running reads are done."""
        until = time.monotonic() + READS_END_S
        while self._reading and time.monotonic() < until:
            time.sleep(0.001)
        return not self._reading and not self._side and self._guard.users == 1

    # ---------------------------------------------------------------- searching

    def search(self, tree: Node, wanted: MessageFilter, limit: int, offset: int) -> SearchAnswer:
        if not self.read_only and self._worth_indexing():
            self.catch_up(SEARCH_CATCH_UP_S)

        def look() -> SearchAnswer:
            with self.read() as reader:
                return search.search(cast(SqliteReader, reader), tree, wanted, limit, offset)

        return self._mending_the_index(look)

    def catch_up(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._is_behind() and self._index_if_free() and time.monotonic() < until:
            pass

    def _worth_indexing(self) -> bool:
        """Whether to index before searching. A short tail that is still growing is cheaper to read than to index:
        its writers do that anyway, and a search should not queue up among them for the lock."""
        with self.read() as reader:
            _mark, above, changed = index.behind(cast(SqliteReader, reader), SHORT_TAIL + 1)
            if changed or above > SHORT_TAIL:
                return True
            return bool(above) and clock.now() - reader.value(index.NEWEST_TIME) > QUIET_S

    def _is_behind(self) -> bool:
        with self.read() as reader:
            _mark, above, changed = index.behind(cast(SqliteReader, reader), 1)
            return bool(above or changed)

    def _index_if_free(self) -> bool:
        """Index a batch if nobody holds the write lock; True if that was done. Never an error to the caller."""
        if self._damage is not None:
            return False
        try:
            self._queue.do(Ticket(index.follow, impatient=True))
            return True
        except errors.StoreBusy:
            return False
        except errors.IndexDamaged:
            self._rebuild_index()
            return True
        except errors.StoreError as problem:
            log.warning("%s: the search index waits: %s", self.path, problem)
            return False

    def _mending_the_index(self, act: Callable[[], T]) -> T:
        """Do something that may find the index broken; if it does, rebuild the index and do it again."""
        try:
            return act()
        except errors.IndexDamaged:
            if self.read_only:
                raise
        self._rebuild_index()
        return act()

    def _rebuild_index(self) -> None:
        log.warning("%s: the search index was damaged; it is being rebuilt from the messages", self.path)
        self.alone(index.rebuild)

    def delete_messages(self, writer: Writer, session_id: str) -> int:
        return index.delete_messages(cast(SqliteWriter, writer), session_id)

    # ---------------------------------------------------------------- upkeep

    def vacuum(self) -> None:
        self._vacuumed()

    def _vacuumed(self) -> bool:
        """Rewrite the file; whether nothing of the old one is left in the log, which readers can hold up."""

        def work(connection: apsw.Connection) -> bool:
            if self._journal != "wal":
                run(connection, "VACUUM")
                return True
            run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            run(connection, "VACUUM")
            busy, *_ = run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
            return not busy

        return self.alone(work)

    def optimize(self) -> Optimized:
        """Merge the index, give free pages back, refresh the planner's figures: for quiet moments."""
        from hermes.store.sqlite.migrations.course import shrink

        before = self._size()
        self.catch_up(3600)

        def work(connection: apsw.Connection) -> None:
            run(connection, index.MERGE)
            if pragma(connection, "PRAGMA auto_vacuum") == 0:  # a migration that was not let finish
                shrink(connection)
            run(connection, "PRAGMA incremental_vacuum")
            run(connection, "PRAGMA optimize")
            if self._journal == "wal":
                run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")

        self.alone(work)
        return Optimized(before, self._size())

    def erase_deleted(self) -> None:
        from hermes.store.sqlite import backup as backups

        self.catch_up(3600)
        self.alone(lambda connection: run(connection, index.MERGE))
        backups.drop_backups(self.path)
        if not self._vacuumed():
            told = f"deleted, but its bytes stay in {self.path} while another program reads it"
            raise errors.raised(
                errors.StoreBusy, f"{told}; run `hermes sessions optimize` when it has finished"
            )

    def verify(self) -> Health:
        from hermes.store.sqlite import doctor

        with self.read(settled=True) as reader:
            return doctor.verify(cast(SqliteReader, reader), self.path)

    def backup(self, target: Path | None) -> Backup:
        from hermes.store.sqlite import backup as backups

        connection = connect(self.path, read_only=True)
        try:
            return backups.make_backup(connection, self.path, target)
        finally:
            connection.close()

    def raw(self) -> RawConnection:
        """A connection of its own for plain SQL, closed with the store."""
        self._usable()
        connection = connect(self.path, read_only=self.read_only)
        self._side.append(connection)
        return RawConnection(connection, self.path)

    def _size(self) -> int:
        return sum(os.stat(name).st_size for name in (self.path, f"{self.path}-wal") if os.path.exists(name))

    # ---------------------------------------------------------------- closing, and what keeps others out

    def close(self) -> None:
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._abandon()
            return
        if self._writes and self._damage is None:
            try:
                self.catch_up(CLOSE_CATCH_UP_S)
            except errors.StoreError as problem:
                log.debug("closing %s with its index behind: %s", self.path, problem)
        self._queue.do(
            Ticket(lambda _: self._shut(), outside=True)
        )  # after the commit that is on its way, if any

    def _shut(self) -> None:
        if not self._closed:
            self._closed = True
            self._checkpointer.stop()
            self._close_connections()
            self._turnstile.close()

    def _close_connections(self) -> None:
        last = guards.leaving(self._guard)
        for connection in (*self._readers, *self._side, self._connection):
            connection.close(True)
        self._readers.clear()
        self._side.clear()
        if last:
            guards.left(self._guard)

    def _abandon(self) -> None:
        """In a forked child: the connections are the parent's. Keep them alive untouched, for closing would hurt it."""
        self._closed = True
        _PARENTS.append((self._connection, *self._readers, *self._side))

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
        if not isinstance(problem, apsw.Error):
            sentence = f"{self.path} holds text that is not UTF-8, written by another program; `hermes sessions repair`"
            return errors.raised(errors.StoreDamaged, f"{sentence} puts U+FFFD in place of each broken byte")
        told = translated(problem, self.path)
        if not isinstance(told, errors.StoreDamaged):
            return told
        from hermes.store.sqlite import doctor

        if doctor.only_index_is_broken(self.path):
            sentence = f"the search index of {self.path} is damaged; messages are not. It is rebuilt when the store is"
            return errors.raised(errors.IndexDamaged, f"{sentence} next open for writing")
        if self._damage is None:
            self._damage = told
            mark_damaged(self.path, str(problem))
        return told


_PARENTS: list[Any] = []
