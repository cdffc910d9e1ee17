"""Creates stores in the layout of older versions of this program."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

# layout 1 differs from layout 2 in the type of `uid` and in three triggers
TRIGGERS_1 = """
DROP TRIGGER hermes_change_noted;
DROP TRIGGER hermes_message_arrived;
DROP TRIGGER hermes_uid_written;
CREATE TRIGGER hermes_noted INSTEAD OF INSERT ON hermes_changed BEGIN
    INSERT INTO changed_sessions SELECT m.session_id FROM messages m WHERE m.id = new.message_id
        AND NOT EXISTS (SELECT 1 FROM changed_sessions c WHERE c.session_id = m.session_id);
    INSERT INTO changed_sessions SELECT new.session_id WHERE new.session_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM changed_sessions WHERE session_id = new.session_id);
    INSERT INTO changed_messages SELECT new.message_id WHERE (new.sure OR new.message_id <= max(
            coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), new.message_id),
            coalesce((SELECT max(id) FROM messages), 0)))
        AND NOT EXISTS (SELECT 1 FROM changed_messages WHERE message_id = new.message_id);
END;
CREATE TRIGGER hermes_message_added AFTER INSERT ON messages WHEN new.uid IS NULL BEGIN
    INSERT INTO hermes_changed VALUES (new.id, new.session_id, 1);
END;
PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql = replace(sql, 'uid TEXT', 'uid BLOB') WHERE name = 'messages';
PRAGMA writable_schema = RESET;
PRAGMA user_version = 1;
"""
FORGET_NOTES = "DELETE FROM changed_messages; DELETE FROM changed_sessions;"


def make_layout_1(path: Path) -> dict[int, str | None]:
    """Convert a closed store from layout 2 to layout 1. Return the uid of each message as text, by message
    id."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        uids = dict(connection.execute("SELECT id, uid FROM messages ORDER BY id"))
        connection.executescript(TRIGGERS_1)
        connection.executemany(
            "UPDATE messages SET uid = ? WHERE id = ?",
            [(None if uid is None else bytes.fromhex(uid), number) for number, uid in uids.items()],
        )
        connection.executescript(FORGET_NOTES)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return uids
