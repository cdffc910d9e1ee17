"""The file has the documented tables, columns and indexes. Any program can use it with plain SQL."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

import hermes_state
from hermes_state import SessionDB
from tests.interface.conftest import contents, ids, say
from tests.store.sqlite.conftest import Outside

# name: (type, NOT NULL, default, primary key)
Columns = dict[str, tuple[str, bool, str | None, bool]]


def text(*names: str) -> Columns:
    return dict.fromkeys(names, ("TEXT", False, None, False))


def counter(*names: str) -> Columns:
    return dict.fromkeys(names, ("INTEGER", False, "0", False))


def real(*names: str) -> Columns:
    return dict.fromkeys(names, ("REAL", False, None, False))


SESSIONS: Columns = {
    "id": ("TEXT", False, None, True),
    "source": ("TEXT", True, None, False),
    **text("user_id", "model", "model_config", "system_prompt", "parent_session_id"),
    "started_at": ("REAL", True, None, False),
    **real("ended_at"),
    **text("end_reason"),
    **counter("message_count", "tool_call_count", "input_tokens", "output_tokens"),
    **counter("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    **text("billing_provider", "billing_base_url", "billing_mode"),
    **real("estimated_cost_usd", "actual_cost_usd"),
    **text("cost_status", "cost_source", "pricing_version", "title"),
    **counter("api_call_count"),
    **text("handoff_state", "handoff_platform", "handoff_error"),
}
MESSAGES: Columns = {
    "id": ("INTEGER", False, None, True),
    "session_id": ("TEXT", True, None, False),
    "role": ("TEXT", True, None, False),
    **text("content", "tool_call_id", "tool_calls", "tool_name"),
    "timestamp": ("REAL", True, None, False),
    "token_count": ("INTEGER", False, None, False),
    **text("finish_reason", "reasoning", "reasoning_content", "reasoning_details"),
    **text("codex_reasoning_items", "codex_message_items"),
}
STATE_META: Columns = {"key": ("TEXT", False, None, True), "value": ("TEXT", False, None, False)}
SCHEMA_VERSION: Columns = {"version": ("INTEGER", True, None, False)}

INDEXES = {
    "idx_sessions_source": ("sessions", ["source"]),
    "idx_sessions_parent": ("sessions", ["parent_session_id"]),
    "idx_sessions_started": ("sessions", ["started_at"]),
    "idx_messages_session": ("messages", ["session_id", "timestamp"]),
}

NEW_SESSION = "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', 5)"
NEW_MESSAGE = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 6)"


def columns_of(db: SessionDB, table: str) -> Columns:
    rows = db.raw().execute(f"PRAGMA table_info({table})").fetchall()
    return {
        row["name"]: (row["type"], bool(row["notnull"]), row["dflt_value"], bool(row["pk"])) for row in rows
    }


# Contents


@pytest.mark.parametrize(("table", "documented"), [("sessions", SESSIONS), ("messages", MESSAGES)])
def test_a_table_has_the_documented_columns_first_and_in_order(
    db: SessionDB, table: str, documented: Columns
) -> None:
    found = columns_of(db, table)
    assert list(found)[: len(documented)] == list(documented)
    assert {name: found[name] for name in documented} == documented


@pytest.mark.parametrize(
    ("table", "documented"), [("state_meta", STATE_META), ("schema_version", SCHEMA_VERSION)]
)
def test_a_small_table_is_exactly_as_documented(db: SessionDB, table: str, documented: Columns) -> None:
    assert columns_of(db, table) == documented


@pytest.mark.parametrize("table", ["sessions", "messages"])
def test_other_programs_may_omit_every_additional_column(db: SessionDB, table: str) -> None:
    documented = {"sessions": SESSIONS, "messages": MESSAGES}[table]
    ours = {name: column for name, column in columns_of(db, table).items() if name not in documented}
    assert [name for name, (_, required, default, _) in ours.items() if required and default is None] == []


@pytest.mark.parametrize(("name", "documented"), INDEXES.items())
def test_a_documented_index_is_there(db: SessionDB, name: str, documented: tuple[str, list[str]]) -> None:
    found = (
        db.raw()
        .execute("SELECT tbl_name FROM sqlite_master WHERE type='index' AND name=?", (name,))
        .fetchone()
    )
    columns = [row["name"] for row in db.raw().execute(f"PRAGMA index_info({name})").fetchall()]
    assert (found["tbl_name"], columns) == documented


def test_message_ids_are_never_used_again(db: SessionDB) -> None:
    (first,) = say(db, "a", "one")
    db.clear_messages("a")
    assert db.append_message("a", "user", "two") > first


def test_a_foreign_title_must_be_unique_unless_null(db: SessionDB) -> None:
    raw = db.raw()
    for session_id in ("a", "b"):
        raw.execute(NEW_SESSION, (session_id,))
    raw.execute("UPDATE sessions SET title='x' WHERE id='a'")
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE sessions SET title='x' WHERE id='b'")


@pytest.mark.parametrize("statement", [NEW_MESSAGE, "UPDATE sessions SET parent_session_id=? WHERE id=?"])
def test_foreign_keys_are_enforced(db: SessionDB, statement: str) -> None:
    db.create_session("a", "cli")
    with pytest.raises(sqlite3.IntegrityError):
        db.raw().execute(statement, ("nobody", "a"))


def test_the_version_is_one_row(db: SessionDB) -> None:
    assert [tuple(row) for row in db.raw().execute("SELECT version FROM schema_version").fetchall()] == [
        (11,)
    ]


def test_opening_again_changes_nothing_in_the_schema(db: SessionDB) -> None:
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
    before = db.raw().execute(schema).fetchall()
    db.close()
    with SessionDB() as again:
        assert again.raw().execute(schema).fetchall() == before


# other programs, with the sqlite3 module of the Python interpreter


def test_the_schema_loads_in_the_interpreters_sqlite3() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(hermes_state.SCHEMA_SQL)
    connection.executescript(hermes_state.SCHEMA_SQL)
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    connection.close()
    assert {"sessions", "messages", "state_meta", "schema_version"} <= names


def test_another_program_reads_the_live_file(db: SessionDB, outside: Outside) -> None:
    say(db, "a", "hello", "again")
    assert outside(db.db_path, "SELECT id, session_id, role, content FROM messages ORDER BY id") == [
        [1, "a", "user", "hello"],
        [2, "a", "user", "again"],
    ]


def test_another_program_writes_to_the_live_file(db: SessionDB, outside: Outside) -> None:
    outside(db.db_path, (NEW_SESSION, ("theirs",)), (NEW_MESSAGE, ("theirs", "written outside")))
    (message,) = db.get_messages("theirs")
    assert {name: message[name] for name in MESSAGES} == {
        **dict.fromkeys(MESSAGES),
        "id": 1,
        "session_id": "theirs",
        "role": "user",
        "content": "written outside",
        "timestamp": 6.0,
    }
    assert ids(db.search_messages("outside")) == [1]
    (row,) = db.list_sessions_rich()
    assert (row["id"], row["preview"], row["last_active"]) == ("theirs", "written outside", 6.0)


def test_another_program_changes_and_deletes_rows(db: SessionDB, outside: Outside) -> None:
    say(db, "a", "first words", "second words")
    outside(
        db.db_path,
        "UPDATE messages SET content='changed words' WHERE id=1",
        "DELETE FROM messages WHERE id=2",
        "UPDATE sessions SET title='theirs' WHERE id='a'",
    )
    assert contents(db.get_messages("a")) == ["changed words"]
    assert ids(db.search_messages("words")) == [1]
    assert db.search_messages("first") == []
    assert db.list_sessions_rich()[0]["preview"] == "changed words"
    assert db.resolve_session_by_title("theirs") == "a"


def test_another_program_checks_and_vacuums_the_file(db: SessionDB, outside: Outside) -> None:
    say(db, "a", *(f"message number {n}" for n in range(50)))
    db.search_messages("number")
    db.close()
    assert outside(db.db_path, "PRAGMA integrity_check") == [["ok"]]
    assert outside(db.db_path, "VACUUM", "PRAGMA foreign_key_check", "PRAGMA quick_check") == [["ok"]]
    with SessionDB() as again:
        assert len(again.search_messages("number", limit=100)) == 50
        assert again.verify().ok


# The documented queries

ANCESTORS = """
WITH RECURSIVE lineage AS (
    SELECT * FROM sessions WHERE id = ?
    UNION ALL
    SELECT s.* FROM sessions s JOIN lineage l ON s.id = l.parent_session_id
)
SELECT id, title, started_at, parent_session_id FROM lineage
"""
RECENT = """
SELECT s.*,
    COALESCE((SELECT SUBSTR(m.content, 1, 63) FROM messages m
        WHERE m.session_id = s.id AND m.role = 'user' AND m.content IS NOT NULL
        ORDER BY m.timestamp, m.id LIMIT 1), '') AS preview,
    COALESCE((SELECT MAX(m2.timestamp) FROM messages m2 WHERE m2.session_id = s.id), s.started_at) AS last_active
