"""Verification that a migration kept all data: a count and a checksum per session, before and after.

The checksum covers every column of `sessions` and `messages` that existed before the migration, except the
columns that the migration computes. Text that is not valid UTF-8 raises UnicodeDecodeError.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import apsw

from hermes.store.columns import list_session_names
from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.shape import read_columns
from hermes.text import format_count

WORKED_OUT = frozenset(list_session_names(lambda column: column.set_by == "derived"))

# Text is returned as bytes and bytes as text, so that they cannot be confused.
CELL = "CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) WHEN 'blob' THEN hex({column}) ELSE {column} END"
READ = "SELECT {key}, @cells FROM {table} ORDER BY {table}.rowid"
EXACT = 2
"""The version of the `marshal` format that is used, because it serialises equal values identically.

Later versions replace repeated values by references; earlier versions write numbers as text.
"""


@dataclass
class Proof:
    columns: dict[str, tuple[str, ...]]
    sessions: dict[Any, bytes] = field(default_factory=dict)
    messages: dict[Any, bytes] = field(default_factory=dict)
    session_count: int = 0
    message_count: int = 0


def list_columns(
    connection: apsw.Connection, leave_out: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    return {
        table: tuple(
            name
            for name in read_columns(connection, table)
            if name not in WORKED_OUT and name not in leave_out[table]
        )
        for table in ("sessions", "messages")
    }


def take(
    connection: apsw.Connection,
    columns: dict[str, tuple[str, ...]],
    titles: Mapping[Any, bytes | str] | None = None,
) -> Proof:
    """Compute the count and the checksums of the rows of `sessions` and `messages`, over the columns `columns`.

    `titles` maps the ids of sessions that the migration has renamed to their former titles. The checksum of such a
    session is computed with its former title, so that the renaming does not count as a change.
    """
    proof = Proof(columns)
    proof.sessions, proof.session_count = _digests(
        connection, "sessions", "id", columns["sessions"], titles or {}
    )
    proof.messages, proof.message_count = _digests(
        connection, "messages", "session_id", columns["messages"], {}
    )
    return proof


def list_differences(before: Proof, after: Proof, added: set[Any]) -> list[str]:
    """Describe each difference between the checksums from before and after a migration, except the expected ones.

    `added` are the ids of the sessions that the migration created for messages without a session.
    """
    found = [f"session {key!r} was lost or changed" for key in _differ(before.sessions, after.sessions)]
    found += [
        f"messages of session {key!r} were lost or changed"
        for key in _differ(before.messages, after.messages)
    ]
    if extra := after.sessions.keys() - before.sessions.keys() - added:
        found.append(f"{format_count(len(extra), 'session')} appeared")
    if extra := after.messages.keys() - before.messages.keys():
        found.append(f"messages of {format_count(len(extra), 'session')} appeared")
    if after.session_count != before.session_count + len(added):
        found.append(
            f"{format_count(before.session_count, 'session')} became {after.session_count - len(added)}"
        )
    if after.message_count != before.message_count:
        found.append(f"{format_count(before.message_count, 'message')} became {after.message_count}")
    return found


def _differ(before: Mapping[Any, bytes], after: Mapping[Any, bytes]) -> list[Any]:
    return [key for key, digest in before.items() if after.get(key) != digest]


def cell(value: str | bytes) -> bytes | str:
    """Return the title `value` in the form in which the SQL expression `CELL` returns a value of a row. This makes
    both comparable.
    """
    return value.encode() if isinstance(value, str) else value.hex().upper()


def _digests(
    connection: apsw.Connection,
    table: str,
    key: str,
    columns: tuple[str, ...],
    titles: Mapping[Any, bytes | str],
) -> tuple[dict[Any, bytes], int]:
    if not columns:
        return {}, 0
    sql = fill_names(READ, key=key, table=table)
    sql = sql.replace("@cells", ", ".join(fill_names(CELL, column=name) for name in columns))
    title_at = columns.index("title") + 1 if titles and "title" in columns else 0
    states: dict[Any, Any] = {}
    count = 0
    for row in connection.execute(sql):
        count += 1
        if title_at and row[0] in titles:
            row = (*row[:title_at], titles[row[0]], *row[title_at + 1 :])
        for value in row:
            if type(value) is bytes and not value.isascii():
                value.decode()
        state = states.get(row[0])
        if state is None:
            state = states[row[0]] = blake2b(digest_size=16)
        state.update(marshal.dumps(row, EXACT))
    return {owner: state.digest() for owner, state in states.items()}, count


def counts(connection: apsw.Connection) -> tuple[int, int]:
    return (
        int(run(connection, "SELECT count(*) FROM sessions")[0][0]),
        int(run(connection, "SELECT count(*) FROM messages")[0][0]),
    )
