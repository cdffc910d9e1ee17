"""Rows that hold a secret: found, counted, and written anew without it.

Nothing is assumed about the tables, because a copy may be of any version, and other programs add columns. Every value
is looked at. Those by which rows are found, or whose words programs act on, stay and are reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import apsw

from hermes.store.columns import list_message_names, list_session_names
from hermes.store.engine import Writer
from hermes.store.retention.secret_spellings import Spellings
from hermes.store.sessions.titles import MAX_TITLE_LENGTH
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.migrations.identifiers import fill_names, quote_name
from hermes.store.values import Scrubbed
from hermes.text import format_count

KEPT = frozenset(
    (
        *list_session_names(lambda column: not column.is_scrubbed),
        *list_message_names(lambda column: not column.is_scrubbed),
        *("conversation_id", "hash", "key", "name", "participant", "idempotency_key"),
        *("state", "platform", "managed_mode", "media_type"),
    )
)
"""Columns by which rows are found, or whose words programs act on: changing them would lose more than a secret."""
NUMBERED = ("title", "tag")
"""Columns whose values must differ: two that become the same are told apart as ` (2)`."""

# Our own index holds no text, and follows the rows; the list of its terms is thrown away.
TABLES = """SELECT name, type = 'virtual', wr FROM pragma_table_list
    WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT IN ('sqlite_schema', 'messages_fts_blocks')
    AND name NOT LIKE 'messages~_fts~_words%' ESCAPE '~' ORDER BY type, name"""
COLUMNS = "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid"
CELL = "CASE WHEN typeof({column}) IN ('text', 'blob') THEN CAST({column} AS BLOB) END"
READ = "SELECT @key, @cells FROM {table}"
READ_ONE = "SELECT @cells FROM {table} WHERE @same"
TYPED = "typeof({column}), CAST({column} AS BLOB)"
SET = "UPDATE {table} SET @changes WHERE @same"
CHANGE = "{column} = CASE typeof({column}) WHEN 'text' THEN CAST(? AS TEXT) ELSE ? END"
SAME = "{column} = ?"
# A blob is found by the hash of its bytes: other bytes make it another one, to which its messages then refer.
BLOB = "SELECT hash, bytes FROM blobs WHERE rowid = ?"
COPY_BLOB = """INSERT INTO blobs (hash, media_type, size, bytes, created_at)
    SELECT ?, media_type, size, bytes, created_at FROM blobs WHERE hash = ? ON CONFLICT DO NOTHING"""
SHOWN_IN = "SELECT m.id, m.content FROM blob_refs r JOIN messages m ON m.id = r.message_id WHERE r.hash = ?"
REFER = "INSERT INTO blob_refs (message_id, hash) VALUES (?, ?) ON CONFLICT DO NOTHING"
SAY = "UPDATE messages SET content = ? WHERE id = ?"
FORGET_REFS = "DELETE FROM blob_refs WHERE hash = ?"
FORGET_BLOB = "DELETE FROM blobs WHERE hash = ?"
SESSIONS_OF_BLOB = (
    "SELECT DISTINCT m.session_id FROM blob_refs r JOIN messages m ON m.id = r.message_id WHERE r.hash = ?"
)


class Table(NamedTuple):
    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    virtual: bool


class Hit(NamedTuple):
    """A row that holds the secret: where, and how often in which columns."""

    table: Table
    key: tuple[Any, ...]
    columns: dict[str, int]
    sessions: tuple[str, ...]


def find_hits(reader: SqliteReader, secret: Spellings) -> Iterator[Hit]:
    """Every row that holds the secret; tables before the search tables that were made from them."""
    for table in list(_list_tables(reader)):
        keys, cells = (
            ", ".join(map(quote_name, table.key)),
            ", ".join(fill_names(CELL, column=c) for c in table.columns),
        )
        sql = fill_names(READ, table=table.name).replace("@key", keys).replace("@cells", cells)
        for row in reader.each(sql):
            key, values = row[: len(table.key)], dict(zip(table.columns, row[len(table.key) :], strict=True))
            counted = {
                name: _take_out(secret, table, value)[1]
                for name, value in values.items()
                if value is not None
            }
            found = {name: count for name, count in counted.items() if count}
            if found:
                yield Hit(table, key, found, _find_sessions(reader, table, values))


def _take_out(secret: Spellings, table: Table, data: bytes) -> tuple[bytes, int]:
    """Tags are kept in small letters, and so is a secret that was made one."""
    cleaned, count = secret.remove_from_bytes(data)
    if table.name == "tags" and secret.folded is not secret:
        cleaned, more = secret.folded.remove_from_bytes(cleaned)
        count += more
    return cleaned, count


def _find_sessions(reader: SqliteReader, table: Table, values: dict[str, bytes | None]) -> tuple[str, ...]:
    if table.name == "blobs" and reader.rows(COLUMNS, "blob_refs"):
        return tuple(row[0] for row in reader.rows(SESSIONS_OF_BLOB, values["hash"]))
    session = values.get("id" if table.name == "sessions" else "session_id")
    return () if session is None else (session.decode("utf-8", "replace"),)


def _list_tables(reader: SqliteReader) -> Iterator[Table]:
    for name, virtual, without_rowid in reader.rows(TABLES):
        columns = reader.rows(COLUMNS, name)
        primary = tuple(column for column, at in sorted(columns, key=lambda row: row[1]) if at)
        key = primary if without_rowid else ("rowid",)
        yield Table(name, key, tuple(column for column, _ in columns), bool(virtual))


def rewrite_rows(writer: Writer, hits: Iterable[Hit], secret: Spellings) -> list[str]:
    """Take the secret out of these rows as they are now; what could not be changed."""
    return [line for hit in hits for line in _rewrite_row(writer, hit, secret)]


def _rewrite_row(writer: Writer, hit: Hit, secret: Spellings) -> list[str]:
    columns = [column for column in hit.columns if column not in KEPT]
    if not columns:
        return []
    same = " AND ".join(fill_names(SAME, column=column) for column in hit.table.key)
    typed = ", ".join(fill_names(TYPED, column=column) for column in columns)
    sql = fill_names(READ_ONE, table=hit.table.name).replace("@cells", typed).replace("@same", same)
    row = writer.row(sql, *hit.key) or ()
    changes: dict[str, bytes] = {}
    for column, kind, data in zip(columns, row[::2], row[1::2], strict=False):
        if kind in ("text", "blob"):
            # What is stored as bytes is a file: it keeps its length, so that it can still be opened.
            cleaned, count = (
                secret.mask_in_bytes(data) if kind == "blob" else _take_out(secret, hit.table, data)
            )
            if count:
                changes[column] = cleaned
    left = _set(writer, hit, changes, same) if changes else []
    if hit.table.name == "blobs" and "bytes" in changes and writer.rows(COLUMNS, "blob_refs"):
        _rename_blob(writer, hit.key[0])
    return left


def _rename_blob(writer: Writer, rowid: int) -> None:
    old, data = writer.row(BLOB, rowid) or (b"", b"")
    new = sha256(data).digest()
    writer.run(COPY_BLOB, new, old)
    for message_id, content in writer.rows(SHOWN_IN, old):
        writer.run(REFER, message_id, new)
        if isinstance(content, str):
            writer.run(SAY, content.replace(old.hex(), new.hex()), message_id)
    writer.run(FORGET_REFS, old)
    writer.run(FORGET_BLOB, old)


def _set(writer: Writer, hit: Hit, changes: dict[str, bytes], same: str) -> list[str]:
    sql = fill_names(SET, table=hit.table.name).replace("@same", same)
    sql = sql.replace("@changes", ", ".join(fill_names(CHANGE, column=column) for column in changes))
    numbers = range(1, 1000) if any(column in NUMBERED for column in changes) else range(1, 2)
    for number in numbers:
        values = [
            _fit_length(data, number) if column in NUMBERED else data for column, data in changes.items()
        ]
        try:
            writer.run(sql, *(value for value in values for _ in range(2)), *hit.key)
            return []
        except apsw.ConstraintError:
            continue
    return [f"{hit.table.name}: a row must differ from the others in what would become the same"]


def _fit_length(data: bytes, number: int) -> bytes:
    """A title that fits, with a number from the second on."""
    suffix = f" ({number})" if number > 1 else ""
    text = data.decode("utf-8", "replace")
    if len(text) + len(suffix) > MAX_TITLE_LENGTH:
        text = text[: MAX_TITLE_LENGTH - len(suffix)].rstrip()
    return (text + suffix).encode()


def count_by_column(hits: list[Hit], secret: Spellings) -> list[Scrubbed]:
    counts: Counter[str] = Counter()
    sessions: dict[str, set[str]] = defaultdict(set)
    for hit in hits:
        for column, count in hit.columns.items():
            if column not in KEPT and not hit.table.virtual:
                counts[f"{hit.table.name}.{column}"] += count
                sessions[f"{hit.table.name}.{column}"].update(map(secret.clean_name, hit.sessions))
    return [Scrubbed(place, counts[place], tuple(sorted(sessions[place]))) for place in sorted(counts)]


def describe_kept(hits: list[Hit], secret: Spellings) -> list[str]:
    rows = Counter(f"{hit.table.name}.{name}" for hit in hits for name in hit.columns if name in KEPT)
    why = "rows are found by it, or programs act on it"
    return [
        f"{secret.clean_name(name)}: kept in {format_count(count, 'row')}, because {why}"
        for name, count in sorted(rows.items())
    ]
