"""The SQLite engine: transactions, exact search, and the upkeep of the file.

It consists of `Transactions` (with the connections and the commit queue) and an `Indexer`. Modules that are needed
only for search, upkeep or damage are imported where they are used, so that opening a store and listing its sessions
stay light.
"""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw

from hermes import errors
from hermes.config import config_file
from hermes.logs import get_logger
from hermes.store.engine import Outcome, Reader, Secret, Writer
from hermes.store.sessions.blobs import Blobs
from hermes.store.sqlite.connection import (
    SqliteReader,
    SqliteWriter,
    connect,
    pragma,
    run,
    translate_error,
    upkeep_command,
)
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.group_commit import Ticket
from hermes.store.sqlite.search.indexer import SHORT_TAIL, Indexer
from hermes.store.sqlite.shared_transaction import SharedTransaction
from hermes.store.sqlite.transactions import Snapshot, Transactions
from hermes.store.sqlite.wal.log_lock import NAP_S, LogLock

if TYPE_CHECKING:
    from hermes.store.findings import Diagnosis
    from hermes.store.query_tree import Node
    from hermes.store.sealing.sealed_files import SealedFiles
    from hermes.store.sqlite.raw import RawConnection
    from hermes.store.sqlite.scope import Owners, ScopedEngine
    from hermes.store.sqlite.search.unindexed_tail import Deadline
    from hermes.store.values import (
        Backup,
        Candidates,
        Fingerprint,
        Health,
        Hit,
        MessageFilter,
        Optimized,
        ScrubReceipt,
        SearchAnswer,
        SearchRequest,
    )

log = get_logger(__name__)
T = TypeVar("T")

CLOSE_CATCH_UP_S = 0.25
"""How long closing the store may index waiting messages."""
SEARCH_CATCH_UP_S = 2.0
"""How long a search may index waiting messages first."""
RANKING_CATCH_UP_S = 0.25
"""How long a ranked search may index blocks first.

Longer is not needed: while blocks are missing, messages are searched instead.
"""
UPKEEP_S = 3600.0
"""How long an upkeep operation may index waiting messages first."""
TRUNCATE_S = 1.0
"""How long to wait for readers before the log is left as it is."""
TRUNCATE_NAP_S = 0.01