FROM sessions s ORDER BY s.started_at DESC LIMIT 20
"""
USAGE = """
SELECT model, COUNT(*) AS session_count, SUM(input_tokens) AS total_input, SUM(estimated_cost_usd) AS total_cost
FROM sessions WHERE model IS NOT NULL GROUP BY model ORDER BY total_cost DESC
"""


def rows(db: SessionDB, query: str, *values: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.raw().execute(query, values).fetchall()]


def test_the_documented_lineage_query_works(db: SessionDB) -> None:
    db.create_session("root", "cli", started_at=1)
    db.create_session("child", "cli", parent_session_id="root", started_at=2)
    assert rows(db, ANCESTORS, "child") == [("child", None, 2.0, "root"), ("root", None, 1.0, None)]


def test_the_documented_preview_query_works(db: SessionDB) -> None:
    say(db, "a", "hello")
    (row,) = db.raw().execute(RECENT).fetchall()
    assert (row["id"], tuple(row)[-2]) == ("a", "hello")


def test_the_documented_usage_query_works(db: SessionDB) -> None:
    db.update_token_counts("a", 10, 1, model="m", estimated_cost_usd=0.5)
    db.update_token_counts("b", 20, 1, model="m", estimated_cost_usd=0.25)
    assert rows(db, USAGE) == [("m", 2, 30, 0.75)]


def test_a_session_is_a_plain_dict_of_all_columns(db: SessionDB) -> None:
    db.create_session("a", "cli")
    columns = [row["name"] for row in db.raw().execute("PRAGMA table_info(sessions)").fetchall()]
    row = db.get_session("a") or {}
    assert type(row) is dict
    assert list(row) == columns
