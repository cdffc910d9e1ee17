"""The index follows close behind the rows: in batches, when the lock is free, off the way of whoever waits to write.

What happens here is never an error of the write that it happens after: that is committed by now. An index that turns
out to be damaged is rebuilt from the messages.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.store.engine import Writer
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter
from hermes.store.sqlite.group_commit import Ticket, is_from_signal_handler
from hermes.store.sqlite.transactions import SqliteCore

if TYPE_CHECKING:
    from hermes.store.sqlite.search.index import Standing
    from hermes.store.sqlite.search.split_texts import Texts

log = get_logger(__name__)
T = TypeVar("T")

LOOK_EVERY_N_WRITES, BATCH = 32, 128
"""How often a writer looks whether a batch is waiting, whoever wrote it, and how long that is. Fewer rows at once make
more segments, and each is merged again and again: batches of 32 cost a third more for each row. More make searches slow
that have to read what is not indexed yet."""
INDEX_AT_LAST = 2 * BATCH
"""A tail of so many rows is indexed even if threads wait: it makes searches slow."""
CLOSE_CATCH_UP_S = 0.25
SHORT_TAIL, QUIET_S = 2 * BATCH, 1.0
"""A tail this short that grew within the last second is read, not indexed, by a search."""


class SqliteFollower(SqliteCore):
    def __init__(self, path: Path, **figures: Any) -> None:
        super().__init__(path, **figures)
        self._looked_at = 0
        self._indexer = threading.Lock()

    @cached_property
    def _texts(self) -> Texts:
        from hermes.store.sqlite.search.split_texts import Texts

        return Texts()

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        try:
            result = super().write(work, share=share, repeatable=repeatable)
        except (errors.IndexDamaged, errors.StoreFull) as problem:
            result = self._write_again_after(problem, work, share=share, repeatable=repeatable)
        if self._writes - self._looked_at >= LOOK_EVERY_N_WRITES:
            self._looked_at = self._writes
            try:
                self._index_a_batch()
            except Exception as problem:  # the write is committed; no descriptor is left, for example
                if is_from_signal_handler(problem):
                    raise
                log.warning("%s: the search index waits: %s", self.path, problem)
        return result

    def _write_again_after(
        self, problem: Exception, work: Callable[[Writer], T], *, share: bool, repeatable: bool
    ) -> T:
        """Mend what kept the write from being made, and make it."""
        if isinstance(problem, errors.IndexDamaged):
            self._rebuild_index()
            try:
                return super().write(work, share=share, repeatable=repeatable)
            except errors.StoreFull as further:
                problem = further
        if not self._make_room_for_ids():
            raise problem
        return super().write(work, share=share, repeatable=repeatable)

    def _make_room_for_ids(self) -> bool:
        """Where no new row has an id because of what another program stored, give those rows others; whether so."""
        from hermes.store.sqlite import row_ids

        with self.read() as reader:
            if not row_ids.find_high_ids(reader):
                return False
        for change in super().write(row_ids.move_high_ids, share=False):
            log.warning("%s: %s", self.path, change)
        return True

    def _index_a_batch(self) -> None:
        """Index if that is worth a transaction. Never an error: see `_do_index`."""
        from hermes.store.sqlite.search import index

        try:
            with self.read() as reader:
                above, changed = index.waiting(cast(SqliteReader, reader))
        except errors.StoreError:  # whoever indexes finds out what it is, and mends or tells it
            above, changed = INDEX_AT_LAST, True
        late = above >= INDEX_AT_LAST
        # While other threads wait to write, they come first; the tail only grows a little longer.
        if late or ((changed or above >= BATCH) and not self._queue.has_waiting):
            self._index_some(late=late)

    def close(self) -> None:
        if not self._closed and self._writes and self._damage is None and os.getpid() == self._pid:
            try:
                self.catch_up(CLOSE_CATCH_UP_S)
            except errors.StoreError as problem:
                log.debug("closing %s with its index behind: %s", self.path, problem)
        super().close()

    def _settle_blocks(self, seconds: float) -> None:
        """Index the blocks that still grow, in order to rank by them."""
        from hermes.store.sqlite.search import index

        self.catch_up(seconds)
        until = time.monotonic() + seconds
        while self._has_growing_blocks() and self._do_index(index.settle) and time.monotonic() < until:
            pass

    def _has_growing_blocks(self) -> bool:
        from hermes.store.sqlite.search import blocks

        with self.read() as reader:
            return reader.value(blocks.ANY_WAITING) is not None

    def _has_tail(self) -> bool:
        from hermes.store.sqlite.search import index

        with self.read() as reader:
            _mark, above, changed = index.behind(cast(SqliteReader, reader), 1)
            return bool(above or changed)

    def catch_up(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._is_behind() and self._index_some() and time.monotonic() < until:
            pass

    @staticmethod
    def _worth_indexing(reader: SqliteReader, standing: Standing) -> bool:
        """Whether to index before searching. A short tail that is still growing is cheaper to read than to index:
        its writers do that anyway, and a search should not queue up among them for the lock."""
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

        with self.read() as reader:
            mark, above, changed = index.behind(cast(SqliteReader, reader), 1)
            return bool(above or changed) or blocks.are_behind(cast(SqliteReader, reader), mark)

    def _index_some(self, *, late: bool = False) -> bool:
        """Index a batch, if the write lock can be had and nobody else is at it; True if that was done.

        What is `late` is indexed by everybody who writes, in turn, so that nobody outruns the index for ever.
        """
        with self._indexing() as alone:
            if not alone and not late:
                return False
            done = self._do_index(self._follow_late if late else self._follow, patiently=late)
            if done:
                self._texts.forget()
            return done

    @contextmanager
    def _indexing(self) -> Iterator[bool]:
        """Whether no other thread or process is indexing: two would queue up for the same rows."""
        alone = self._indexer.acquire(blocking=False)
        try:
            first = alone and self._turnstile.start_indexing()
            try:
                yield first
            finally:
                if first:
                    self._turnstile.stop_indexing()
        finally:
            if alone:
                self._indexer.release()

    def _follow(self, writer: SqliteWriter) -> bool:
        from hermes.store.sqlite.search import substring

        return substring.follow_index(writer)

    def _follow_late(self, writer: SqliteWriter) -> bool:
        """Others may have been here while we waited for the lock."""
        from hermes.store.sqlite.search import index

        return index.waiting(writer)[0] >= BATCH and self._follow(writer)

    def _do_index(self, work: Callable[[SqliteWriter], bool], *, patiently: bool = False) -> bool:
        """Never an error to the caller, whose own write is committed by now and must not be made a second time."""
        if self._damage is not None:
            return False
        try:
            self._queue.do(Ticket(work, impatient=not patiently))
        except errors.StoreBusy:
            return False
        except errors.IndexDamaged:
            self._rebuild_index()
        except Exception as problem:
            if is_from_signal_handler(problem):
                raise
            log.warning("%s: the search index waits: %s", self.path, problem)
            return False
        return True

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
        from hermes.store.sqlite.search import index, substring

        self.alone(substring.forget)
        self.alone(index.rebuild)
