"""The reference databases match the documentation of the reference."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.store.sqlite import foreign_writer
from tests.store.sqlite.reference_databases import (
    DELETED_WORD,
    JSON_PREFIX,
    LONG_TEXT_LENGTH,
    PLANTED_CJK,
    PLANTED_IN_TOOL_CALL,
    PLANTED_WORD,
    REPLACED_WORD,
    VERSIONS,
    Expected,
    build,
    build_marked,
    build_newer,
)

# version -> columns that this version added, according to the change table of the documentation
SESSION_COLUMNS = {
    1: "id source user_id model model_config system_prompt parent_session_id started_at ended_at end_reason "
    "message_count tool_call_count input_tokens output_tokens",
    3: "title",
    5: "cache_read_tokens cache_write_tokens reasoning_tokens billing_provider billing_base_url billing_mode "
    "estimated_cost_usd actual_cost_usd cost_status cost_source pricing_version",
    8: "api_call_count",
    11: "handoff_state handoff_platform handoff_error",
}
MESSAGE_COLUMNS = {
    1: "id session_id role content tool_call_id tool_calls tool_name timestamp token_count",
    2: "finish_reason",
    6: "reasoning reasoning_details codex_reasoning_items",
    7: "reasoning_content",
    9: "codex_message_items",
}
SCRIPT = Path(foreign_writer.__file__)

every_version = pytest.mark.parametrize("version", VERSIONS)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        yield conn


def columns(conn: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]


def documented(added: dict[int, str], version: int) -> list[str]:
    return [name for since, names in added.items() if since <= version for name in names.split()]


def matches(conn: sqlite3.Connection, word: str, table: str = "messages_fts") -> int:
    (count,) = conn.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (word,)).fetchone()
    return int(count)


def read_value(conn: sqlite3.Connection, sql: str) -> object:
    (value,) = conn.execute(sql).fetchone()
    return value


def build_with_everything(path: Path, version: int) -> Expected:
    return build(
        path,
        version,
        sessions=30,
        seed=version,
        with_cycles=True,
        with_orphans=True,
        with_duplicate_titles=version >= 3,
        with_topics=True,
        with_later_columns=True,
    )


@every_version
def test_a_version_has_the_documented_columns_where_alter_table_put_them(
    tmp_path: Path, version: int
) -> None:
    build(tmp_path / "state.db", version)
    with opened(tmp_path / "state.db") as conn:
        assert columns(conn, "sessions") == documented(SESSION_COLUMNS, version)
        assert columns(conn, "messages") == documented(MESSAGE_COLUMNS, version)
        assert conn.execute("SELECT version FROM schema_version").fetchall() == [(version,)]
        assert read_value(conn, "PRAGMA journal_mode") == "wal"
        assert read_value(conn, "PRAGMA integrity_check") == "ok"


def test_a_fresh_version_11_has_the_same_columns_in_another_order(tmp_path: Path) -> None:
    build(tmp_path / "grown.db", 11)
    expected = build(tmp_path / "fresh.db", 11, fresh=True)
    with opened(tmp_path / "grown.db") as grown, opened(tmp_path / "fresh.db") as fresh:
        for table in ("sessions", "messages"):
            assert columns(fresh, table) != columns(grown, table)
            assert sorted(columns(fresh, table)) == sorted(columns(grown, table))
        expected.check(fresh)
        expected.check(grown)


@every_version
def test_the_full_text_index_follows_the_triggers(tmp_path: Path, version: int) -> None:
    build(tmp_path / "state.db", version)
    with opened(tmp_path / "state.db") as conn:
        assert matches(conn, PLANTED_WORD) == 1
        assert matches(conn, PLANTED_IN_TOOL_CALL) == (1 if version >= 11 else 0)
        assert matches(conn, REPLACED_WORD) == 0
        assert matches(conn, DELETED_WORD) == 0
        if version >= 10:
            assert matches(conn, PLANTED_CJK[1:4], "messages_fts_trigram") == 1
            assert matches(conn, PLANTED_IN_TOOL_CALL[3:8], "messages_fts_trigram") == (version >= 11)


@every_version
def test_triggers_and_tables_are_those_of_the_version(tmp_path: Path, version: int) -> None:
    build(tmp_path / "state.db", version)
    with opened(tmp_path / "state.db") as conn:
        names = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type <> 'index'")}
        triggers = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
        unique = read_value(
            conn, "SELECT count(*) FROM sqlite_master WHERE name = 'idx_sessions_title_unique'"
        )
        inline = "messages_fts_content" in names
    indexes = ["messages_fts", *(["messages_fts_trigram"] if version >= 10 else [])]
    assert triggers == {f"{name}_{event}" for name in indexes for event in ("insert", "update", "delete")}
    assert inline == (version >= 11)
    assert ("state_meta" in names) == (version >= 11)
    assert unique == (version >= 4)


@every_version
def test_an_untouched_database_is_as_expected(tmp_path: Path, version: int) -> None:
    plain = build(tmp_path / "plain.db", version)
    full = build_with_everything(tmp_path / "full.db", version)
    with opened(tmp_path / "plain.db") as conn:
        plain.check(conn)
    with opened(tmp_path / "full.db") as conn:
        full.check(conn)
        conn.row_factory = sqlite3.Row
        full.check(conn)
        assert (
            read_value(conn, "SELECT count(*) FROM sessions")
            == full.total_sessions
            == 33 + 2 * (version >= 3)
        )
        assert read_value(conn, "SELECT count(*) FROM messages") == full.total_messages
        assert read_value(conn, "PRAGMA integrity_check") == "ok"
        broken = {row[0] for row in conn.execute("PRAGMA foreign_key_check")}
        assert broken == {"messages"}
    assert full.orphan_sessions
    assert not plain.orphan_sessions
    assert plain.total_sessions == 12


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("DELETE FROM sessions WHERE title = '旅行の計画 #2'", "is lost"),
        ("UPDATE sessions SET title = NULL WHERE title = 'clocks'", "title is None, was 'clocks'"),
        ("INSERT INTO sessions (id, source, started_at) VALUES ('x', 'cli', 1.0)", "session x is new"),
        ("DELETE FROM messages WHERE id = 5", "messages, had"),
        ("UPDATE messages SET content = content || ' ' WHERE id = 3", "messages have changed"),
        ("UPDATE messages SET timestamp = timestamp + 1e-6 WHERE id = 3", "messages have changed"),
        ("UPDATE messages SET session_id = 'x' WHERE id = 3", "session x has messages, had none"),
        ("DELETE FROM state_meta WHERE key = 'null'", "state_meta: row"),
        ("UPDATE things_of_a_later_version SET thing = x'00'", "things_of_a_later_version: row"),
    ],
)
def test_every_loss_is_a_difference(tmp_path: Path, sql: str, line: str) -> None:
    expected = build(tmp_path / "state.db", 11, with_later_columns=True)
    with opened(tmp_path / "state.db") as conn:
        conn.execute(sql)
        with pytest.raises(AssertionError, match=re.escape(line)):
            expected.check(conn)


def test_what_a_migration_may_change_can_be_ignored(tmp_path: Path) -> None:
    expected = build(tmp_path / "state.db", 11)
    with opened(tmp_path / "state.db") as conn:
        conn.execute("UPDATE sessions SET message_count = 0")
        conn.execute("DROP TABLE state_meta")
        expected.check(conn, ignore=("sessions.message_count", "state_meta"))


def test_the_same_seed_gives_the_same_rows_and_another_gives_others(tmp_path: Path) -> None:
    first, again, other = (
        build(tmp_path / f"{n}.db", 11, sessions=20, seed=seed) for n, seed in enumerate((1, 1, 2))
    )
    assert first == again
    assert first.session_rows != other.session_rows


AWKWARD = {
    "NULL content": "FROM messages WHERE content IS NULL",
    "empty content": "FROM messages WHERE content = ''",
    "NUL in text": "FROM messages WHERE instr(CAST(content AS BLOB), x'00') > 1",
    "NULL title": "FROM sessions WHERE title IS NULL",
    "numbered title": "FROM sessions WHERE title LIKE '% #2'",
    "wrong count": "FROM sessions s WHERE message_count <> "
    "(SELECT count(*) FROM messages WHERE session_id = s.id)",
    "continuation": "FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
    "WHERE p.end_reason = 'compression' AND c.started_at >= p.ended_at AND c.id NOT LIKE 'cycle%'",
    "branch": "FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
    "WHERE p.end_reason = 'branched' AND c.started_at >= p.ended_at",
    "subagent": "FROM sessions c JOIN sessions p ON p.id = c.parent_session_id WHERE c.started_at < p.ended_at",
    "user message copied into a continuation": "FROM messages a JOIN messages b "
    "ON a.content = b.content AND a.role = 'user' AND b.role = 'user' AND a.id < b.id "
    "JOIN sessions s ON s.id = b.session_id AND s.parent_session_id = a.session_id",
    "cycle": "FROM sessions a JOIN sessions b ON a.id = b.parent_session_id "
    "AND b.id = a.parent_session_id WHERE a.id <> b.id",
    "self-parent": "FROM sessions WHERE id = parent_session_id",
    "duplicate title": "FROM sessions a JOIN sessions b ON a.title = b.title AND a.id < b.id",
    "future": "FROM messages WHERE timestamp > 4e9",
    "equal times": "FROM messages a JOIN messages b "
    "ON a.session_id = b.session_id AND a.timestamp = b.timestamp AND a.id < b.id",
    "times against the order of ids": "FROM messages a JOIN messages b "
    "ON a.session_id = b.session_id AND a.timestamp > b.timestamp AND a.id < b.id",
    "gap in ids": "FROM messages a WHERE id > 1 AND NOT EXISTS (SELECT 1 FROM messages WHERE id = a.id - 1)",
    "topic binding": "FROM telegram_dm_topic_bindings",
}


def test_the_databases_contain_unusual_data(tmp_path: Path) -> None:
    build_with_everything(tmp_path / "state.db", 11)
    with opened(tmp_path / "state.db") as conn:
        missing = [what for what, sql in AWKWARD.items() if read_value(conn, f"SELECT count(*) {sql}") == 0]
        contents = [row[0] for row in conn.execute("SELECT content FROM messages WHERE content <> ''")]
        calls = [row[0] for row in conn.execute("SELECT tool_calls FROM messages WHERE tool_calls <> ''")]
    assert not missing
    assert any(text.startswith(JSON_PREFIX) for text in contents)
    assert max(map(len, contents)) == LONG_TEXT_LENGTH
    assert any("\\u04" in text for text in calls)
    assert not all(map(str.isascii, calls))


@pytest.mark.parametrize(
    ("version", "sessions", "fresh", "twins", "message"),
    [
        (0, 12, False, False, "no schema version"),
        (12, 12, False, False, "no schema version"),
        (10, 12, True, False, "newly installed"),
        (2, 12, False, True, "no titles"),
        (11, 11, False, False, "at least 12"),
    ],
)
def test_a_database_that_never_existed_cannot_be_built(
    tmp_path: Path, version: int, sessions: int, fresh: bool, twins: bool, message: str
) -> None:
    path = tmp_path / "state.db"
    with pytest.raises(ValueError, match=message):
        build(path, version, sessions=sessions, fresh=fresh, with_duplicate_titles=twins)
    assert not path.exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    build(tmp_path / "state.db", 1)
    with pytest.raises(FileExistsError):
        build(tmp_path / "state.db", 1)


def test_newer_databases_are_marked_as_newer(tmp_path: Path) -> None:
    newer = build_newer(tmp_path / "newer.db")
    marked = build_marked(tmp_path / "marked.db", user_version=99, application_id=0x12345678)
    with opened(tmp_path / "newer.db") as conn:
        newer.check(conn)
        assert read_value(conn, "SELECT version FROM schema_version") == newer.version == 12
    with opened(tmp_path / "marked.db") as conn:
        marked.check(conn)
        assert read_value(conn, "PRAGMA user_version") == 99
        assert read_value(conn, "PRAGMA application_id") == 0x12345678
        assert read_value(conn, "SELECT version FROM schema_version") == marked.version == 11


# --- the foreign writer


@pytest.mark.parametrize("operation", foreign_writer.OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_foreign_operation_keeps_the_counts_right(
    tmp_path: Path, operation: foreign_writer.Operation
) -> None:
    build(tmp_path / "state.db", 11)
    counted = "(SELECT count(*) FROM messages WHERE session_id = sessions.id)"
    with opened(tmp_path / "state.db") as conn:
        conn.execute(f"UPDATE sessions SET message_count = {counted}")
        before = conn.total_changes
        for seed in range(40):
            assert operation(conn, random.Random(seed))
            assert read_value(conn, f"SELECT count(*) FROM sessions WHERE message_count <> {counted}") == 0
        assert conn.total_changes > before


def test_foreign_steps_depend_on_database_and_seed_only(tmp_path: Path) -> None:
    def run(name: str) -> tuple[list[str], list[object]]:
        build(tmp_path / name, 11)
        rng = random.Random(7)
        with opened(tmp_path / name) as conn:
            lines = [foreign_writer.step(conn, rng) for _ in range(200)]
            return lines, conn.execute("SELECT * FROM messages").fetchall()

    assert run("one.db") == run("two.db")


def test_foreign_steps_also_start_from_nothing(tmp_path: Path) -> None:
    build(tmp_path / "state.db", 11)
    with opened(tmp_path / "state.db") as conn:
        conn.execute("DELETE FROM messages")
        conn.execute("DELETE FROM sessions")
        for seed in range(20):
            foreign_writer.step(conn, random.Random(seed))
        assert read_value(conn, "SELECT count(*) FROM sessions")


def test_a_failed_foreign_step_leaves_nothing_behind(tmp_path: Path) -> None:
    expected = build(tmp_path / "state.db", 11)
    changes_a_session_then_adds_messages = random.Random(23)
    with opened(tmp_path / "state.db") as conn:
        conn.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        before = conn.total_changes
        with pytest.raises(sqlite3.IntegrityError, match="refused"):
            foreign_writer.step(conn, changes_a_session_then_adds_messages)
        assert conn.total_changes > before
        expected.check(conn)
        assert not conn.in_transaction


def test_foreign_writers_run_side_by_side(tmp_path: Path) -> None:
    build(tmp_path / "state.db", 11)
    writers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tmp_path / "state.db"), "0.5", str(seed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    outputs = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert all(output.splitlines() for output in outputs)
    with opened(tmp_path / "state.db") as conn:
        assert read_value(conn, "PRAGMA integrity_check") == "ok"


def test_wrong_usage_of_the_script_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert foreign_writer.main([]) == 2
    assert "usage" in capsys.readouterr().err
