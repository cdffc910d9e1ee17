"""The room that the file takes, and how that of what was deleted is given back to the file system.

A deleted message leaves its terms in the segments of the index until these are merged, and its pages on the free list
until the file is cut. `VACUUM` does both at once, but nobody writes meanwhile, and it needs as much room again. Here it
is done in short steps between which others write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import LiteralString

from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, run
from hermes.store.sqlite.search import blocks, index

INCREMENTAL = 2
PAGES_MERGED_AT_ONCE = 64
"""So many pages of the new segment are written in some 20 ms."""

PAGE_COUNT = "PRAGMA page_count"
PAGES_BY_TABLE = "SELECT name, pgsize FROM dbstat('main', 1)"
FREE = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"

INDEX = ("messages_fts", "index_progress")
"""How the names of tables begin that searches read, and that can be made again from the messages."""
ATTACHMENTS = ("blobs", "blob_refs", "idx_blob", "sqlite_autoindex_blob")


def merge_segments(step: Callable[[Callable[[SqliteWriter], bool]], bool]) -> None:
    """Merge each index into one segment, without what was deleted; each step is a transaction of its own."""
    for merge_some in (index.MERGE_SOME, blocks.MERGE_SOME):
        _merge_index(step, merge_some)


def _merge_index(step: Callable[[Callable[[SqliteWriter], bool]], bool], merge_some: LiteralString) -> None:
    pages: list[int] = []

    def begin(writer: SqliteWriter) -> bool:
        pages[:] = [writer.value(PAGE_COUNT)]
        # Below zero: every segment is put in line, even a single one.
        return _merge_some(writer, merge_some, -PAGES_MERGED_AT_ONCE)

    more = step(begin)
    # As many steps as the index can need, for others may write so fast that there is always something to merge.
    for _ in range(pages[0] // PAGES_MERGED_AT_ONCE + 1):
        if not more:
            return
        more = step(partial(_merge_some, merge_some=merge_some, pages=PAGES_MERGED_AT_ONCE))


def _merge_some(writer: SqliteWriter, merge_some: LiteralString, pages: int) -> bool:
    """Whether there was something to merge: FTS5 says so by changing more than the row that asked."""
    run(writer.raw, "PRAGMA secure_delete=FAST")  # as `index.follow` does, and for the same reason
    try:
        before = writer.raw.total_changes()
        writer.run(merge_some, pages)
        return writer.raw.total_changes() - before > 1
    finally:
        run(writer.raw, "PRAGMA secure_delete=ON")


def cut_free_pages(step: Callable[[Callable[[SqliteWriter], int]], int], pages_at_once: int) -> None:
    """Move free pages to the end of the file and cut them off. The file itself follows with the next checkpoint."""
    pages_at_once = max(1, pages_at_once)

    def cut_some(writer: SqliteWriter) -> int:
        writer.raw.pragma("incremental_vacuum", pages_at_once)  # reads every row: each is one page cut off
        return int(writer.raw.pragma("freelist_count"))

    free = step(cut_some)
    for _ in range(free // pages_at_once + 1):
        if not free:
            return
        free = step(cut_some)


def measure_sizes(reader: SqliteReader, path: Path) -> dict[str, int]:
    """What the file takes on disk, by what it is there for. Every page is looked at, so it takes a moment."""
    found = {"rows": 0, "index": 0, "attachments": 0, "free": int(reader.value(FREE) or 0), "log": 0}
    for name, size in reader.rows(PAGES_BY_TABLE):
        kind = (
            "index" if name.startswith(INDEX) else "attachments" if name.startswith(ATTACHMENTS) else "rows"
        )
        found[kind] += size
    log = Path(f"{path}-wal")
    found["log"] = os.stat(log).st_size if log.exists() else 0
    return found
