"""A new store from the data of a damaged one: every readable row, and a list of the losses.

Message ids are kept. SQLite's own indexes (not the full-text index) may still contain some columns of a lost
row. A lost session is restored from them with its id, title, source and times. For a lost message they show
only that it existed, so the loss is reported.
"""

from __future__ import annotations

import re
from collections import defaultdict
from types import NoneType
from typing import Any, LiteralString

import apsw

from hermes.store import derived
from hermes.store.content import parse_uid
from hermes.store.sessions import blobs
from hermes.store.sqlite.connection import SqliteWriter, run
from hermes.store.sqlite.migrations.reconciliation import recount_messages
from hermes.store.sqlite.repair.pages import Row
from hermes.store.sqlite.repair.recovered_rows import Column, Entry, Layout, RecoveredRows
from hermes.store.sqlite.search import index
from hermes.text import format_count, to_text

PLACEHOLDER = "unknown"
"""The source that is given to a session whose row is lost, if some of its messages remain."""

OWNED_BY: dict[str, tuple[str, tuple[type, ...]]] = {
    "sessions": ("id", (str, bytes, NoneType)),
    "messages": ("session_id", (str, bytes)),
}
"""For each table, the column by which a row is assigned to a session, and its valid types.

Other programs may store bytes instead of text, or no session id.
"""
SHADOWS = {
    "fts5": ("data", "idx", "content", "docsize", "config"),
    "fts4": ("content", "segments", "segdir", "docsize", "stat"),
    "fts3": ("content", "segments", "segdir", "docsize", "stat"),
    "rtree": ("node", "rowid", "parent"),
    "rtree_i32": ("node", "rowid", "parent"),
}
"""The suffixes of the shadow tables in which each kind of virtual table stores its data."""
MODULE = re.compile(r"\bUSING\s+(\w+)", re.IGNORECASE)
SEARCH = ("messages_fts", "messages_fts_trigram", "messages_fts_words", "messages_fts_blocks")
NOT_COPIED = (
    *("schema_version", "index_progress", "changed_messages", "changed_sessions"),
    *("messages_fts_ranges", "messages_fts_members"),
)
"""Tables that the new store fills itself."""
MENTIONED = re.compile(r"\bmessages_fts\w*")
ALREADY_THERE = (apsw.SQLITE_CONSTRAINT_ROWID, apsw.SQLITE_CONSTRAINT_PRIMARYKEY)
"""SQLite's error codes for a row whose key is already stored. The refused row is an older copy."""
WITHOUT_ROWID = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND wr"
OURS = "SELECT name FROM sqlite_master"
COLUMNS_OF = "SELECT name FROM pragma_table_info(?)"
SESSION_ROWS = "SELECT rowid FROM sessions"
MESSAGE_IDS = "SELECT id FROM messages"
LACKS_SESSION = "SELECT ?1 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)"
EARLIER = "SELECT max(timestamp) FROM messages WHERE session_id = ? AND id < ? AND timestamp < ''"
ADOPT = """INSERT INTO sessions (id, source, started_at, last_active)
    SELECT m.session_id, ?, coalesce(min(m.timestamp) FILTER (WHERE m.timestamp < ''), 0),
        max(m.timestamp) FILTER (WHERE m.timestamp < '') FROM messages m
    WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id) GROUP BY m.session_id RETURNING id"""
DETACH = """UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id)"""
DANGLING: dict[str, LiteralString] = {
    "carried_context": "DELETE FROM carried_context WHERE session_id NOT IN (SELECT id FROM sessions)",
    "routing": "DELETE FROM routing WHERE session_id NOT IN (SELECT id FROM sessions)",
    "model_usage": "DELETE FROM model_usage WHERE session_id NOT IN (SELECT id FROM sessions)",
    "tags": "DELETE FROM tags WHERE session_id NOT IN (SELECT id FROM sessions)",
    "blob_refs": """DELETE FROM blob_refs WHERE message_id NOT IN (SELECT id FROM messages)
        OR hash NOT IN (SELECT hash FROM blobs)""",
}
BLOB_HASHES = "SELECT hash FROM blobs"
COUNTS = """SELECT s.id, s.title, CAST(coalesce(s.message_count, 0) AS INTEGER),
    (SELECT count(*) FROM messages m WHERE m.session_id = s.id AND m.active = 1) FROM sessions s ORDER BY s.rowid"""
