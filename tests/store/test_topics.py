"""Telegram topics are enabled for each chat. Each topic has one session and is removed with that session."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.stored_rows import read_dicts

CHAT, USER = "1001", "42"


def bind(db: SessionDB, session_id: str, thread_id: str = "7", chat_id: str = CHAT) -> None:
    db.bind_telegram_topic(
        chat_id=chat_id,
        thread_id=thread_id,
        user_id=USER,
        session_key=f"key:{session_id}",
        session_id=session_id,
    )


def bound_to(db: SessionDB, thread_id: str = "7") -> str | None:
    found = db.get_telegram_topic_binding(chat_id=CHAT, thread_id=thread_id)
    return None if found is None else found["session_id"]


def unlinked(db: SessionDB, limit: int = 10) -> list[str]:
    rows = db.list_unlinked_telegram_sessions_for_user(chat_id=CHAT, user_id=USER, limit=limit)
    return [row["id"] for row in rows]


def chat_session(db: SessionDB, session_id: str, at: float, user: str = USER) -> None:
    db.create_session(session_id, "telegram", user_id=user, started_at=at)
    db.append_message(session_id, "user", f"hello from {session_id}", timestamp=at + 1)


def test_reads_of_a_store_without_topics(db: SessionDB) -> None:
    chat_session(db, "a", 100.0)
    db.disable_telegram_topic_mode(chat_id=CHAT)
    assert db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is False
    assert bound_to(db) is None
    assert db.is_telegram_session_linked_to_topic(session_id="a") is False
    assert unlinked(db) == ["a"]


def test_enabling_is_for_one_chat_and_its_user(db: SessionDB) -> None:
    db.enable_telegram_topic_mode(chat_id=CHAT, user_id=USER)
    assert db.get_meta("telegram_dm_topic_schema_version") == "2"
    assert db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is True
    assert db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id="43") is False
    assert db.is_telegram_topic_mode_enabled(chat_id="1002", user_id=USER) is False


def test_values_from_telegram_are_kept_until_they_change(db: SessionDB) -> None:
    db.enable_telegram_topic_mode(
        chat_id=CHAT, user_id=USER, has_topics_enabled=True, allows_users_to_create_topics=False
    )
    db.enable_telegram_topic_mode(chat_id=CHAT, user_id=USER, allows_users_to_create_topics=True)
    (row,) = read_dicts(db, "SELECT * FROM telegram_dm_topic_mode")
    assert (row["has_topics_enabled"], row["allows_users_to_create_topics"]) == (1, 1)


def test_numbers_and_text_name_the_same_chat(db: SessionDB) -> None:
    db.enable_telegram_topic_mode(chat_id=1001, user_id=42)  # type: ignore[arg-type]
    assert db.is_telegram_topic_mode_enabled(chat_id="1001", user_id="42") is True
    assert db.is_telegram_topic_mode_enabled(chat_id=1001, user_id=42) is True  # type: ignore[arg-type]


@pytest.mark.parametrize("clear", [True, False])
def test_disabling_clears_the_bindings_unless_told_to_keep_them(db: SessionDB, clear: bool) -> None:
    db.enable_telegram_topic_mode(chat_id=CHAT, user_id=USER)
    chat_session(db, "here", 100.0)
    chat_session(db, "elsewhere", 100.0)
    bind(db, "here")
    bind(db, "elsewhere", chat_id="1002")
    db.disable_telegram_topic_mode(chat_id=CHAT, clear_bindings=clear)
    assert db.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is False
    assert bound_to(db) == (None if clear else "here")
    assert db.is_telegram_session_linked_to_topic(session_id="elsewhere") is True


def test_a_binding_has_all_of_its_values(db: SessionDB) -> None:
    chat_session(db, "a", 100.0)
    db.bind_telegram_topic(
        chat_id=CHAT, thread_id="7", user_id=USER, session_key="key", session_id="a", managed_mode="restored"
    )
    found = db.get_telegram_topic_binding(chat_id=CHAT, thread_id="7")
    assert found is not None
    values = {name: found[name] for name in ("chat_id", "thread_id", "user_id", "session_key", "session_id")}
    assert values == {
        "chat_id": CHAT,
        "thread_id": "7",
        "user_id": USER,
        "session_key": "key",
        "session_id": "a",
    }
    assert found["managed_mode"] == "restored"
    assert found["linked_at"] <= found["updated_at"]


def test_a_topic_takes_another_session_in_place_of_the_first(db: SessionDB) -> None:
    chat_session(db, "first", 100.0)
    chat_session(db, "second", 200.0)
    bind(db, "first")
    bind(db, "first")
    bind(db, "second")
    assert bound_to(db) == "second"
    assert db.is_telegram_session_linked_to_topic(session_id="first") is False


@pytest.mark.parametrize(("thread_id", "chat_id"), [("8", CHAT), ("7", "1002")])
def test_a_session_is_in_one_topic_only(db: SessionDB, thread_id: str, chat_id: str) -> None:
    chat_session(db, "a", 100.0)
    bind(db, "a")
    with pytest.raises(ValueError, match="already linked"):
        bind(db, "a", thread_id, chat_id)
    assert bound_to(db) == "a"


def test_an_unknown_session_cannot_be_bound(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        bind(db, "nobody")
    assert bound_to(db) is None


def test_a_deleted_session_leaves_its_topic(db: SessionDB) -> None:
    chat_session(db, "a", 100.0)
    bind(db, "a")
    assert db.delete_session("a") is True
    assert bound_to(db) is None


def test_unlinked_sessions_are_the_persons_own_newest_activity_first(db: SessionDB) -> None:
    chat_session(db, "old", 100.0)
    chat_session(db, "bound", 200.0)
    chat_session(db, "new", 300.0)
    chat_session(db, "theirs", 400.0, user="43")
    db.create_session("terminal", "cli", user_id=USER)
    bind(db, "bound")
    db.append_message("old", "user", "back again", timestamp=500.0)
    rows = db.list_unlinked_telegram_sessions_for_user(chat_id=CHAT, user_id=USER)
    assert [(row["id"], row["preview"], row["last_active"]) for row in rows] == [
        ("old", "hello from old", 500.0),
        ("new", "hello from new", 301.0),
    ]
    assert unlinked(db, limit=1) == ["old"]


def test_a_conversation_is_one_row_and_linked_if_any_session_of_it_is(db: SessionDB) -> None:
    chat_session(db, "first", 100.0)
    db.end_session("first", "compression")
    db.create_session("second", "telegram", user_id=USER, parent_session_id="first")
    assert unlinked(db) == ["second"]
    bind(db, "second")
    assert unlinked(db) == []


def test_bindings_survive_a_reopen(db: SessionDB, home: Path) -> None:
    chat_session(db, "a", 100.0)
    db.enable_telegram_topic_mode(chat_id=CHAT, user_id=USER)
    bind(db, "a")
    db.close()
    again = SessionDB(home / "state.db", read_only=True)
    assert bound_to(again) == "a"
    assert again.is_telegram_topic_mode_enabled(chat_id=CHAT, user_id=USER) is True
    again.close()
