"""The tables of Telegram topics: when they are created, and what happens to tables that another program
created.
"""

from __future__ import annotations

import sqlite3

import pytest

from hermes_state import SessionDB
from tests.store.test_topics import CHAT, USER, bind, bound_to, chat_session, unlinked

TABLES = {"telegram_dm_topic_mode", "telegram_dm_topic_bindings"}


def tables(db: SessionDB) -> set[str]:
    found = db.raw().execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {row[0] for row in found} & TABLES


def test_reading_and_disabling_create_no_tables(db: SessionDB) -> None:
    chat_session(db, "a", 100.0)
    assert db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is False
    assert db.get_telegram_topic_binding(chat_id=CHAT, thread_id="7") is None
    assert db.is_telegram_session_linked_to_topic(session_id="a") is False
    assert unlinked(db) == ["a"]
    db.disable_telegram_topic_mode(chat_id=CHAT)
    assert tables(db) == set()


def test_enabling_creates_both_tables(db: SessionDB) -> None:
    db.enable_telegram_topic_mode(chat_id=CHAT, user_id=USER)
    assert tables(db) == TABLES


def test_an_unknown_session_that_cannot_be_bound_makes_none(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        bind(db, "nobody")
    assert tables(db) == set()


V1 = """
CREATE TABLE telegram_dm_topic_mode (chat_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, enabled INTEGER NOT NULL);
CREATE TABLE telegram_dm_topic_bindings (chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, user_id TEXT NOT NULL,
    session_key TEXT NOT NULL, session_id TEXT NOT NULL UNIQUE REFERENCES sessions(id), managed_mode TEXT,
    PRIMARY KEY (chat_id, thread_id));
INSERT INTO telegram_dm_topic_mode VALUES ('1001', '42', 1);
INSERT INTO telegram_dm_topic_bindings VALUES ('1001', '7', '42', 'key', 'a', 'auto');
INSERT INTO state_meta VALUES ('telegram_dm_topic_schema_version', '1');
"""


@pytest.fixture
def old_db(db: SessionDB) -> SessionDB:
    """Open a store in which an older program has created the topic tables without the cascading delete."""
    chat_session(db, "a", 100.0)
    chat_session(db, "b", 200.0)
    db.raw().executescript(V1)
    return db


def test_tables_of_version_1_are_read_as_they_are(old_db: SessionDB) -> None:
    assert old_db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is True
    assert bound_to(old_db) == "a"
    assert unlinked(old_db) == ["b"]


def test_a_session_bound_in_version_1_can_be_deleted(old_db: SessionDB) -> None:
    assert old_db.delete_session("a") is True
    assert bound_to(old_db) is None


def test_the_first_change_rebuilds_version_1_and_keeps_every_row(old_db: SessionDB) -> None:
    bind(old_db, "b", thread_id="8")
    assert old_db.get_meta("telegram_dm_topic_schema_version") == "2"
    assert (bound_to(old_db, "7"), bound_to(old_db, "8")) == ("a", "b")
    assert old_db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is True
    sql = "SELECT sql FROM sqlite_master WHERE name = 'telegram_dm_topic_bindings'"
    assert "ON DELETE CASCADE" in old_db.raw().execute(sql).fetchone()[0]
