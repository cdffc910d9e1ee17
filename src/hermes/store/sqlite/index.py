"""The message index follows `messages` behind a watermark, in short transactions, and is never guessed to be fresh.

Rows are chosen inside the transaction that indexes them. A row that was changed is always deleted, then inserted: a
second bare insert of a rowid into a contentless table leaves a ghost that nothing removes. Whoever finds the index
broken throws it away and starts at zero; it holds nothing that the rows do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes.store import blobs
from hermes.store.content import decode
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, run
from hermes.terms import index_texts
from hermes.text import text_of, text_of_tool_calls

ROWS_AT_ONCE = 128
BYTES_AT_ONCE = 96_000
"""About what can be folded, split and inserted in 20 ms: nobody waits longer for the write lock than that."""

WATERMARK = "SELECT value FROM index_progress WHERE name = 'messages'"
SET_WATERMARK = "UPDATE index_progress SET value = ? WHERE name = 'messages'"
ABOVE = """SELECT id, content, content_kind, tool_name, tool_calls, length(content) FROM messages
    WHERE id > ? ORDER BY id LIMIT ?"""
COUNT_ABOVE = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > ? LIMIT ?)"
NEWEST_TIME = "SELECT timestamp FROM messages ORDER BY id DESC LIMIT 1"
HIGHEST = "SELECT max(id) FROM messages"
CHANGED = "SELECT message_id FROM changed_messages ORDER BY message_id LIMIT ?"
ANY_CHANGED = "SELECT 1 FROM changed_messages LIMIT 1"
CLEAR_CHANGED = "DELETE FROM changed_messages WHERE message_id = ?"
ONE = "SELECT id, content, content_kind, tool_name, tool_calls FROM messages WHERE id = ?"
PUT = "INSERT INTO messages_fts_words (rowid, words, parts) VALUES (?, ?, ?)"
TAKE = "DELETE FROM messages_fts_words WHERE rowid = ?"

IDS_OF_SESSION = "SELECT id FROM messages WHERE session_id = ?"
DELETE_OF_SESSION = "DELETE FROM messages WHERE session_id = ?"

MERGE = "INSERT INTO messages_fts_words (messages_fts_words) VALUES ('optimize')"
MERGE_SOME = "INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('merge', ?)"
PAGES_MERGED_AT_LEAST, BYTES_PER_PAGE_MERGED = 16, 512
"""How much is merged with each batch: its own pages once for every level that a large index has, and no more."""
DROP = "DROP TABLE IF EXISTS messages_fts_words; DROP TABLE IF EXISTS index_progress"
UNHOOK = """DELETE FROM sqlite_master WHERE tbl_name IN ('messages_fts_words', 'messages_fts_words_data',
    'messages_fts_words_idx', 'messages_fts_words_docsize', 'messages_fts_words_config')"""


def fields_of(
    content: Any, kind: str | None, tool_name: str | None, tool_calls: str | None
) -> tuple[str, ...]:
    """What of a message can be found: its text, its tool's name, its tool calls."""
    return (
        text_of(decode(content, kind)),
        tool_name or "",
        text_of_tool_calls(tool_calls) if tool_calls else "",
    )


def behind(reader: SqliteReader, most: int) -> tuple[int, int, bool]:
    """(watermark, rows above it counted up to `most`, whether lower rows were changed) in this snapshot."""
    mark = int(reader.value(WATERMARK) or 0)
    return mark, int(reader.value(COUNT_ABOVE, mark, most)), reader.value(ANY_CHANGED) is not None


def follow(writer: SqliteWriter) -> bool:
    """Index one batch; True if more is waiting.

    Merging gives whole pages of old segments back, and overwriting them with zeros, as is done with deleted messages,
    cost a tenth of every append. What is in them is in newer segments too, or is taken out by vacuum and purge.
    """
    run(writer.raw, "PRAGMA secure_delete=FAST")
    try:
        return _follow(writer)
    finally:
        run(writer.raw, "PRAGMA secure_delete=ON")


def _follow(writer: SqliteWriter) -> bool:
    mark = int(writer.value(WATERMARK) or 0)
    changed = [row[0] for row in writer.rows(CHANGED, ROWS_AT_ONCE)]
    if changed:
        blobs.adopt(writer, changed[-1])
    for message_id in changed:
        writer.run(TAKE, message_id)
        present = writer.row(ONE, message_id) if message_id <= mark else None
        if present is not None:
            _put(writer, present)
        writer.run(CLEAR_CHANGED, message_id)
    size = count = 0
    for *row, length in writer.rows(ABOVE, mark, ROWS_AT_ONCE):
        if count and size + (length or 0) > BYTES_AT_ONCE:
            count = ROWS_AT_ONCE  # there is more
            break
        _put(writer, row)
        size, count, mark = size + (length or 0), count + 1, row[0]
    if count:
        writer.run(SET_WATERMARK, mark)
        writer.run(MERGE_SOME, PAGES_MERGED_AT_LEAST + size // BYTES_PER_PAGE_MERGED)
    return count >= ROWS_AT_ONCE or len(changed) == ROWS_AT_ONCE


def _put(writer: SqliteWriter, row: Any) -> None:
    message_id, content, kind, tool_name, tool_calls = row
    words, parts = index_texts(*fields_of(content, kind, tool_name, tool_calls))
    writer.run(PUT, message_id, words, parts)


def delete_messages(writer: SqliteWriter, session_id: str) -> int:
    """Delete a session's rows and take them out of the index, leaving no note behind."""
    ids = [(row[0],) for row in writer.rows(IDS_OF_SESSION, session_id)]
    writer.many(TAKE, ids)
    writer.run(DELETE_OF_SESSION, session_id)
    writer.many(CLEAR_CHANGED, ids)
    return len(ids)


def reset(connection: apsw.Connection) -> None:
    """Start at zero with an index that is whole or not there, inside the caller's transaction."""
    run(connection, DROP)
    run(connection, definition())


def rebuild(connection: apsw.Connection) -> None:
    """Throw the index away and start at zero. Call outside any transaction.

    A table with a broken page cannot be dropped; then its name is struck from the schema, and VACUUM, which copies
    only what the schema reaches, gives its pages back.
    """
    try:
        with _transaction(connection):
            reset(connection)
        return
    except apsw.CorruptError:
        pass
    with _transaction(connection):
        run(connection, "PRAGMA writable_schema=ON")
        try:
            run(connection, UNHOOK)
        finally:
            run(connection, "PRAGMA writable_schema=RESET")
        run(connection, "DROP TABLE IF EXISTS index_progress")
        run(connection, definition())
    try:
        run(connection, "VACUUM")
    except apsw.CorruptError:
        from hermes.store.sqlite.sealed import vacuumed_unchecked

        if not vacuumed_unchecked(connection):
            raise


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    run(connection, "BEGIN IMMEDIATE")
    try:
        yield
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        raise


def definition() -> str:
    return Path(__file__).with_name("index.sql").read_text(encoding="utf-8")
