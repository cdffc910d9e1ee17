"""What the file takes on disk, by what it is there for. Every page is looked at, so it takes a moment."""

from __future__ import annotations

import os
from pathlib import Path

from hermes.store.sqlite.connection import SqliteReader

PAGES = "SELECT name, pgsize FROM dbstat('main', 1)"
FREE = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"

INDEX = ("messages_fts", "index_progress")
"""How the names of tables begin that searches read, and that can be made again from the messages."""
ATTACHMENTS = ("blobs", "blob_refs", "idx_blob", "sqlite_autoindex_blob")


def sizes(reader: SqliteReader, path: Path) -> dict[str, int]:
    found = {"rows": 0, "index": 0, "attachments": 0, "free": int(reader.value(FREE) or 0), "log": 0}
    for name, size in reader.rows(PAGES):
        kind = (
            "index" if name.startswith(INDEX) else "attachments" if name.startswith(ATTACHMENTS) else "rows"
        )
        found[kind] += size
    log = Path(f"{path}-wal")
    found["log"] = os.stat(log).st_size if log.exists() else 0
    return found
