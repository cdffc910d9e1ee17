"""The last migration step: turn a database of the reference's version 11 into a Hermes store.

The step is one transaction and verifies that it kept all data. The tables of the reference stay unchanged,
with four exceptions that the rules of a Hermes store require:

- If several sessions have the same title, all but the first get a number: ` (2)`, ` (3)`…
- For messages without a session row, a session row is created.
- Bytes that are not valid text become U+FFFD.
- A column spelled `Title` becomes `title`.

References to a parent that does not exist are kept: foreign keys are off during the migration, and SQLite
checks a reference only when it is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import apsw

from hermes.session_kinds import SOURCE_ALIASES
from hermes.store.derived import Family
from hermes.store.sqlite.connection import SqliteWriter, run
from hermes.store.sqlite.migrations import APPLICATION_ID, LAYOUT, SCHEMA_VERSION, proof, reference_search
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.layouts import store_uids_as_text
from hermes.store.sqlite.migrations.shape import (
    Shape,
    add_column,
    drop_changed,
    fill_gaps,
    find_gaps,
    find_misspelt,
    read_columns,
    respell,
)
from hermes.store.sqlite.migrations.steps import set_version
from hermes.store.sqlite.schema import schema_sql
from hermes.store.sqlite.search import index
from hermes.text import format_count

MAX_TITLE_LENGTH = 100

ALL_SESSIONS = "SELECT id FROM sessions WHERE id IS NOT NULL"
SHARED_TITLES = """SELECT id, title FROM sessions WHERE title IN
    (SELECT title FROM sessions WHERE title IS NOT NULL GROUP BY title HAVING count(*) > 1)
    ORDER BY title, started_at, rowid"""
TITLES = "SELECT title FROM sessions WHERE title IS NOT NULL"
RENAME = "UPDATE sessions SET title = ? WHERE id = ?"
WITHOUT_SESSION = """SELECT session_id, min(timestamp), count(*) FROM messages
    WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = messages.session_id) GROUP BY session_id"""
TEXTS = """SELECT rowid, CAST({column} AS BLOB) FROM {table}
    WHERE typeof({column}) = 'text' AND length(CAST({column} AS BLOB)) > 0"""
MEND = "UPDATE {table} SET {column} = ? WHERE rowid = ?"
NAME_SOURCE = "UPDATE sessions SET source = ? WHERE source = ?"
PLACEHOLDER = "INSERT INTO sessions (id, source, started_at, message_count) VALUES (?, 'unknown', ?, ?)"
FORGET_NOTES = "DELETE FROM changed_sessions; DELETE FROM changed_messages"
MARKS = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={LAYOUT}"


OUR_INDEX = (
    *(
        f"messages_fts_{table}{part}"
        for table in ("words", "blocks")
        for part in ("", "_data", "_idx", "_content", "_docsize", "_config")
    ),
    *("messages_fts_ranges", "messages_fts_members"),
)


class Differs(Exception):
    """Raised if the data after a migration differs from the data before it. The transaction is then rolled back."""


@dataclass
class Outcome:
    sessions: int
    messages: int
    notes: list[str]
    struck: bool
    """Whether search tables could not be dropped and were only deleted from the schema."""


def adopt_store(connection: apsw.Connection, want: Shape) -> Outcome:
    try:
        outcome, struck = reference_search.in_transaction(
            connection, lambda c, strike: _adopt_tables(c, want, strike, mend=False)
        )
    except UnicodeDecodeError:
        outcome, struck = reference_search.in_transaction(
            connection, lambda c, strike: _adopt_tables(c, want, strike, mend=True)
        )
    outcome.struck = struck
    return outcome


def _adopt_tables(connection: apsw.Connection, want: Shape, strike: bool, mend: bool) -> Outcome:
    mended = 0
    misspelt = find_misspelt(connection, want)
    if mend or misspelt:
        reference_search.remove(connection, strike)  # otherwise its triggers would run, or block the renaming
    respell(connection, misspelt)
    if mend:
        mended = mend_text(connection)
    gaps = find_gaps(connection, want)
    columns = proof.list_columns(connection, leave_out=gaps)
    before = proof.take(connection, columns)

    drop_changed(connection, want)
    reference_search.remove(connection, strike)
    if strike:
        reference_search.strike_names(connection, OUR_INDEX)
    for table in ("sessions", "messages", "state_meta"):
        for column in want.tables[table].values():
            add_column(connection, table, column)
    fill_gaps(connection, want, gaps)
    renamed = _tell_titles_apart(connection) if before.columns["sessions"] else {}
    added = _give_orphans_a_session(connection) if before.columns["messages"] else set()
    connection.execute(schema_sql()).fetchall()
    run(connection, index.DROP)
    run(connection, index.read_definition())
    Family(SqliteWriter(connection, {})).refresh([row[0] for row in run(connection, ALL_SESSIONS)])
    set_version(connection, SCHEMA_VERSION)
    run(connection, MARKS)

    after = proof.take(connection, columns, renamed)
    wrong = proof.list_differences(before, after, added)
    if wrong:
        raise Differs(
            f"the migrated tables would differ from the original ({'; '.join(wrong[:3])});"
            " a trigger in the file may be the cause"
        )
    # Intended changes, made after the verification.
    for spelled, name in SOURCE_ALIASES.items():
        run(connection, NAME_SOURCE, name, spelled)
    store_uids_as_text(connection)
    run(connection, FORGET_NOTES)
    titles = format_count(len(renamed), "title that was used twice was", "titles that were used twice were")
    notes = [f"{titles} numbered"] if renamed else []
    made = format_count(len(added), "session was", "sessions were")
    notes += [f"{made} created for messages without a session"] if added else []
    texts = format_count(mended, "text")
    notes += (
        [f"{texts} contained bytes that are not valid text; they were replaced by U+FFFD"] if mended else []
    )
    return Outcome(*proof.counts(connection), notes, strike)


def mend_text(connection: apsw.Connection) -> int:
    """Replace invalid bytes by U+FFFD in texts that are not valid UTF-8. Return the number of changed texts.

    This is needed because Python cannot read texts with invalid bytes.
    """
    mended = 0
    for table in ("sessions", "messages"):
        for column in read_columns(connection, table):
            for row, text in run(connection, fill_names(TEXTS, table=table, column=column)):
                try:
                    text.decode()
                except UnicodeDecodeError:
                    mended += 1
                    run(
                        connection,
                        fill_names(MEND, table=table, column=column),
                        text.decode(errors="replace"),
                        row,
                    )
    return mended


def _tell_titles_apart(connection: apsw.Connection) -> dict[Any, bytes | str]:
    """Make titles unique: of several sessions with the same title, the oldest keeps it and the others get a
    number.

    Return the renamed sessions with their former titles.
    """
    taken: set[Any] = set()
    was: dict[Any, bytes | str] = {}
    shared = run(connection, SHARED_TITLES)
    if shared:
        taken.update(row[0] for row in run(connection, TITLES))
    previous: Any = None
    for session_id, title in shared:
        if title != previous:
            previous = title
            continue
        number = 2
        while (chosen := number_title(title, number)) in taken:
            number += 1
        taken.add(chosen)
        was[session_id] = proof.cell(title)
        run(connection, RENAME, chosen, session_id)
    return was


def number_title(title: Any, number: int) -> str:
    suffix = f" ({number})"
    base = title if isinstance(title, str) else "untitled"
    return base[: MAX_TITLE_LENGTH - len(suffix)].rstrip() + suffix


def _give_orphans_a_session(connection: apsw.Connection) -> set[Any]:
    lost = run(connection, WITHOUT_SESSION)
    for session_id, oldest, count in lost:
        run(connection, PLACEHOLDER, session_id, oldest, count)
    return {row[0] for row in lost}
