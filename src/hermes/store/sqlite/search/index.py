"""The search index. Messages are indexed after they are stored, in short transactions. The watermark is the
id up to which messages are indexed.

Each transaction selects the rows that it indexes. A changed row is always deleted and then inserted: a second
insert of a rowid into a contentless table would leave an entry that nothing removes. A damaged index is
dropped and rebuilt from the rows, which contain everything that is in it.

Blocks (see `blocks`) are updated in the same transactions. In a store that had a message index before it had
blocks, the blocks catch up separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes.store import derived
from hermes.store.sessions import blobs
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, run
from hermes.store.sqlite.search import blocks
from hermes.store.sqlite.search.fts_input import split_tokens
from hermes.store.sqlite.search.split_texts import fields_of
from hermes.terms import join_fields

ROWS_AT_ONCE, BYTES_AT_ONCE, CHANGED_AT_ONCE = 512, 160_000, 128
"""How much one transaction indexes: new messages, bytes of their text, and changed messages.

This takes about 20 ms, so other writers do not wait much longer than that for the lock.
"""

WATERMARK = "SELECT value FROM index_progress WHERE name = 'messages'"
SET_WATERMARK = "UPDATE index_progress SET value = ? WHERE name = 'messages'"
COLUMNS = "SELECT id, content, content_kind, tool_name, tool_calls, session_id, role, active"
ABOVE = " ".join(
    (
        COLUMNS,
        """, coalesce(octet_length(content), 0) + coalesce(octet_length(tool_calls), 0)
        FROM messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?""",
    )
)
COUNT_ABOVE = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > ? LIMIT ?)"
NEWEST_TIME = "SELECT timestamp FROM messages ORDER BY id DESC LIMIT 1"
HIGHEST = "SELECT max(id) FROM messages"
CHANGED = "SELECT message_id FROM changed_messages ORDER BY message_id LIMIT ?"
ANY_CHANGED = "SELECT 1 FROM changed_messages LIMIT 1"
CLEAR_CHANGED = "DELETE FROM changed_messages WHERE message_id = ?"
ONE = " ".join((COLUMNS, "FROM messages WHERE id = ?"))
PUT = "INSERT INTO messages_fts_words (rowid, words, parts) VALUES (?, ?, ?)"
TAKE = "DELETE FROM messages_fts_words WHERE rowid = ?"

IDS_OF_SESSION = "SELECT id FROM messages WHERE session_id = ?"
DELETE_OF_SESSION = "DELETE FROM messages WHERE session_id = ?"

MERGE = "INSERT INTO messages_fts_words (messages_fts_words) VALUES ('optimize')"
MERGE_SOME = "INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('merge', ?)"
PAGES_MERGED_AT_LEAST, BYTES_PER_PAGE_MERGED = 16, 512
"""How many pages are merged with each batch: a minimum, plus one page per 512 bytes of the batch.

