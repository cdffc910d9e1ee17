"""A column, table, index or trigger is missing. It is restored when the store is opened, or the loss is
reported.
"""

from __future__ import annotations

import logging
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes.cli.main import main
from hermes.store.sqlite.migrations.shape import Shape
from hermes.store.sqlite.schema import TOPIC_COLUMNS, read_declared, schema_sql
from hermes_state import SessionDB
from tests.store.sqlite.test_migrations import shape

TABLES = [table for table in read_declared().columns if table not in ("schema_version",)]
SIGNS = {
    *("sessions.id", "sessions.source", "sessions.started_at", "messages.id", "messages.session_id"),
    *("messages.role", "messages.content", "messages.timestamp"),
}
"""Without these columns, the file does not count as a session store."""
UNIQUE = (
    """SELECT c.name FROM pragma_index_list(?) i JOIN pragma_index_info(i.name) c WHERE i.origin <> 'c'"""
)


WITHOUT_FOREIGN_KEY = """PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql = replace(sql, ',
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)', '') WHERE name = 'sessions';
PRAGMA writable_schema = RESET"""


def is_lost(path: Path, table: str, column: str) -> bool:
    """Return whether the values of a missing column are lost. They are lost if the column is a key or is NOT
    NULL without a default.

    A table without rows loses nothing.
    """
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute(f"SELECT 1 FROM {table}").fetchone():
            return False
        info = {row[1]: row for row in connection.execute(f"PRAGMA table_info({table})")}
        unique = {row[0] for row in connection.execute(UNIQUE, (table,))}
    required, default, key = info[column][3:]
    return bool(key or column in unique or (required and default is None)) or f"{table}.{column}" in SIGNS


def columns_in(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def take_away(path: Path, table: str, column: str) -> None:
    """Drop a column and every index or trigger that names it. SQLite cannot drop a key column. In that case,
    create the table again without the column."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rules = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR type = 'index' AND tbl_name = ?"
            " AND sql IS NOT NULL AND (sql LIKE '%' || ? || '%')",
            (table, column),
        ).fetchall()
        for kind, name in rules:
            connection.execute(f"DROP {kind} {name}")
        connection.executescript(WITHOUT_FOREIGN_KEY if column == "parent_session_id" else "")
        try:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        except sqlite3.OperationalError:
            others = [name for name in columns_in(path, table) if name != column] or ["NULL AS something"]
            connection.execute(f"CREATE TABLE remade AS SELECT {', '.join(others)} FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute("PRAGMA legacy_alter_table = ON")
            connection.execute(f"ALTER TABLE remade RENAME TO {table}")
    assert column not in columns_in(path, table)


def use(db: SessionDB) -> None:
    """Write and read every table."""
    db.create_session("new", "telegram", user_id="7")
    db.append_message("new", "user", "a word about albatrosses")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}
    db.append_message("new", "user", [picture, {"type": "text", "text": "picture"}])
    db.record_usage("new", model="m", input_tokens=5, output_tokens=7)
    db.add_tags("new", "birds")
    lease = db.leases.acquire("new", "test")
    db.append_message("new", "assistant", "an answer", lease_epoch=lease.epoch)
    db.leases.release(lease)
    db.routing.route("key-new", "telegram", "dm", "9", None, None, "new", {"a": 1})
    assert db.inbox.accept("key-new", "telegram", {"text": "x"}, platform_message_id="n1") is not None
    db.outbox.enqueue("key-new", "telegram", {"text": "y"}, "once-new", session_id="new")
    db.set_meta("new", "value")
    child = db.begin_continuation("new", "a summary", [db.get_messages("new")[0]["id"]])
    assert len(db.get_messages_as_conversation(child)) == 2
    assert len(db.search_messages("albatrosses")) == 1
    assert {row["id"] for row in db.list_sessions_rich(limit=50)} >= {child}
    db.rewind_to_message("first", db.list_recent_user_messages("first")[0]["id"])
    assert db.usage_of("new").by_model
    db.delete_session(child)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a store with rows in every table."""
    path = tmp_path_factory.mktemp("template") / "state.db"
    with SessionDB(path) as db:
        db.create_session("first", "telegram", model="m", started_at=1000.0)
        db.set_session_title("first", "my birds")
        for number in range(4):
            db.append_message("first", "assistant" if number % 2 else "user", f"pelican {number}")
        db.append_message("first", "assistant", None, tool_calls=[{"id": "1"}, {"id": "2"}])
        gone = db.append_message("first", "user", "taken back")
        db.rewind_to_message("first", gone)
        db.append_message("first", "user", "the last word")
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "WFla" * 2000}}
        db.append_message("first", "user", [picture, {"type": "text", "text": "a heron"}])
        db.record_usage("first", model="m", input_tokens=11, output_tokens=13, estimated_cost_usd=0.5)
        db.record_usage("first", model="m", input_tokens=1, output_tokens=2, cache_read_tokens=3)
        db.add_tags("first", "birds")
        lease = db.leases.acquire("first", "test")
        db.leases.release(lease)
        db.routing.route("key", "telegram", "dm", "1", None, None, "first", {"a": 1})
        db.inbox.accept("key", "telegram", {"text": "x"}, platform_message_id="p1")
        db.outbox.enqueue("key", "telegram", {"text": "y"}, "once", session_id="first")
        db.set_meta("some", "value")
        db.begin_continuation("first", "what was said", [1], session_id="tip")
        db.append_message("tip", "user", "and on")
        db.optimize()
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    shutil.copy(template, path)
    return path


