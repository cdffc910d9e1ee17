"""Restoration of missing parts of a Hermes store: columns, tables, indexes and triggers of `schema.sql`.

A column is added with its type and default. Values that can be derived from other rows are computed again.
Values that exist nowhere else keep the default. A column that has no default and must not be NULL (a key, a
reference) cannot be added. If its table is empty, the table is created again. If the table has rows, the
store counts as damaged.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import LiteralString

import apsw

from hermes.store.chats import telegram_topics
from hermes.store.content import count_calls, from_json
from hermes.store.derived import Family
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter, damage_error, run
from hermes.store.sqlite.migrations import SCHEMA_VERSION, SIGNS
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.layouts import TEXT_UIDS
from hermes.store.sqlite.migrations.proof import WORKED_OUT
from hermes.store.sqlite.migrations.shape import Column, Shape, add_column, drop_changed, expected_shape
from hermes.store.sqlite.migrations.steps import set_version
from hermes.store.sqlite.schema import TOPIC_COLUMNS, Missing, find_schema_gaps, schema_sql
from hermes.store.sqlite.search import index

TRUTH = ("sessions", "messages")
"""Tables that are not created again if they are missing. If they were created again, a lost history would
look like an empty one."""
DERIVED = frozenset(f"sessions.{column}" for column in WORKED_OUT)
COUNTERS = frozenset(("sessions.message_count", "sessions.tool_call_count"))
SEARCHED = frozenset(("messages.tool_name", "messages.tool_calls", "messages.active"))

ANY_ROW = "SELECT 1 FROM {table} LIMIT 1"
ANY_VERSION = "SELECT 1 FROM schema_version LIMIT 1"
DROP_TABLE = "DROP TABLE {table}"
SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = ?"
SET_SEQUENCE = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"

ALL_SESSIONS = "SELECT id FROM sessions WHERE id IS NOT NULL"
# While a unique index was missing, duplicates may have been inserted. They are made distinct; none is deleted.
SHARED_TITLES = """SELECT s.id, s.title, s.owner FROM sessions s WHERE s.title IS NOT NULL AND EXISTS
    (SELECT 1 FROM sessions o WHERE o.title = s.title AND o.owner = s.owner AND o.rowid < s.rowid)
    ORDER BY s.started_at, s.rowid"""
TITLE_IN_USE = "SELECT 1 FROM sessions WHERE title = ? AND owner = ?"
SET_TITLE = "UPDATE sessions SET title = ? WHERE id = ?"
SAME_EVENT = """UPDATE inbox SET platform_message_id = NULL WHERE EXISTS (SELECT 1 FROM inbox o
    WHERE o.platform = inbox.platform AND o.session_key = inbox.session_key
    AND o.platform_message_id = inbox.platform_message_id AND o.id < inbox.id)"""

# How columns of `sessions` and `messages` are derived from other rows.
FROM_USAGE: dict[str, LiteralString] = {
    "api_call_count": """UPDATE sessions SET api_call_count =
        (SELECT count(*) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "input_tokens": """UPDATE sessions SET input_tokens =
        (SELECT coalesce(sum(u.input_tokens), 0) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "output_tokens": """UPDATE sessions SET output_tokens =
        (SELECT coalesce(sum(u.output_tokens), 0) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "cache_read_tokens": """UPDATE sessions SET cache_read_tokens =
        (SELECT coalesce(sum(u.cache_read_tokens), 0) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "cache_write_tokens": """UPDATE sessions SET cache_write_tokens =
        (SELECT coalesce(sum(u.cache_write_tokens), 0) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "reasoning_tokens": """UPDATE sessions SET reasoning_tokens =
        (SELECT coalesce(sum(u.reasoning_tokens), 0) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "estimated_cost_usd": """UPDATE sessions SET estimated_cost_usd =
        (SELECT sum(u.estimated_cost_usd) FROM model_usage u WHERE u.session_id = sessions.id)""",
    "actual_cost_usd": """UPDATE sessions SET actual_cost_usd =
        (SELECT sum(u.actual_cost_usd) FROM model_usage u WHERE u.session_id = sessions.id)""",
}
FROM_LEASES = """UPDATE sessions SET lease_epoch =
    coalesce((SELECT l.epoch FROM leases l WHERE l.conversation_id = sessions.root_id), 0)"""
FROM_REWINDS = "UPDATE messages SET active = 0 WHERE rewound_at IS NOT NULL"
FROM_REFERENCES = """UPDATE messages SET content_kind = 'blobs'
    WHERE id IN (SELECT message_id FROM blob_refs) AND content_kind IS NULL"""
CALLS = "SELECT role, tool_calls FROM messages WHERE session_id = ? AND active = 1"
SET_COUNTS = "UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE id = ?"


def complete(connection: apsw.Connection, path: Path) -> Missing:
    """Add the parts of `schema.sql` that the store lacks, within the caller's transaction, and return them.

    Raise `StoreDamaged` if a part cannot be restored.
    """
    every = find_schema_gaps(SqliteReader(connection, {}))
    lacking = _restore_topics(connection, path, every)
    lost = [table for table in lacking.tables if table in TRUTH]
    if lost:
        raise damage_error(path, f"it has no table {lost[0]}")
    want = expected_shape()
    drop_changed(connection, want)  # drops all Hermes triggers too: `schema_sql` creates them again
    sequences = _drop_unfit_tables(connection, path, lacking, want)
    for table, name in lacking.columns:
        _add(connection, table, want.tables[table][name])
    if lacking.rules or lacking.columns:
        _tell_apart(connection, lacking)
    connection.execute(schema_sql()).fetchall()
    for table, seq in sequences.items():
        run(connection, SET_SEQUENCE, table, seq)
    if "schema_version" in lacking.tables or not run(connection, ANY_VERSION):
        set_version(connection, SCHEMA_VERSION)
    if any(name.startswith("hermes_") for name in lacking.rules):
        run(connection, TEXT_UIDS)  # rows may have been inserted while the triggers were missing
    added = {f"{table}.{column}" for table, column in lacking.columns}
    _compute(SqliteWriter(connection, {}), added)
    if added & SEARCHED:  # the index contains words that are in no row any more
        index.reset(connection)
    return every


def _restore_topics(connection: apsw.Connection, path: Path, lacking: Missing) -> Missing:
    """Create the tables and columns of Telegram topics that `lacking`, the list of missing parts, contains. Existing
    rows are kept.

    Return `lacking` without these tables and columns. Raise `StoreDamaged` if a table that has rows lacks a column
    that cannot be restored.
    """
    columns = [(table, name) for table, name in lacking.columns if table in TOPIC_COLUMNS]
    tables = [table for table in lacking.tables if table in TOPIC_COLUMNS]
    for table, name in columns:
        if name not in telegram_topics.OPTIONAL and run(connection, fill_names(ANY_ROW, table=table)):
            raise damage_error(path, f"the table {table} lacks its column {name}, which cannot be restored")
    if columns or tables:
        telegram_topics.create_tables(SqliteWriter(connection, {}))
    return lacking._replace(
        tables=tuple(table for table in lacking.tables if table not in tables),
        columns=tuple(column for column in lacking.columns if column not in columns),
    )


def _drop_unfit_tables(
    connection: apsw.Connection, path: Path, lacking: Missing, want: Shape
) -> dict[str, int]:
    """Drop each empty table that lacks a column which SQLite cannot add to an existing table. The caller creates
    these tables again.

    `lacking` are the missing parts of the store, and `want` is the shape of a complete store. Return the last id of
    each dropped table, from `sqlite_sequence`. Raise `StoreDamaged` if such a table has rows.
    """
    sequences: dict[str, int] = {}
    for table, name in lacking.columns:
        essential = name in SIGNS.get(table, ())
        if _can_be_added(want.tables[table][name]) and not essential:
            continue
        if essential or table in TRUTH or run(connection, fill_names(ANY_ROW, table=table)):
            raise damage_error(path, f"the table {table} lacks its column {name}, which cannot be restored")
        for (seq,) in run(connection, SEQUENCE, table):
            sequences[table] = seq
        run(connection, fill_names(DROP_TABLE, table=table))
    return sequences


def _can_be_added(column: Column) -> bool:
    return not column.key and (column.default is not None or not column.required)


def _add(connection: apsw.Connection, table: str, column: Column) -> None:
    """Add the missing column `column` to `table`. If the table was dropped, do nothing, because it is created again
    with all its columns.
    """
    reference = (
        " REFERENCES sessions(id)" if (table, column.name) == ("sessions", "parent_session_id") else ""
    )
    add_column(connection, table, column._replace(type=column.type + reference))


def _tell_apart(connection: apsw.Connection, lacking: Missing) -> None:
    added = {f"{table}.{column}" for table, column in lacking.columns}
    if "idx_sessions_title_unique" in lacking.rules and "sessions.title" not in added:
        from hermes.store.sqlite.migrations.adoption import number_title

        for session_id, title, owner in run(connection, SHARED_TITLES):
            number = 2
            while run(connection, TITLE_IN_USE, number_title(title, number), owner):
                number += 1
            run(connection, SET_TITLE, number_title(title, number), session_id)
    if "idx_inbox_once" in lacking.rules and "inbox" not in lacking.tables:
        run(connection, SAME_EVENT)


def _compute(writer: SqliteWriter, added: Set[str]) -> None:
    """Compute the values of added columns that are derived from other rows."""
    if "messages.active" in added:
        writer.run(FROM_REWINDS)
    if "messages.content_kind" in added:
        writer.run(FROM_REFERENCES)
    sessions = [row[0] for row in writer.rows(ALL_SESSIONS)] if added & (DERIVED | COUNTERS) else []
    if added & DERIVED:
        Family(writer).refresh(sessions)
    if added & COUNTERS:
        recount_messages(writer, sessions)
    for column, statement in FROM_USAGE.items():
        if f"sessions.{column}" in added:
            writer.run(statement)
    if "sessions.lease_epoch" in added:
        writer.run(FROM_LEASES)


def recount_messages(writer: SqliteWriter, session_ids: list[str]) -> None:
    """Set `message_count` and `tool_call_count` of these sessions from their messages."""
    for session_id in session_ids:
        messages = writer.rows(CALLS, session_id)
        calls = sum(
            count_calls(role, from_json(stored, stored)) for role, stored in messages if stored is not None
        )
        writer.run(SET_COUNTS, len(messages), calls, session_id)
