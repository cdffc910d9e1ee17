"""The indexer: after a write, it indexes a batch of messages if the lock is free and no other thread waits to
write.

A failure to index is never reported as an error of the preceding write, which is already committed. A damaged
index is rebuilt from the messages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter
from hermes.store.sqlite.group_commit import Ticket, is_from_signal_handler

if TYPE_CHECKING:
    from hermes.store.sqlite.search.index import Standing
    from hermes.store.sqlite.search.split_texts import Texts
    from hermes.store.sqlite.transactions import Transactions

log = get_logger(__name__)
T = TypeVar("T")

LOOK_EVERY_N_WRITES, BATCH = 32, 128
"""`LOOK_EVERY_N_WRITES`: after this many writes, a writer checks whether a batch of unindexed rows is
waiting. The rows can be those of any writer. `BATCH`: the number of rows in a batch.

Smaller batches make more FTS5 segments, which are merged repeatedly: batches of 32 cost a third more per row.
Larger batches slow down searches, which have to read the unindexed rows.
"""
INDEX_AT_LAST = 2 * BATCH
"""An unindexed tail (messages that are not in the index yet) of this many rows is indexed even if threads
wait to write.

A longer tail would slow down searches too much.
"""
SHORT_TAIL, QUIET_S = 2 * BATCH, 1.0
"""How a search treats the unindexed tail.