RAISE_SEQUENCE = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
ADD_SEQUENCE = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
NOTE_ALL = "INSERT INTO changed_sessions SELECT id FROM sessions WHERE id IS NOT NULL ON CONFLICT DO NOTHING"
FORGET_CHANGED = "DELETE FROM changed_messages"


class StoreRebuild:
    def __init__(self, connection: apsw.Connection, remains: RecoveredRows) -> None:
        self._connection = connection
        self._writer = SqliteWriter(connection, {})
        self._remains = remains
        self._statements: dict[tuple[str, tuple[str, ...]], str] = {}
        self._columns: dict[str, set[str]] = {}
        self._derived = {
            *NOT_COPIED,
            *(name for table in SEARCH for name in _list_shadow_tables(table, "fts5")),
        }
        for entry in remains.schema:
            if entry.kind == "table" and not entry.root:
                self._derived.update(_list_shadow_tables(entry.name, _find_module(entry)))
        # Rows to complete from the indexes: rowid -> known columns.
        self._partial: dict[str, dict[int, dict[str, Any]]] = {"sessions": {}, "messages": {}}
        self._sequences: dict[str, int] = {}
        self._unread: dict[str, int] = defaultdict(int)
        self._refused: dict[str, int] = defaultdict(int)
        self._garbled_blobs: set[Any] = set()
        self._exact = True
        self._keyed = {row[0] for row in run(connection, WITHOUT_ROWID)}
        self.own = {row[0] for row in run(connection, OURS)}
        """The tables, indexes and triggers that every store has, as opposed to those of other programs."""
        self.lost: list[str] = []

    def run(self) -> None:
        """Fill the new, empty store with the rows that are readable in the damaged one.

        The caller has turned foreign keys off for the connection, which is not in a transaction.
        """
        with self._connection:
            self._make_room()
            for layout, row in self._remains.rows():
                self._put(layout, row)
            gone = self._complete()
            self._settle(gone)
            run(self._connection, FORGET_CHANGED)
            run(self._connection, NOTE_ALL)
            self._add_others()
        refresh_all(self._connection)

    # ---------------------------------------------------------------- tables and columns of other programs

    def _make_room(self) -> None:
        for layout in self._remains.tables:
            if layout.name in self.own and not self._is_derived(layout.name):
                have = self._names(layout.name)
                for column in layout.columns:
                    if column.name not in have and "\ufffd" not in column.name:
                        self._add_column(layout.name, column)
            elif self._is_foreign(layout.name):
                sql = next(
                    (e.sql for e in self._remains.schema if e.kind == "table" and e.name == layout.name), None
                )
                if sql is None or not self._try(sql):
                    self.lost.append(f"table {layout.name}: it cannot be created again")

    def _is_derived(self, name: str) -> bool:
        """Return whether the table `name` is not copied. This is the case for tables that the new store fills
        itself, for virtual tables, and for their shadow tables."""
        return name in self._derived

    def _is_foreign(self, name: str) -> bool:
        return name not in self.own and not self._is_derived(name) and not name.startswith("sqlite_")

    def _add_column(self, table: str, column: Column) -> None:
        sql = f"ALTER TABLE {quote_name(table)} ADD COLUMN {quote_name(column.name)} {column.type}"
        if column.default is None or not self._try(f"{sql} DEFAULT {column.default}"):
            self._try(sql)
        self._columns.pop(table, None)

    def _add_others(self) -> None:
        """Create the SQL indexes, views and triggers that other programs had created in the damaged store.

        This is done after all rows are inserted, so that no trigger fires. What cannot be created is added to
        `self.lost`.
        """
        for entry in self._remains.schema:
            if entry.kind == "table" and not entry.root and entry.name not in SEARCH:
                self.lost.append(
                    f"virtual table {entry.name}: the program that created it must create it again"
                )
            elif self._is_foreign_rule(entry) and not self._try(entry.sql or ""):
                self.lost.append(f"{entry.kind} {entry.name}: it does not fit the saved tables")

    def _is_foreign_rule(self, entry: Entry) -> bool:
        if entry.kind == "table" or entry.sql is None or not self._is_foreign(entry.name):
            return False
        # A trigger that fills another program's search tables is left out: the new store lacks these tables.
        return not (entry.kind == "trigger" and not set(SEARCH).isdisjoint(MENTIONED.findall(entry.sql)))

    def _try(self, sql: str) -> bool:
        try:
            run(self._connection, sql)
            return True
        except apsw.Error:
            return False

    # ---------------------------------------------------------------- rows

    def _put(self, layout: Layout, row: Row) -> None:
        if layout.name == "sqlite_sequence":
            name, seq = (*row.values, None, None)[:2]
            if isinstance(name, str) and isinstance(seq, int):
                self._sequences[name] = max(seq, self._sequences.get(name, 0))
            return
        names = self._names(layout.name)
        if self._is_derived(layout.name) or not names:
            return
        values = {
            column.name: value
            for column, value in zip(layout.columns, row.values, strict=False)
            if column.copied and column.name in names
        }
        if layout.alias is not None:
            values[layout.columns[layout.alias].name] = row.rowid
        elif layout.rowid and layout.name not in self._keyed:
            values = {"_rowid_": row.rowid, **values}
        if row.whole:
            self._insert(layout.name, values)
        elif layout.name in self._partial:
            self._partial[layout.name].setdefault(row.rowid, values)
        else:
            self._unread[layout.name] += 1

    def _insert(self, table: str, values: dict[str, Any]) -> bool:
        if table in OWNED_BY:
            name, allowed = OWNED_BY[table]
            if not isinstance(values.get(name), allowed):
                self._refused[table] += 1
                return False
        if table == "blobs" and not blobs.is_whole(values.get("hash"), values.get("bytes")):
            self._garbled_blobs.add(values.get("hash"))
            return False
        if table == "messages" and values.get("uid") is not None:
            values["uid"] = parse_uid(values["uid"])
        refusal = self._refusal(table, values)
        if refusal and table == "sessions" and run(self._connection, LACKS_SESSION, values.get("id"))[0][0]:
            # Another session has the same title or rowid, so this one is stored without them.
            values = {name: value for name, value in values.items() if name not in ("_rowid_", "title")}
            refusal = self._refusal(table, values)
        if refusal and refusal not in ALREADY_THERE:
            self._refused[table] += 1
        return not refusal

    def _refusal(self, table: str, values: dict[str, Any]) -> int:
        """Insert a row with `values` (by column name) into `table` of the new store.

        Return 0 if this succeeded. If SQLite refuses the row, for example as a duplicate, return SQLite's extended
        error code.
        """
        key = (table, tuple(values))
        sql = self._statements.get(key)
        if sql is None:
            names, marks = ", ".join(map(quote_name, values)), ", ".join("?" * len(values))
            sql = self._statements[key] = f"INSERT INTO {quote_name(table)} ({names}) VALUES ({marks})"  # noqa: S608
        try:
            run(self._connection, sql, *values.values())
        except (apsw.ConstraintError, apsw.MismatchError) as problem:
            return int(getattr(problem, "extendedresult", apsw.SQLITE_CONSTRAINT))
        return 0

    def _names(self, table: str) -> set[str]:
        if table not in self._columns:
            self._columns[table] = {row[0] for row in run(self._connection, COLUMNS_OF, table)}
        return self._columns[table]

    # ---------------------------------------------------------------- rows from the indexes

    def _complete(self) -> dict[Any, set[int]]:
        """Restore lost sessions and missing values of rows from the SQL indexes of the damaged file, which repeat
        some columns.

        Return the ids of lost messages, by the id of their session.
        """
        unreadable = self._remains.image.unreadable
        before = len(unreadable)
        for table, ids in (("sessions", SESSION_ROWS), ("messages", MESSAGE_IDS)):
            saved = {row[0] for row in run(self._connection, ids)}
            partial = self._partial[table]
            cut = set(partial)
            for rowid, known in self._remains.index_entries(table):
                if rowid not in saved:
                    have = partial.setdefault(rowid, {})
                    have.update({name: value for name, value in known.items() if have.get(name) is None})
            if table == "sessions":
                self._complete_sessions(partial)
            else:
                gone = self._complete_messages(partial, cut)
        # If all indexes are readable, they name each lost message. If all tables are readable, no message is lost.
        self._exact = before == 0 or len(unreadable) == before
        return gone

    def _complete_sessions(self, partial: dict[int, dict[str, Any]]) -> None:
        for rowid, known in sorted(partial.items()):
            if not isinstance(known.get("id"), str | bytes):
                continue
            started = known.get("started_at") or known.get("last_active") or 0.0
            fixed = {"source": known.get("source") or PLACEHOLDER, "started_at": started}
            kept = {name: value for name, value in known.items() if value is not None}
            if self._insert("sessions", {"_rowid_": rowid, **kept, **fixed}):
                readable = [
                    name
                    for name in ("title", "source", "started_at", "model", "system_prompt")
                    if kept.get(name)
                ]
                self.lost.append(
                    f"session {known['id']}: part of its row; kept: {', '.join(['id', *readable])}"
                )

    def _complete_messages(self, partial: dict[int, dict[str, Any]], cut: set[int]) -> dict[Any, set[int]]:
        gone: dict[Any, set[int]] = defaultdict(set)
        for rowid, known in sorted(partial.items()):
            session_id = known.get("session_id")
            if not isinstance(session_id, str | bytes):
                self._unread["messages"] += 1
                continue
            if rowid not in cut:
                gone[session_id].add(rowid)
                continue
            at = known.get("timestamp") or run(self._connection, EARLIER, session_id, rowid)[0][0] or 0.0
            values = {name: value for name, value in known.items() if value is not None}
            if self._insert(
                "messages", {**values, "role": known.get("role") or PLACEHOLDER, "timestamp": at}
            ):
                length = len(known.get("content") or "")
                kept = format_count(length, "character")
                self.lost.append(
                    f"message {rowid} of session {to_text(session_id)}: all but its first {kept}"
                )
        return gone

    # ---------------------------------------------------------------- consistency

    def _settle(self, gone: dict[Any, set[int]]) -> None:
        adopted = [row[0] for row in run(self._connection, ADOPT, PLACEHOLDER)]
        self.lost += [f"session {name}: its row; its messages are kept" for name in adopted]
        self._writer.run(DETACH)
        self._reattach()
        for table, sql in DANGLING.items():
            if count := self._writer.run(sql):
                self.lost.append(f"{format_count(count, 'row')} of {table}, which belonged to lost rows")
        self.lost += [f"{format_count(count, 'row')} of {table}" for table, count in self._unread.items()]
        self.lost += [
            f"{format_count(count, 'row')} of {table}, which violate its constraints"
            for table, count in self._refused.items()
        ]
        if garbled := self._remains.image.garbled:
            self.lost.append(f"characters of {format_count(garbled, 'text')}, which were replaced by \ufffd")
        self._count(gone)
        highest = max((max(ids) for ids in gone.values()), default=0)
        self._sequences["messages"] = max(self._sequences.get("messages", 0), highest)
        for name, seq in self._sequences.items():
            if self._names(name) and not self._writer.run(RAISE_SEQUENCE, seq, name):
                self._writer.run(ADD_SEQUENCE, name, seq)

    def _reattach(self) -> None:
        """Record again which messages refer to which blobs, as the contents of the saved messages say.

        Then delete the blobs to which no saved message refers. Both losses of attachments are added to `self.lost`.
        """
        blobs.adopt_all_references(self._writer)
        kept = {row[0] for row in run(self._connection, BLOB_HASHES)}
        if garbled := self._garbled_blobs - kept:
            self.lost.append(
                f"{format_count(len(garbled), 'attachment')}, which could not be read completely"
            )
        gone = 0
        while some := blobs.collect_batch(self._writer).blobs:
            gone += some
        if gone:
            self.lost.append(f"{format_count(gone, 'attachment')} of messages that are lost")

    def _count(self, gone: dict[Any, set[int]]) -> None:
        lines = []
        for session_id, title, noted, saved in run(self._connection, COUNTS):
            missing = len(gone.pop(session_id, ()))
            if not self._exact:
                missing = max(missing, noted - saved)
            if missing:
                called = f" ({title})" if title else ""
                lines.append(
                    f"session {session_id}{called}: {missing} of its {format_count(missing + saved, 'message')}"
                )
            if noted != saved:
                recount_messages(self._writer, [session_id])
        lines += [
            f"session {session_id}: its row and {format_count(len(ids), 'message')}"
            for session_id, ids in gone.items()
        ]
        self.lost += lines


def _find_module(entry: Entry) -> str:
    found = MODULE.search(entry.sql or "")
    return found[1].lower() if found else ""


def _list_shadow_tables(name: str, module: str) -> list[str]:
    """Return the name of the virtual table `name`, followed by the names of its shadow tables, in which SQLite stores
    its data. `module` is the SQLite module of the virtual table, such as `fts5`.
    """
    return [name, *(f"{name}_{part}" for part in SHADOWS.get(module, ()))]


def refresh_all(connection: apsw.Connection) -> None:
    """Recompute the derived columns of all sessions that are recorded as changed, then index all messages for
    search.
    """
    writer = SqliteWriter(connection, {})
    for step in (derived.refresh, index.follow):
        more = True
        while more:
            with connection:
                more = step(writer)


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