def test_the_names_are_those_of_the_schema() -> None:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(schema_sql()).fetchall()
        built = Shape(connection)
    tables = {name: {*columns} for name, columns in built.tables.items() if not name.startswith("sqlite_")}
    assert tables == {name: {*columns} for name, columns in read_declared().columns.items()}
    rules = {name: kind for name, kind in built.kinds.items() if kind != "table"}
    assert rules | dict.fromkeys(built.triggers, "trigger") == read_declared().rules


@pytest.mark.parametrize(
    "table",
    [
        table if table in ("sessions", "state_meta") else pytest.param(table, marks=pytest.mark.full)
        for table in TABLES
    ],
)
def test_each_column_is_restored_or_reported(
    template: Path, tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = shape(template)[f"table {table}"]
    for column in columns_in(template, table):
        path = tmp_path / column / "state.db"
        path.parent.mkdir()
        shutil.copy(template, path)
        take_away(path, table, column)
        with pytest.raises(errors.StoreError) as refused:
            SessionDB(path, read_only=True)
        assert f"the column {table}.{column}" in str(refused.value) or f"{table}.{column}" in SIGNS
        if is_lost(template, table, column):
            with pytest.raises(
                errors.StoreDamaged, match=f"the table {table} lacks its column {column}"
            ) as lost:
                SessionDB(path)
            assert "repair" in str(lost.value)
            if table not in ("sessions", "messages"):
                SessionDB.repair_file(path)
                with SessionDB(path) as db:
                    use(db)
            continue
        caplog.clear()
        with SessionDB(path) as db:
            assert f"the column {table}.{column}" in caplog.text
            use(db)
            assert db.verify().ok
        assert shape(path)[f"table {table}"] == whole


DERIVED = [
    *(
        "relation",
        "root_id",
        "last_active",
        "last_person_at",
        "preview",
        "conversation_active",
        "listed",
        "kind",
    ),
    *("message_count", "tool_call_count", "api_call_count", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "estimated_cost_usd", "lease_epoch"),
]


@pytest.mark.parametrize("column", DERIVED)
def test_values_that_follow_from_others_are_computed_again(store: Path, column: str) -> None:
    ask = f"SELECT id, {column} FROM sessions ORDER BY id"
    with closing(sqlite3.connect(store)) as connection:
        before = connection.execute(ask).fetchall()
        assert any(value for _id, value in before)
    take_away(store, "sessions", column)
    SessionDB(store).close()
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute(ask).fetchall() == before


def test_the_parent_is_a_reference_again(store: Path) -> None:
    take_away(store, "sessions", "parent_session_id")
    with SessionDB(store) as db, pytest.raises(sqlite3.IntegrityError):
        db.create_session("child", "cli", parent_session_id="nobody")
    with closing(sqlite3.connect(store)) as connection:
        [key] = connection.execute("PRAGMA foreign_key_list(sessions)").fetchall()
    assert key[2:5] == ("sessions", "parent_session_id", "id")


def test_rewound_messages_stay_out(store: Path) -> None:
    take_away(store, "messages", "active")
    with SessionDB(store) as db:
        assert "taken back" not in [row["content"] for row in db.get_messages("first")]


def test_attachments_are_still_restored_into_messages(store: Path) -> None:
    take_away(store, "messages", "content_kind")
    with SessionDB(store) as db:
        content = db.get_messages("first")[-1]["content"]
        assert content[0]["image_url"]["url"].endswith("WFla")


@pytest.mark.parametrize("name", sorted(read_declared().rules))
def test_indexes_triggers_and_the_view_are_restored(store: Path, name: str) -> None:
    wanted = shape(store)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"DROP {read_declared().rules[name]} {name}")
        connection.commit()
    with SessionDB(store) as db:
        assert db.verify().ok
    assert shape(store) == wanted


@pytest.mark.parametrize("table", [table for table in TABLES if table not in ("sessions", "messages")])
def test_tables_are_restored(store: Path, table: str) -> None:
    wanted = shape(store)[f"table {table}"]
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"DROP TABLE {table}")
        connection.commit()
    with SessionDB(store) as db:
        use(db)
    assert shape(store)[f"table {table}"] == wanted