If the tail has up to SHORT_TAIL rows, and has grown within the last QUIET_S seconds, the search reads it
without indexing it first.
"""


class Indexer:
    """Keeps the search index of one store up to date with its messages, with a short delay."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._connections = transactions.connections
        self.due_at_write = LOOK_EVERY_N_WRITES
        """The total number of writes at which a writer next calls `follow_writes`."""
        self._at_work = threading.Lock()

    @cached_property
    def texts(self) -> Texts:
        from hermes.store.sqlite.search.split_texts import Texts

        return Texts()

    def follow_writes(self) -> None:
        """Index a batch if one is waiting.

        Do not raise errors, because the preceding write is already committed.
        """
        self.due_at_write = self._transactions.writes + LOOK_EVERY_N_WRITES
        try:
            self._index_a_batch()
        except Exception as problem:  # for example, no file descriptor is left
            if is_from_signal_handler(problem):
                raise
            log.warning("%s: the search index is delayed: %s", self._connections.path, problem)

    def _index_a_batch(self) -> None:
        """Index a batch of messages if enough messages are unindexed, or some were changed.

        Errors of indexing are logged, not raised: see `_do_index`.
        """
        from hermes.store.sqlite.search import index

        try:
            with self._transactions.read() as reader:
                above, changed = index.measure_waiting(cast(SqliteReader, reader))
        except errors.StoreError:  # indexing meets the same problem, and repairs or logs it
            above, changed = INDEX_AT_LAST, True
        late = above >= INDEX_AT_LAST
        # Other threads that wait to write go first. The tail grows only a little longer.
        if late or ((changed or above >= BATCH) and not self._transactions.queue.has_waiting):
            self._index_some(late=late)

    def settle_blocks(self, seconds: float) -> None:
        """Before a ranked search, index the unfinished blocks, for about `seconds` at most."""
        from hermes.store.sqlite.search import index

        self.catch_up(seconds)
        until = time.monotonic() + seconds
        while self._has_growing_blocks() and self._do_index(index.settle) and time.monotonic() < until:
            pass

    def _has_growing_blocks(self) -> bool:
        from hermes.store.sqlite.search import blocks

        with self._transactions.read() as reader:
            return reader.value(blocks.ANY_WAITING) is not None

    def has_tail(self) -> bool:
        from hermes.store.sqlite.search import index

        with self._transactions.read() as reader:
            _mark, above, changed = index.measure_lag(cast(SqliteReader, reader), 1)
            return bool(above or changed)

    def catch_up(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._is_behind() and self._index_some() and time.monotonic() < until:
            pass

    @staticmethod
    def is_worth_indexing(reader: SqliteReader, standing: Standing) -> bool:
        """Return whether a search should index the unindexed tail before it searches.

        A short tail to which writers are still adding messages is cheaper to read than to index. The writers index
        such a tail themselves, and a search should not compete with them for the write lock.
        """
        from hermes.store.sqlite.search import index

        _mark, above, changed = standing
        if changed or above > SHORT_TAIL:
            return True
        if not above:
            return False
        newest = reader.value(index.NEWEST_TIME)
        return not clock.is_time(newest) or clock.now() - newest > QUIET_S

    def _is_behind(self) -> bool:
        from hermes.store.sqlite.search import blocks, index

        with self._transactions.read() as reader:
            mark, above, changed = index.measure_lag(cast(SqliteReader, reader), 1)
            return bool(above or changed) or blocks.is_behind(cast(SqliteReader, reader), mark)

    def _index_some(self, *, late: bool = False) -> bool:
        """Index a batch if the write lock is free and no one else is indexing. Return whether a batch was
        indexed.

        `late` means that too many rows are unindexed. The call then waits for the write lock, and indexes a
        batch even if another thread or process is indexing. Without this, fast writers could keep the index
        behind forever.
        """
        with self._indexing() as alone:
            if not alone and not late:
                return False
            done = self._do_index(self._follow_late if late else self._follow, patiently=late)
            if done:
                self.texts.forget()
            return done

    @contextmanager
    def _indexing(self) -> Iterator[bool]:
        """Yield True if no other thread or process is indexing, and mark this thread as the indexer during
        the block. Otherwise yield False. Two indexers would compete for the same rows."""
        alone = self._at_work.acquire(blocking=False)
        try:
            first = alone and self._connections.writer_queue.start_indexing()
            try:
                yield first
            finally:
                if first:
                    self._connections.writer_queue.stop_indexing()
        finally:
            if alone:
                self._at_work.release()

    def _follow(self, writer: SqliteWriter) -> bool:
        from hermes.store.sqlite.search import substring

        return substring.follow_index(writer)

    def _follow_late(self, writer: SqliteWriter) -> bool:
        """Index a batch of messages if enough are still unindexed. Another process may have indexed them while this
        process waited for the write lock. Return whether more messages wait to be indexed.
        """
        from hermes.store.sqlite.search import index

        return index.measure_waiting(writer)[0] >= BATCH and self._follow(writer)

    def _do_index(self, work: Callable[[SqliteWriter], bool], *, patiently: bool = False) -> bool:
        """Run `work`, which indexes messages or blocks, in a transaction. Return whether it was run.

        If `patiently` is false, `work` is run only if the write lock is free now. Errors are logged, not raised: the
        write after which this is called is already committed and must not be repeated.
        """
        if self._connections.damage is not None:
            return False
        try:
            self._transactions.queue.do(Ticket(work, impatient=not patiently))
        except errors.StoreBusy:
            return False
        except errors.IndexDamaged:
            self.rebuild()
        except Exception as problem:
            if is_from_signal_handler(problem):
                raise
            log.warning("%s: the search index is delayed: %s", self._connections.path, problem)
            return False
        return True

    def repair_and_retry(self, act: Callable[[], T]) -> T:
        """Call `act` and return its result. If it raises `IndexDamaged`, rebuild the search index and call `act`
        again.

        In a read-only store the error is raised, because the index cannot be rebuilt.
        """
        try:
            return act()
        except errors.IndexDamaged:
            if self._connections.read_only:
                raise
        self.rebuild()
        return act()

    def list_terms(self) -> None:
        """Update the list of terms for `*part*` queries.

        Errors are logged only, because search works without the list.
        """
        from hermes.store.sqlite.search import substring

        try:
            self.repair_and_retry(lambda: substring.follow(self._transactions))
        except errors.StoreError as problem:
            log.debug("%s: the list of terms is delayed: %s", self._connections.path, problem)

    def rebuild(self) -> None:
        log.warning(
            "%s: the search index was damaged; it is being rebuilt from the messages", self._connections.path
        )
        from hermes.store.sqlite.search import index, substring

        self._transactions.run_alone(substring.forget)
        self._transactions.run_alone(index.rebuild)
