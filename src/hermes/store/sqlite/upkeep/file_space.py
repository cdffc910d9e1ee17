"""The space that the file uses, and its return to the file system after deletions.

The terms of a deleted message stay in the index until FTS5 merges the segments of which the index consists,
and the freed pages stay on the free list until the file is truncated. `VACUUM` does both at once, but blocks
all writers and needs as much free space as the file. The functions here work in short steps, between which
others can write.
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
"""How many pages one step merges. Writing this many pages of the new segment takes about 20 ms."""

PAGE_COUNT = "PRAGMA page_count"
PAGES_BY_TABLE = "SELECT name, pgsize FROM dbstat('main', 1)"
FREE = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"

INDEX = ("messages_fts", "index_progress")
"""The prefixes of the names of tables that belong to the search index.

The index can be rebuilt from the messages.
"""
ATTACHMENTS = ("blobs", "blob_refs", "idx_blob", "sqlite_autoindex_blob")


def merge_segments(step: Callable[[Callable[[SqliteWriter], bool]], bool]) -> None:
    """Merge the index of messages, and that of blocks, into one FTS5 segment each, without deleted entries.

    `step` runs each part of the work in its own transaction.
    """
    for merge_some in (index.MERGE_SOME, blocks.MERGE_SOME):
        _merge_index(step, merge_some)


def _merge_index(step: Callable[[Callable[[SqliteWriter], bool]], bool], merge_some: LiteralString) -> None:
    pages: list[int] = []

    def begin(writer: SqliteWriter) -> bool:
        pages[:] = [writer.value(PAGE_COUNT)]
        # A negative number makes FTS5 queue every segment for the merge, even a single one.
        return _merge_some(writer, merge_some, -PAGES_MERGED_AT_ONCE)

    more = step(begin)
    # The number of steps is bounded, because others may write so fast that there is always something to merge.
    for _ in range(pages[0] // PAGES_MERGED_AT_ONCE + 1):
        if not more:
            return
        more = step(partial(_merge_some, merge_some=merge_some, pages=PAGES_MERGED_AT_ONCE))


def _merge_some(writer: SqliteWriter, merge_some: LiteralString, pages: int) -> bool:
    """Merge about `pages` pages of one full-text index, with the statement `merge_some`.

    Return whether there was something to merge. FTS5 shows this by changing more than one row.
    """
    run(writer.raw, "PRAGMA secure_delete=FAST")  # as `index.follow` does, and for the same reason
    try:
        before = writer.raw.total_changes()
        writer.run(merge_some, pages)
        return writer.raw.total_changes() - before > 1
    finally:
        run(writer.raw, "PRAGMA secure_delete=ON")


def cut_free_pages(step: Callable[[Callable[[SqliteWriter], int]], int], pages_at_once: int) -> None:
    """Remove the free pages from the database file: pages in use are moved to their places, and the end of the file
    is cut off.

    `step` runs each part of the work, `pages_at_once` pages, in its own transaction. The file on disk becomes shorter
    at the next checkpoint.
    """
    pages_at_once = max(1, pages_at_once)

    def cut_some(writer: SqliteWriter) -> int:
        writer.raw.pragma("incremental_vacuum", pages_at_once)  # reads every row: each row frees one page
        return int(writer.raw.pragma("freelist_count"))

    free = step(cut_some)
    for _ in range(free // pages_at_once + 1):
        if not free:
            return
        free = step(cut_some)


def measure_sizes(reader: SqliteReader, path: Path) -> dict[str, int]:
    """Return the disk space that the store at `path` uses, in bytes, by purpose: rows, index, attachments, free pages
    and log.

    This is slow, because every page of the file is read.
    """
    found = {"rows": 0, "index": 0, "attachments": 0, "free": int(reader.value(FREE) or 0), "log": 0}
    for name, size in reader.rows(PAGES_BY_TABLE):
        kind = (
            "index" if name.startswith(INDEX) else "attachments" if name.startswith(ATTACHMENTS) else "rows"
        )
        found[kind] += size
    log = Path(f"{path}-wal")
    found["log"] = os.stat(log).st_size if log.exists() else 0
    return found