@pytest.mark.parametrize("table", ["sessions", "messages"])
def test_a_lost_table_is_damage_and_not_an_empty_history(store: Path, table: str) -> None:
    with closing(sqlite3.connect(store)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
        connection.commit()
    with pytest.raises(errors.StoreDamaged, match=f"it has no table {table}"):
        SessionDB(store)


def test_duplicate_titles_become_different(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(
            """DROP INDEX idx_sessions_title_unique; DROP INDEX idx_inbox_once;
            INSERT INTO sessions (id, source, started_at, title) VALUES ('x', 'cli', 1, 'my birds #2');
            INSERT INTO sessions (id, source, started_at, title) VALUES ('y', 'cli', 1, 'my birds #2');
            INSERT INTO inbox (session_key, platform, platform_message_id, event_json, received_at, changed_at)
                SELECT session_key, platform, platform_message_id, event_json, 1, 1 FROM inbox"""
        )
    with SessionDB(store) as db:
        titles = [row["title"] for row in db.list_sessions_rich(include_children=True) if row["title"]]
        assert len({*titles}) == len(titles)
        assert len(db.inbox.list_waiting("key")) == 2, "no event is dropped"
        assert db.verify().ok


@pytest.fixture
def topics(store: Path) -> Path:
    with SessionDB(store) as db:
        db.enable_telegram_topic_mode(chat_id="1", user_id="7")
        db.bind_telegram_topic(chat_id="1", thread_id="2", user_id="7", session_key="k", session_id="first")
    return store


def test_the_columns_of_topics_are_those_that_are_made(topics: Path) -> None:
    for table, columns in TOPIC_COLUMNS.items():
        assert {*columns_in(topics, table)} == columns


TOPICS = [(table, column) for table, columns in TOPIC_COLUMNS.items() for column in sorted(columns)]


@pytest.mark.parametrize(("table", "column"), TOPICS)
def test_columns_of_topics_are_restored_or_reported(topics: Path, table: str, column: str) -> None:
    wanted = shape(topics)[f"table {table}"]
    take_away(topics, table, column)
    with pytest.raises(errors.StoreReadOnly, match=rf"lacks the column {table}\.{column}"):
        SessionDB(topics, read_only=True)
    if column in ("chat_id", "thread_id", "user_id", "session_key", "session_id"):
        with pytest.raises(errors.StoreDamaged, match=f"the table {table} lacks its column {column}"):
            SessionDB(topics)
        return
    with SessionDB(topics) as db:
        assert db.is_telegram_topic_mode_enabled(chat_id="1", user_id="7")
        bound = db.get_telegram_topic_binding(chat_id="1", thread_id="2")
        assert bound is not None
        assert bound["session_id"] == "first"
        assert db.verify().ok
    assert shape(topics)[f"table {table}"] == wanted


@pytest.mark.parametrize("table", TOPIC_COLUMNS)
def test_tables_of_topics_are_restored(topics: Path, table: str) -> None:
    with closing(sqlite3.connect(topics)) as connection:
        connection.execute(f"DROP TABLE {table}")
        connection.commit()
    with SessionDB(topics) as db:
        db.enable_telegram_topic_mode(chat_id="3", user_id="7")
        assert db.is_telegram_topic_mode_enabled(chat_id="3", user_id="7")


def test_verify_names_objects_that_another_program_dropped(store: Path) -> None:
    with SessionDB(store) as db:
        raw = db.raw()
        raw.execute("ALTER TABLE sessions DROP COLUMN handoff_error")
        raw.execute("DROP INDEX idx_tags_tag")
        found = db.verify()
        assert not found.ok
        assert found.drift == (
            "the column sessions.handoff_error is missing",
            "the index idx_tags_tag is missing",
        )
        assert "out of step: the column sessions.handoff_error is missing" in found.lines()


def test_doctor_and_other_commands_report_the_loss(
    store: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    take_away(store, "sessions", "handoff_error")
    before = store.read_bytes()
    main(["sessions", "doctor", "--store", str(store)])
    output = capsys.readouterr().out
    assert re.search(r"Schema: the column sessions\.handoff_error.* missing", output)
    assert store.read_bytes() == before
    found = SessionDB.repair_file(store, check_only=True)
    assert "added again: the column sessions.handoff_error" in found.done
    assert "handoff_error" not in columns_in(store, "sessions")
    with pytest.raises(errors.StoreReadOnly, match=r"lacks the column sessions\.handoff_error"):
        SessionDB(store, read_only=True)
    with caplog.at_level(logging.WARNING):
        assert main(["sessions", "list", "--store", str(store)]) == 0
    assert "handoff_error" in columns_in(store, "sessions")
    main(["sessions", "doctor", "--store", str(store)])
    assert "Schema: every table, column, index and trigger exists" in capsys.readouterr().out


def test_repair_adds_missing_columns(store: Path) -> None:
    take_away(store, "messages", "token_count")
    done = SessionDB.repair_file(store)
    assert done.ok
    assert "added again: the column messages.token_count" in done.done
    with SessionDB(store, read_only=True) as db:
        assert db.get_messages("first")[0]["token_count"] is None


def test_columns_of_another_program_stay(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(
            "ALTER TABLE sessions ADD COLUMN mine TEXT; UPDATE sessions SET mine = 'kept'"
        )
    take_away(store, "sessions", "preview")
    with SessionDB(store) as db:
        row: dict[str, Any] | None = db.get_session("first")
        assert row is not None
        assert (row["mine"], row["preview"]) == ("kept", "pelican 0")
