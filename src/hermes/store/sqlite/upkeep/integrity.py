"""Checks for damage and inconsistencies. They do not write; `repair` fixes what they find."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

from hermes.store import derived
from hermes.store.sessions import blobs
from hermes.store.sqlite.connection import SqliteReader, connect_read_only, run
from hermes.store.sqlite.schema import find_schema_gaps
from hermes.store.sqlite.search import blocks, index
from hermes.store.sqlite.search.fts_input import list_tokens
from hermes.store.sqlite.search.split_texts import fields_of
from hermes.store.sqlite.upkeep import row_ids
from hermes.store.sqlite.wal import sidecars
from hermes.store.values import Health
from hermes.terms import SEPARATOR, index_texts
from hermes.text import format_count

SAMPLE = 200
"""For how many messages `verify` compares the index entries with the text.

FTS5's own check covers only the structure.
"""
MOST_REPORTED = 20

INTEGRITY = "PRAGMA integrity_check(20)"
COUNT_SESSIONS = "SELECT count(*) FROM sessions"
COUNT_MESSAGES = "SELECT count(*) FROM messages"
ORPHANS = """SELECT DISTINCT m.session_id FROM messages m LEFT JOIN sessions s ON s.id = m.session_id
    WHERE s.id IS NULL LIMIT 20"""
# An older file may contain a session without an id, for which nothing can be derived.
DERIVED = "SELECT id, started_at, last_active, last_person_at, preview FROM sessions WHERE id IS NOT NULL"
MISROOTED = """SELECT s.id FROM sessions s LEFT JOIN sessions r ON r.id = s.root_id
    WHERE r.id IS NULL AND s.id IS NOT NULL LIMIT 20"""
STALE_CONVERSATION = """SELECT s.id FROM sessions s WHERE s.root_id = s.id AND s.conversation_active IS NOT
    (SELECT max(member.last_active) FROM sessions member WHERE member.root_id = s.id) LIMIT 20"""
BINARY_UIDS = "SELECT count(*) FROM messages WHERE typeof(uid) = 'blob'"
GHOSTS = """SELECT count(*) FROM messages_fts_words_docsize d LEFT JOIN messages m ON m.id = d.id
    WHERE m.id IS NULL AND NOT EXISTS (SELECT 1 FROM changed_messages c WHERE c.message_id = d.id)"""
UNINDEXED = """SELECT count(*) FROM messages m LEFT JOIN messages_fts_words_docsize d ON d.id = m.id
    WHERE d.id IS NULL AND m.id <= ? AND NOT EXISTS (SELECT 1 FROM changed_messages c WHERE c.message_id = m.id)"""
INDEXED_IDS = """SELECT m.id FROM messages m WHERE m.id <= ? AND NOT EXISTS
    (SELECT 1 FROM changed_messages c WHERE c.message_id = m.id)"""
IN_INDEX = "SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? AND rowid = ?"
GHOST_BLOCKS = """SELECT count(*) FROM messages_fts_blocks_docsize d
    LEFT JOIN messages_fts_ranges r ON r.block_id = d.id WHERE r.block_id IS NULL"""
LOST_BLOCKS = """SELECT count(*) FROM messages_fts_ranges r LEFT JOIN messages_fts_blocks_docsize d ON d.id = r.block_id
    WHERE d.id IS NULL AND r.waiting = 0"""
# Counts indexed messages with plain text, all of which belong to a block. Other content is not checked here.
UNBLOCKED = """SELECT count(*) FROM messages m LEFT JOIN messages_fts_members e ON e.message_id = m.id
    WHERE e.message_id IS NULL AND m.id <= ? AND m.active = 1
    AND typeof(m.content) = 'text' AND length(m.content) > 0
    AND NOT EXISTS (SELECT 1 FROM changed_messages c WHERE c.message_id = m.id)"""
STRAY_MEMBERS = """SELECT count(*) FROM messages_fts_members e LEFT JOIN messages m ON m.id = e.message_id
    WHERE (m.id IS NULL OR NOT EXISTS (SELECT 1 FROM messages_fts_ranges r WHERE r.block_id = e.block_id
        AND r.session_id = m.session_id AND m.id BETWEEN r.first_id AND r.last_id))
    AND NOT EXISTS (SELECT 1 FROM changed_messages c WHERE c.message_id = e.message_id)"""
BLOCKS = """SELECT block_id, session_id, first_id, last_id, size, count, waiting FROM messages_fts_ranges
    WHERE waiting = 0 AND NOT EXISTS (SELECT 1 FROM changed_messages c
        WHERE c.message_id BETWEEN first_id AND last_id)"""
IN_BLOCK = "SELECT 1 FROM messages_fts_blocks WHERE messages_fts_blocks MATCH ? AND rowid = ?"
BLOCK_TOKENS = "SELECT sz FROM messages_fts_blocks_docsize WHERE id = ?"
TOKENS = "SELECT sz FROM messages_fts_words_docsize WHERE id = ?"


def verify(reader: SqliteReader, path: Path) -> Health:
    health = check_health(reader, path)
    notes = [
        f"{name} cannot be written, so the store cannot be written: {sidecars.format_chmod([name])}"
        for name in sidecars.find_read_only(path)
    ]
    return health._replace(
        damage=tuple([*_find_broken_pages(path), *health.damage][:MOST_REPORTED]), notes=tuple(notes)
    )


def find_missing(reader: SqliteReader, path: Path) -> Health | None:
    """Check whether the store lacks parts of its schema. If tables or columns are missing, return a report on all
    missing parts.

    Return None if no table or column is missing, so that the statements of the other checks can run.
    """
    lacking = find_schema_gaps(reader)
    if not lacking.unreadable:
        return None
    sessions, messages = (
        0 if table in lacking.tables else int(reader.value(count))
        for table, count in (("sessions", COUNT_SESSIONS), ("messages", COUNT_MESSAGES))
    )
    return Health(path, sessions, messages, drift=tuple(f"{name} is missing" for name in lacking.names))


def check_health(reader: SqliteReader, path: Path) -> Health:
    """Check the schema, the rows, the derived columns and the search index of a store, and return a report.

    The pages of the file are not checked. The caller checks them separately, with SQLite's `integrity_check`.
    """
    if (lacking := find_missing(reader, path)) is not None:
        return lacking
    damage = [f"messages without a session: {row[0]}" for row in reader.rows(ORPHANS)] + blobs.find_damage(
        reader
    )
    drift = [f"{name} is missing" for name in find_schema_gaps(reader).names]
    if binary := reader.value(BINARY_UIDS):
        drift.append(f"uid of {format_count(binary, 'message')}, stored as bytes")
    drift += row_ids.find_high_ids(reader)
    drift += (
        _find_derived_drift(reader)
        + _find_index_drift(reader)
        + _find_block_drift(reader)
        + blobs.find_drift(reader)
    )
    _mark, above, _changed = index.measure_lag(reader, 1 << 60)
    sessions, messages = int(reader.value(COUNT_SESSIONS)), int(reader.value(COUNT_MESSAGES))
    return Health(
        path, sessions, messages, tuple(damage[:MOST_REPORTED]), tuple(drift[:MOST_REPORTED]), above
    )


def _find_broken_pages(path: Path) -> list[str]:
    """Run SQLite's `integrity_check` for the database file `path` on a new connection. Return the problems that it
    finds.

    A connection that has used a full-text table keeps an old list of its FTS5 segments, and would report newer
    segments as corrupt.
    """
    connection = connect_read_only(path)
    try:
        return [str(row[0]) for row in run(connection, INTEGRITY) if row[0] != "ok"]
    finally:
        connection.close()


def _find_derived_drift(reader: SqliteReader) -> list[str]:
    drift = []
    for session_id, started_at, *activity, preview in reader.each(DERIVED):
        *right_activity, right_preview = derived.find_activity(reader, session_id, started_at)
        # An earlier version also stored the attached files, after the typed text.
        is_right = preview == right_preview or (right_preview and str(preview).startswith(right_preview))
        if activity != right_activity or not is_right:
            drift.append(f"activity or preview of session {session_id}")
    drift += [f"conversation of session {row[0]}" for row in reader.rows(MISROOTED)]
    drift += [f"activity of conversation {row[0]}" for row in reader.rows(STALE_CONVERSATION)]
    return drift


def _find_index_drift(reader: SqliteReader) -> list[str]:
    mark = int(reader.value(index.WATERMARK) or 0)
    drift = []
    if ghosts := reader.value(GHOSTS):
        drift.append(f"{format_count(ghosts, 'index entry', 'index entries')} of deleted messages")
    if missing := reader.value(UNINDEXED, mark):
        drift.append(f"{format_count(missing, 'message')} missing from the index")
    ids = [row[0] for row in reader.rows(INDEXED_IDS, mark)]
    for message_id in ids[:: max(1, len(ids) // SAMPLE)]:
        row = reader.row(index.ONE, message_id)
        if row is None:
            continue
        texts = index_texts(*fields_of(*row[1:5]))
        if not _matches_index(reader, (TOKENS, IN_INDEX), message_id, texts):
            drift.append(f"index entry of message {message_id}")
    return drift


def _find_block_drift(reader: SqliteReader) -> list[str]:
    if reader.value(index.HAS_BLOCKS) != len(index.BLOCK_TABLES):  # created at the first open for writing
        return []
    drift = []
    if ghosts := reader.value(GHOST_BLOCKS):
        drift.append(f"{format_count(ghosts, 'block')} of deleted messages")
    if missing := reader.value(LOST_BLOCKS):
        drift.append(f"{format_count(missing, 'block')} missing from the index")
    if unblocked := reader.value(UNBLOCKED, reader.value(blocks.WATERMARK)):
        drift.append(f"{format_count(unblocked, 'message')} in no block")
    if strays := reader.value(STRAY_MEMBERS):
        drift.append(f"{format_count(strays, 'message')} in wrong blocks")
    rows = reader.rows(BLOCKS)
    for row in rows[:: max(1, len(rows) // SAMPLE)]:
        block = blocks.Block(*row)
        if not _matches_index(
            reader, (BLOCK_TOKENS, IN_BLOCK), block.id, blocks.texts_of(blocks.pieces_of(reader, block))
        ):
            drift.append(f"block {block.id} of session {block.session_id}")
    return drift


def _matches_index(
    reader: SqliteReader,
    queries: tuple[LiteralString, LiteralString],
    rowid: int,
    texts: tuple[str, str],
) -> bool:
    """Return whether the entry of the row `rowid` in a full-text table was made from `texts`, the texts of its two
    columns.

    The entry must have the right number of terms in each column, and it must contain the three longest terms of the
    first text. `queries` are the SQL statements that read the number of terms, and that search for a term in one row.
    """
    sizes, holds = reader.value(queries[0], rowid), queries[1]
    terms = [list_tokens(text) for text in texts]
    if sizes is None or _read_varints(sizes) != list(map(len, terms)):
        return False
    longest = sorted({*terms[0]} - {SEPARATOR}, key=len)[-3:]
    return all(reader.value(holds, '"' + term.replace('"', '""') + '"', rowid) for term in longest)


def _read_varints(data: bytes) -> list[int]:
    """Decode SQLite's variable-length integers, in which FTS5 stores the number of tokens per column."""
    found, value = [], 0
    for byte in data:
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            found.append(value)
            value = 0
    return found
