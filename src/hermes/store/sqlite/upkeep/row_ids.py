"""Detection and replacement of row ids that leave no room for new rows.

SQLite gives a new row the id after the highest id that its table ever had. If another program stored the
highest possible id, or wrote it into `sqlite_sequence`, no row can be added. Rows with ids that are too high
get new ids after the highest normal id, in the same order, and all references to them are updated. SQLite
then continues after the new ids.
"""

from __future__ import annotations

from typing import LiteralString, NamedTuple

from hermes.store.engine import Reader, Writer

HIGHEST_ID = 1 << 62
"""The limit for normal ids. The store never reaches it by itself, and the index does not support ids above it."""


class _Table(NamedTuple):
    name: str
    rows: LiteralString
    highest: LiteralString
    move: tuple[LiteralString, ...]


_TABLES = (
    _Table(
        "messages",
        "SELECT id, session_id FROM messages WHERE id > ? ORDER BY id",
        """SELECT max(coalesce((SELECT max(id) FROM messages WHERE id <= ?), 0),
            coalesce((SELECT max(value) FROM index_progress WHERE name IN ('messages', 'blocks')), 0))""",
        (
            "UPDATE messages SET id = ?1 WHERE id = ?2",
            "UPDATE blob_refs SET message_id = ?1 WHERE message_id = ?2",
            "UPDATE carried_context SET first_message_id = ?1 WHERE first_message_id = ?2",
            "UPDATE carried_context SET last_message_id = ?1 WHERE last_message_id = ?2",
        ),
    ),
    _Table(
        "inbox",
        "SELECT id, session_key FROM inbox WHERE id > ? ORDER BY id",
        "SELECT coalesce(max(id), 0) FROM inbox WHERE id <= ?",
        ("UPDATE inbox SET id = ?1 WHERE id = ?2",),
    ),
    _Table(
        "outbox",
        "SELECT id, session_key FROM outbox WHERE id > ? ORDER BY id",
        "SELECT coalesce(max(id), 0) FROM outbox WHERE id <= ?",
        ("UPDATE outbox SET id = ?1 WHERE id = ?2",),
    ),
    _Table(
        "model_usage",
        "SELECT id, session_id FROM model_usage WHERE id > ? ORDER BY id",
        "SELECT coalesce(max(id), 0) FROM model_usage WHERE id <= ?",
        ("UPDATE model_usage SET id = ?1 WHERE id = ?2",),
    ),
)
COUNTED_TO = "SELECT seq FROM sqlite_sequence WHERE name = ? AND typeof(seq) = 'integer'"
COUNT_ON = "UPDATE sqlite_sequence SET seq = ? WHERE name = ?"
DEFER = "PRAGMA defer_foreign_keys=ON"


def find_high_ids(reader: Reader) -> list[str]:
    """Describe each row whose id, and each sequence whose value, leaves no room for new rows."""
    found = []
    for table in _TABLES:
        rows = reader.rows(table.rows, HIGHEST_ID)
        found += [
            f"{table.name} row {row_id} of {owner}: its id leaves no room for new rows"
            for row_id, owner in rows
        ]
        if not rows and (reader.value(COUNTED_TO, table.name) or 0) > HIGHEST_ID:
            found.append(f"{table.name}: sqlite_sequence leaves no room for new rows")
    return found


def move_high_ids(writer: Writer) -> list[str]:
    """Assign new ids to rows whose id is too high, in the caller's transaction.

    Return a description of each change.
    """
    done = []
    writer.run(DEFER)
    for table in _TABLES:
        last = int(writer.value(table.highest, HIGHEST_ID))
        rows = writer.rows(table.rows, HIGHEST_ID)
        for row_id, owner in rows:
            last += 1
            for statement in table.move:
                writer.run(statement, last, row_id)
            done.append(
                f"{table.name} row {row_id} of {owner} is now row {last}: its id left no room for new rows"
            )
        if (writer.value(COUNTED_TO, table.name) or 0) > HIGHEST_ID:
            writer.run(COUNT_ON, last, table.name)
            if not rows:
                done.append(
                    f"{table.name}: SQLite continues from {last}; sqlite_sequence left no room for new rows"
                )
    return done