This is about the size of the batch, multiplied by the number of levels of a large index.
"""
BLOCK_TABLES = ("messages_fts_blocks", "messages_fts_ranges", "messages_fts_members")
DROP_BLOCKS = """DROP TABLE IF EXISTS messages_fts_blocks; DROP TABLE IF EXISTS messages_fts_ranges;
    DROP TABLE IF EXISTS messages_fts_members"""
DROP_WORDS = "DROP TABLE IF EXISTS messages_fts_words; DROP TABLE IF EXISTS index_progress"
DROP = "; ".join((DROP_WORDS, DROP_BLOCKS))
UNHOOK = """DELETE FROM sqlite_master WHERE tbl_name IN ('messages_fts_words', 'messages_fts_words_data',
    'messages_fts_words_idx', 'messages_fts_words_docsize', 'messages_fts_words_config',
    'messages_fts_blocks', 'messages_fts_blocks_data', 'messages_fts_blocks_idx', 'messages_fts_blocks_docsize',
    'messages_fts_blocks_config', 'messages_fts_ranges', 'messages_fts_members', 'index_progress')"""
HAS_BLOCKS = """SELECT count(*) FROM sqlite_master
    WHERE name IN ('messages_fts_blocks', 'messages_fts_ranges', 'messages_fts_members')"""
NO_LIMIT = 1 << 62


Entry = tuple[int, str, str]
"""A row of the message index: rowid, words, parts."""

Standing = tuple[int, int, bool]
"""The watermark, the number of rows above it, and whether rows below it were changed."""


def measure_lag(reader: SqliteReader, most: int) -> Standing:
    """Return the watermark of the index, the number of messages above it, and whether messages below it were changed.

    The count stops at `most`.
    """
    mark = int(reader.value(WATERMARK) or 0)
    return mark, int(reader.value(COUNT_ABOVE, mark, most)), reader.value(ANY_CHANGED) is not None


def measure_waiting(reader: SqliteReader) -> tuple[int, bool]:
    """Return the approximate number of messages above the watermark, and whether messages below it were changed.

    The number is the difference of two ids. So no messages are read.
    """
    above = int(reader.value(HIGHEST) or 0) - int(reader.value(WATERMARK) or 0)
    return above, reader.value(ANY_CHANGED) is not None


def follow(writer: SqliteWriter) -> bool:
    """Index one batch of messages. Return whether more messages wait to be indexed."""
    with _without_zeros(writer):
        return _follow(writer)


def settle(writer: SqliteWriter) -> bool:
    """Index some of the unfinished blocks. Return whether more blocks wait to be indexed."""
    with _without_zeros(writer):
        return blocks.settle(writer)


@contextmanager
def _without_zeros(writer: SqliteWriter) -> Iterator[None]:
    """Set SQLite not to overwrite freed pages with zeros if this needs additional writes, during the `with` block.

    Merging the index frees whole pages of old FTS5 segments. Overwriting these pages, as is done for deleted
    messages, would make every append 10 % slower. It is not needed: the content of these pages is also in newer FTS5
    segments, or is removed by vacuum and purge.
    """
    run(writer.raw, "PRAGMA secure_delete=FAST")
    try:
        yield
    finally:
        run(writer.raw, "PRAGMA secure_delete=ON")


def _follow(writer: SqliteWriter) -> bool:
    mark, blocked = int(writer.value(WATERMARK) or 0), int(writer.value(blocks.WATERMARK) or 0)
    batch = blocks.Batch(writer)
    changed = [row[0] for row in writer.rows(CHANGED, CHANGED_AT_ONCE)]
    if changed:
        blobs.adopt_references(writer, changed[-1])
    for message_id in changed:
        writer.run(TAKE, message_id)
        batch.take_out(message_id)
        present = writer.row(ONE, message_id) if message_id <= mark else None
        if present is not None:
            entry, piece = _make_entry(present)
            writer.run(PUT, *entry)
            if piece is not None and message_id <= blocked:
                batch.put_back(message_id, piece.session_id)
        writer.run(CLEAR_CHANGED, message_id)
    size = count = 0
    entries: list[Entry] = []
    sessions: set[str] = set()
    abreast, before = blocked >= mark, mark
    for *row, length in writer.rows(ABOVE, mark, NO_LIMIT, ROWS_AT_ONCE):
        if count and size + length > BYTES_AT_ONCE:
            count = ROWS_AT_ONCE  # there are more rows
            break
        entry, piece = _make_entry(row)
        entries.append(entry)
        sessions.add(row[5])
        if abreast and piece is not None:
            batch.add(piece)
        size, count, mark = size + length, count + 1, row[0]
    if count:
        writer.many(PUT, entries)
        writer.run(SET_WATERMARK, mark)
        writer.run(MERGE_SOME, PAGES_MERGED_AT_LEAST + size // BYTES_PER_PAGE_MERGED)
        derived.note_outdated(writer, sessions, before)
    blocked = mark if abreast else _block_some(writer, batch, blocked, mark)
    writer.run(blocks.SET_WATERMARK, blocked)
    due = batch.finish(blocked - blocks.QUIET_AFTER)
    return count >= ROWS_AT_ONCE or len(changed) == CHANGED_AT_ONCE or blocked < mark or due


def _block_some(writer: SqliteWriter, batch: blocks.Batch, blocked: int, mark: int) -> int:
    """Put messages that are indexed, but not in blocks yet, into blocks. Process only a limited number of them in one
    call.

    These messages were indexed before the store had blocks. Their ids are above `blocked` and at most `mark`. Return
    the id up to which messages are in blocks now.
    """
    size = count = 0
    for *row, length in writer.rows(ABOVE, blocked, mark, ROWS_AT_ONCE):
        piece = _make_piece(row, fields_of(*row[1:5])[0], None)
        if piece is not None:
            batch.add(piece)
        size, count, blocked = size + length, count + 1, row[0]
        if size > blocks.BYTES_AT_ONCE:
            return blocked
    return blocked if count == ROWS_AT_ONCE else mark


def _make_entry(row: Any) -> tuple[Entry, blocks.Piece | None]:
    """Return the row of the message index for the message `row`, and the piece of the message for its block.

    The piece is None if the message does not belong in a block.
    """
    text, *others = fields_of(*row[1:5])
    fields = [split_tokens(text), *[split_tokens(other) for other in others if other]]
    return (row[0], *join_fields(fields)), _make_piece(row, text, fields[0][0])


def _make_piece(row: Any, text: str, words: str | None) -> blocks.Piece | None:
    """Return the piece of the message `row` for its block. `text` is its searchable text, and `words` are the tokens
    of the text, if known.

    Return None if the message has no text or is not active.
    """
    message_id, *_, session_id, role, active = row
    return blocks.Piece(message_id, session_id, role, text, words) if text and active else None


def delete_messages(writer: SqliteWriter, session_id: str) -> int:
    """Delete the messages of a session, remove them from the index, and clear their change notes.

    Return their number.
    """
    ids = [(row[0],) for row in writer.rows(IDS_OF_SESSION, session_id)]
    writer.many(TAKE, ids)
    blocks.delete_session(writer, session_id, ids)
    writer.run(DELETE_OF_SESSION, session_id)
    writer.many(CLEAR_CHANGED, ids)
    return len(ids)


def reset(connection: apsw.Connection) -> None:
    """Replace an intact or missing index with an empty one, within the caller's transaction."""
    run(connection, DROP)
    run(connection, read_definition())


def rebuild(connection: apsw.Connection) -> None:
    """Replace the index with an empty one. Call this outside any transaction.

    A table with a damaged page cannot be dropped. The name of such a table is deleted from the schema
    instead. VACUUM then frees its pages, because it copies only pages that the schema reaches.
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
        run(connection, read_definition())
    try:
        run(connection, "VACUUM")
    except apsw.CorruptError:
        from hermes.store.sqlite.search.index_damage import vacuum_unchecked

        if not vacuum_unchecked(connection):
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


def read_definition() -> str:
    return _read_sql("index.sql") + _read_sql("blocks.sql")


def add_blocks(connection: apsw.Connection) -> None:
    """Create the block tables if any of them is missing.

    The blocks themselves are then made later, in batches.
    """
    if _has_blocks(connection):
        return
    with _transaction(connection):
        if not _has_blocks(connection):
            run(connection, DROP_BLOCKS)
            run(connection, _read_sql("blocks.sql"))


def _has_blocks(connection: apsw.Connection) -> bool:
    return run(connection, HAS_BLOCKS) == [(len(BLOCK_TABLES),)]


def _read_sql(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