class SqliteEngine:
    """The engine for a SQLite file. See `hermes.store.engine.Engine`."""

    def __init__(self, path: Path, *, read_only: bool = False, **figures: Any) -> None:
        """Open the store at `path`, or create it. `figures` are further keyword arguments, which are passed
        to `Transactions`.
        """
        self.path = path
        self.read_only = read_only
        self._transactions = Transactions(path, read_only=read_only, **figures)
        self._connections = self._transactions.connections
        self._queue = self._transactions.queue
        self._indexer = Indexer(self._transactions)
        self._deadlines: dict[int, Deadline] = {}
        """By thread: the deadline that all searches within `share_deadline` share."""

    @property
    def spool_allowed(self) -> bool:
        """Whether plain-text spooling is allowed. For an encrypted store this needs the setting `sessions.spool`."""
        return not encryption.is_encrypted(self.path) or config_file.read_setting("sessions", "spool") is True

    def close(self) -> None:
        connections = self._connections
        is_ours = not connections.is_closed and os.getpid() == connections.pid
        if is_ours and self._transactions.writes and connections.damage is None:
            try:
                self.catch_up(CLOSE_CATCH_UP_S)
            except errors.StoreError as problem:
                log.debug("%s: closed before its search index was complete: %s", self.path, problem)
        connections.close()

    # ---------------------------------------------------------------- reading and writing

    def read(
        self, *, settled: bool = False, wait: bool = True, owners: Owners | None = None
    ) -> AbstractContextManager[Reader]:
        shared = self._transactions.shared.get(get_ident())
        if shared is not None:
            shared.prepare_read()
        return Snapshot(self._transactions, settled, wait, owners)

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        shared = self._transactions.shared.get(get_ident())
        if shared is not None and share:
            return shared.write(work)
        if shared is not None:
            shared.note_own_write()
        self._connections.check_writable()
        try:
            result: T = self._queue.do(Ticket(work, share=share, repeatable=repeatable))
        except (errors.IndexDamaged, errors.StoreFull) as problem:
            result = self._repair_and_write(problem, work, share=share, repeatable=repeatable)
        self._transactions.count_write()
        self._index_if_due()
        return result

    def _index_if_due(self) -> None:
        if self._transactions.writes >= self._indexer.due_at_write:
            self._indexer.follow_writes()

    def run_together(self, calls: Sequence[Callable[[], object]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        # Without a log, a read could wait for the transaction that its own thread has open.
        if self._connections.journal == "wal":
            outcomes = SharedTransaction(self._transactions).run(calls)
            self._index_if_due()
        return [*outcomes, *map(self._run_alone, calls[len(outcomes) :])]

    def _run_alone(self, call: Callable[[], object]) -> Outcome:
        before = self._transactions.writes
        try:
            return Outcome(call(), None, self._transactions.writes > before)
        except BaseException as problem:  # noqa: BLE001 - the outcome of this call
            return Outcome(None, problem, self._transactions.writes > before)

    def sync(self) -> None:
        self._transactions.sync_log()

    def _repair_and_write(
        self, problem: Exception, work: Callable[[Writer], T], *, share: bool, repeatable: bool
    ) -> T:
        """Repair the condition that made the write `work` fail, then run `work` again and return its result.

        `problem` is the error of the failed write. If it says that the search index is damaged, the index is rebuilt.
        Otherwise rows with too high ids are moved to lower ids.
        """

        def write() -> T:
            self._connections.check_writable()
            return cast(T, self._queue.do(Ticket(work, share=share, repeatable=repeatable)))

        if isinstance(problem, errors.IndexDamaged):
            self._indexer.rebuild()
            with suppress(errors.StoreFull):
                return write()
        self._make_room_for_ids()
        return write()  # even if no id was moved: another thread or process may have moved them just before

    def _make_room_for_ids(self) -> None:
        """If no new rows can be added because another program stored a row with the highest possible id, give such
        rows lower ids.
        """
        from hermes.store.sqlite.upkeep import row_ids

        with self.read() as reader:
            if not row_ids.find_high_ids(reader):
                return
        self._connections.check_writable()
        for change in self._queue.do(Ticket(row_ids.move_high_ids)):
            log.warning("%s: %s", self.path, change)

    def catch_up(self, seconds: float) -> None:
        self._indexer.catch_up(seconds)

    # ---------------------------------------------------------------- searching

    def scoped(self, owners: Owners) -> ScopedEngine:
        from hermes.store.sqlite.scope import ScopedEngine

        return ScopedEngine(self, owners)

    @contextmanager
    def share_deadline(self) -> Iterator[None]:
        if get_ident() in self._deadlines:
            yield
            return
        self._deadlines[get_ident()] = self._search_deadline()
        try:
            yield
        finally:
            self._deadlines.pop(get_ident(), None)

    def _search_deadline(self) -> Deadline:
        from hermes.store.sqlite.search.unindexed_tail import Deadline

        return self._deadlines.get(get_ident()) or Deadline.after(self._connections.deadline, self.path)

    def search(self, tree: Node, request: SearchRequest, *, owners: Owners | None = None) -> SearchAnswer:
        from hermes.store.sqlite.search import exact_search, index, substring

        deadline = self._search_deadline()
        if not self.read_only and owners is None and substring.has_part(tree):
            self._indexer.list_terms()

        def look(ignore_lag: bool) -> SearchAnswer | None:
            with self.read(owners=owners) as reader:
                snapshot = cast(SqliteReader, reader)
                standing = index.measure_lag(snapshot, SHORT_TAIL + 1)
                if not ignore_lag and self._indexer.is_worth_indexing(snapshot, standing):
                    return None
                known = substring.expand_parts(snapshot, tree, own=owners is not None)
                answer = exact_search.search(
                    snapshot, known, request, standing, self._indexer.texts, deadline
                )
                return answer._replace(cut=substring.find_cut(known))

        answer = self._indexer.repair_and_retry(lambda: look(self.read_only))
        if answer is None:
            self.catch_up(SEARCH_CATCH_UP_S)
            answer = self._indexer.repair_and_retry(lambda: look(True))
        return cast("SearchAnswer", answer)

    def hits_of(self, ids: Sequence[int], *, owners: Owners | None = None) -> list[Hit]:
        from hermes.store.sqlite.search import exact_search

        with self.read(owners=owners) as reader:
            return exact_search.hits_of(cast(SqliteReader, reader), ids)

    def candidates(
        self,
        terms: Sequence[str],
        wanted: MessageFilter,
        *,
        must: Node | None = None,
        days: Sequence[tuple[float, float]] = (),
        owners: Owners | None = None,
    ) -> Candidates:
        from hermes.store.sqlite.search import bm25_candidates, substring

        deadline = self._search_deadline()
        if not self.read_only:
            if self._indexer.has_tail():
                self.catch_up(SEARCH_CATCH_UP_S)
            self._indexer.settle_blocks(RANKING_CATCH_UP_S)
            if owners is None and must is not None and substring.has_part(must):
                self._indexer.list_terms()

        def look() -> Candidates:
            with self.read(owners=owners) as reader:
                snapshot = cast(SqliteReader, reader)
                known = (
                    None if must is None else substring.expand_parts(snapshot, must, own=owners is not None)
                )
                return bm25_candidates.candidates(snapshot, terms, wanted, known, days, deadline)

        return self._indexer.repair_and_retry(look)

    def delete_messages(self, writer: Writer, session_id: str) -> int:
        from hermes.store.sqlite.search import substring

        return substring.delete_messages(cast(SqliteWriter, writer), session_id)

    # ---------------------------------------------------------------- upkeep

    def vacuum(self) -> None:
        self._rewrite_file()

    def _rewrite_file(self) -> bool:
        """Merge the search index and vacuum the database file, so that no deleted content is left in them.

        Return False if deleted content is left in the write-ahead log, because other connections are still reading
        from the log.
        """
        from hermes.store.sqlite.search import blocks, index, substring

        Blobs(self).collect()
        self.catch_up(UPKEEP_S)

        def work(connection: apsw.Connection) -> bool:
            substring.forget(connection)
            run(connection, index.MERGE)
            run(connection, blocks.MERGE)
            if self._connections.journal != "wal":
                run(connection, "VACUUM")
                return True
            run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            run(connection, "VACUUM")
            busy, *_ = run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
            return not busy

        return self._transactions.run_alone(work)

    def optimize(self) -> Optimized:
        """Merge the search index, and return the free pages of the database file to the file system. Call this when
        no one uses the store.

        SQLite's ANALYZE is not run, because the samples that it stores would keep titles of deleted sessions. It is
        not needed either, because every query of the store fixes its own query plan.
        """
        from hermes.store.sqlite.migrations.runner import shrink
        from hermes.store.sqlite.search import blocks, index, substring
        from hermes.store.sqlite.upkeep import copy_cache
        from hermes.store.values import Optimized

        before = self._size()
        copy_cache.remove_all()
        Blobs(self).collect()
        self.catch_up(UPKEEP_S)

        def work(connection: apsw.Connection) -> None:
            substring.forget(connection)
            run(connection, index.MERGE)
            run(connection, blocks.MERGE)
            if pragma(connection, "PRAGMA auto_vacuum") == 0:  # an interrupted migration
                shrink(connection)
            run(connection, "PRAGMA incremental_vacuum")
            if self._connections.journal == "wal":
                run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")

        self._transactions.run_alone(work)
        return Optimized(before, self._size())

    def shrink(self, pages_at_once: int = 500) -> Optimized:
        from hermes.store.sqlite.search import substring
        from hermes.store.sqlite.upkeep import file_space
        from hermes.store.values import Optimized

        before = self._size()
        if (
            self._transactions.run_alone(lambda connection: pragma(connection, "PRAGMA auto_vacuum"))
            != file_space.INCREMENTAL
        ):
            self.vacuum()
            return Optimized(before, self._size())
        self.catch_up(UPKEEP_S)

        def step(work: Callable[[SqliteWriter], T]) -> T:
            return self.write(lambda writer: work(cast(SqliteWriter, writer)), share=False)

        self._transactions.run_alone(substring.forget)
        file_space.merge_segments(step)
        file_space.cut_free_pages(step, pages_at_once)
        if self._connections.journal == "wal":
            self._transactions.run_alone(self._truncate_log)
        return Optimized(before, self._size())

    def _truncate_log(self, connection: apsw.Connection) -> None:
        """Truncate the log, with a short wait. If readers prevent it, a later checkpoint truncates the log."""
        until = time.monotonic() + TRUNCATE_S
        self._connections.patience.seconds = TRUNCATE_S
        try:
            # SQLite does not wait for a checkpoint of another connection, such as the one in the background.
            while run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0] and time.monotonic() < until:
                time.sleep(TRUNCATE_NAP_S)
        finally:
            self._connections.patience.seconds = self._connections.deadline

    def sealed_files(self) -> SealedFiles:
        from hermes.store.sealing.sealed_files import SealedFiles
        from hermes.store.sqlite.encryption.file_keys import FileKeys

        return SealedFiles(self.path.parent, FileKeys(self.path))

    def fingerprint(self, reader: Reader, session_id: str) -> Fingerprint:
        from hermes.store.sqlite.erasure.message_bytes import fingerprint

        return fingerprint(reader, session_id)

    def texts_of(self, reader: Reader, session_id: str) -> Iterator[str]:
        from hermes.store.sqlite.erasure.message_bytes import texts_of

        return texts_of(reader, session_id)

    def erase_deleted(self, gone: Mapping[str, Fingerprint | None]) -> None:
        from hermes.store.sqlite.erasure.purge_copies import CopyEraser

        done, left, unfinished = CopyEraser(self.path, gone).erase()
        for line in (*done, *left):
            log.warning("purge of %s session(s) in %s: %s", len(gone), self.path, line)
        if not self._rewrite_file():
            unfinished = (f"{self.path} (another program is reading it)", *unfinished)
        if unfinished:
            sentence = f"deleted, but its bytes may remain in {', '.join(unfinished)}"
            raise errors.make_error(
                errors.StoreBusy,
                f"{sentence}; run `{upkeep_command(self.path, 'optimize')}` when no other program uses the store",
            )

    def scrub(self, secret: Secret, *, dry_run: bool) -> ScrubReceipt:
        from hermes.store.sqlite.erasure import scrub_store

        return scrub_store.scrub(self, self._rewrite_file, secret, dry_run=dry_run)

    def verify(self) -> Health:
        from hermes.store.sqlite.upkeep import integrity

        with self.read() as reader:  # derived columns can be settled only if no column is missing
            if (lacking := integrity.find_missing(cast(SqliteReader, reader), self.path)) is not None:
                return lacking
        with self.read(settled=True) as reader:
            return integrity.verify(cast(SqliteReader, reader), self.path)

    def sizes(self) -> dict[str, int]:
        from hermes.store.sqlite.upkeep.file_space import measure_sizes

        with self.read() as reader:
            return measure_sizes(cast(SqliteReader, reader), self.path)

    def file_sizes(self) -> dict[str, int]:
        names = {"store": str(self.path), "log": f"{self.path}-wal"}
        return {name: os.stat(file).st_size if os.path.exists(file) else 0 for name, file in names.items()}

    def diagnose(self, *, deep: bool = False) -> Diagnosis:
        from hermes.store.sqlite.upkeep.diagnosis import diagnose

        return diagnose(self.path, deep=deep)

    def backup(self, target: Path | None) -> Backup:
        from hermes.store.sqlite.copies.backup import backup_file

        self._settle_removed_log()
        return backup_file(self.path, target)

    def raw(self) -> RawConnection:
        """Return a separate connection for plain SQL. It is closed with the store."""
        from hermes.store.sqlite.raw import RawConnection

        self._connections.check_usable()
        self._settle_removed_log()
        raw = RawConnection(
            lambda: connect(self.path, read_only=self.read_only),
            self.path,
            self._settle_removed_log,
            self._forget_raw,
            self._hold_log,
        )
        self._connections.raw_connections.append(raw)
        return raw

    def write_raw(self, work: Callable[[RawConnection], T]) -> T:
        connection = self.raw()
        try:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                return work(connection)
        finally:
            connection.close()

    def _settle_removed_log(self) -> None:
        self._connections.check_usable()
        if self._connections.guard.is_log_removed():
            self._connections.settle_log(reading=self.read_only)

    def _hold_log(self) -> LogLock:
        """Return the log lock, acquired in shared mode, after checking that the write-ahead log is in its place.

        Until the caller closes the returned lock, no process can start a new log.
        """
        until = time.monotonic() + self._connections.deadline
        while True:
            self._settle_removed_log()
            lock = LogLock(self._connections.guard, has_log=self._connections.journal == "wal")
            if (lock.share() and not self._connections.guard.is_log_removed()) or self.read_only:
                return lock
            lock.close()
            if time.monotonic() >= until:
                raise translate_error(apsw.BusyError(), self.path)
            time.sleep(NAP_S)

    def _forget_raw(self, raw: RawConnection) -> None:
        if raw in self._connections.raw_connections:
            self._connections.raw_connections.remove(raw)

    def _size(self) -> int:
        return sum(self.file_sizes().values())


class CopyEngine(SqliteEngine):
    """Reads a store of another version through a copy in the current layout. See `upkeep.readable_copy`."""

    def __init__(self, path: Path, **figures: Any) -> None:
        from hermes.store.sqlite.upkeep.readable_copy import open_copy

        copy, hold = open_copy(path)
        try:
            super().__init__(copy, read_only=True, **figures)
        except BaseException:
            hold.release()
            raise
        self._original = path
        self._hold = hold

    def close(self) -> None:
        from hermes.store.sqlite.upkeep import copy_cache

        super().close()
        if self._connections.is_closed:
            self._hold.release()
            copy_cache.remove_outdated()

    def verify(self) -> Health:
        """Verify the readable copy, and return the result under the path of the original store.

        The pages of the original were already checked when the copy was made.
        """
        return super().verify()._replace(path=self._original)

    def backup(self, target: Path | None) -> Backup:
        from hermes.store.sqlite.upkeep.readable_copy import back_up_original

        return back_up_original(self._original, target)
