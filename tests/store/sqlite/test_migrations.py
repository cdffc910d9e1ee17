"""Reference databases of versions 1 to 11 are migrated. Nothing is lost, even if a step fails."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes.store.sqlite import creation, lock_file
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.copies.backup import list_backups, make_backup
from hermes.store.sqlite.copies.page_copy import find_damage
from hermes.store.sqlite.migrations import (
    APPLICATION_ID,
    LAYOUT,
    SCHEMA_VERSION,
    check_version,
    drop_foreign_search,
    migrate,
)
from hermes.store.sqlite.migrations.runner import MigrationReport, shrink
from tests.store.sqlite.reference_databases import (
    PLANTED_CJK,
    PLANTED_IN_TOOL_CALL,
    PLANTED_WORD,
    SCHEMAS,
    VERSIONS,
    Expected,
    build,
    build_marked,
    build_newer,
)

every_version = pytest.mark.parametrize("version", VERSIONS)

KILLS = 25
SHADOWS = ("data", "idx", "content", "docsize", "config")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path)
    try:
        yield connection
    finally:
        connection.close()


def upgrade(path: Path) -> MigrationReport | None:
    with opened(path) as connection, lock_file.exclusive(path):
        return migrate(path, connection)


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with opened(path) as connection:
        return connection.execute(sql).fetchall()


def by_plain_sql(path: Path, script: str) -> None:
    """Run SQL as another program does, with the SQLite of the Python interpreter and foreign keys off."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.executescript(script)


def shape(path: Path) -> dict[str, Any]:
    """Return the tables with their columns, and the indexes and triggers with their SQL."""
    found: dict[str, Any] = {}
    objects = rows(path, "SELECT type, name, sql FROM sqlite_master")
    with opened(path) as connection:
        for kind, name, sql in objects:
            if kind == "table":
                found[f"table {name}"] = {
                    row[1:] for row in connection.execute(f"PRAGMA table_info({name})").fetchall()
                }
            elif sql is not None:
                found[f"{kind} {name}"] = " ".join(sql.split())
        for mark in ("application_id", "user_version", "auto_vacuum"):
            found[mark] = connection.execute(f"PRAGMA {mark}").fetchall()
        found["version"] = connection.execute("SELECT version FROM schema_version").fetchall()
        found["progress"] = set(connection.execute("SELECT * FROM index_progress").fetchall())
    return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("fresh") / "state.db"
    path.touch()
    creation.build_store(path)
    return shape(path)


def zero_some_pages(path: Path, table: str) -> None:
    """Overwrite every third page of a table with zeros, but not its first page."""
    rows(path, "PRAGMA journal_mode=DELETE")
    [(size,)] = rows(path, "PRAGMA page_size")
    pages = rows(path, f"SELECT pageno FROM dbstat WHERE name = '{table}' ORDER BY pageno")
    with path.open("r+b") as file:
        for (page,) in pages[1::3]:
            file.seek((page - 1) * size)
            file.write(bytes(size))


# --- every version


@every_version
def test_every_version_is_migrated_and_keeps_everything(
    path: Path, version: int, fresh: dict[str, Any]
) -> None:
    expected = build(path, version)
    report = upgrade(path)

    assert report is not None
    assert report.from_version == version
    assert (report.sessions, report.messages) == (expected.total_sessions, expected.total_messages)
    assert len(report.steps) == 11 - version + 1
    with opened(path) as connection:
        expected.check(connection)
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert shape(path) == fresh


def test_a_new_install_of_the_reference_is_migrated(path: Path, fresh: dict[str, Any]) -> None:
    expected = build(path, 11, fresh=True)
    upgrade(path)
    assert shape(path) == fresh
    with opened(path) as connection:
        expected.check(connection)


@every_version
def test_a_second_migration_does_nothing(path: Path, version: int) -> None:
    expected = build(path, version)
    upgrade(path)
    before = path.read_bytes()
    assert upgrade(path) is None
    assert path.read_bytes() == before
    assert len(list_backups(path)) == 1
    with opened(path) as connection:
        assert check_version(connection, path) == "ours"
        expected.check(connection)


@every_version
def test_the_original_file_is_kept_as_a_backup(path: Path, version: int) -> None:
    expected = build(path, version)
    upgrade(path)
    [kept] = list_backups(path)
    assert kept.name.endswith(f"-before-migration-v{version}.db")
    with opened(kept) as connection:
        expected.check(connection)
        assert find_damage(connection) is None
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(version,)]
        assert check_version(connection, kept) == "older"


@every_version
def test_a_migrated_store_verifies_lists_and_finds(path: Path, version: int) -> None:
    from hermes_state import SessionDB

    expected = build(path, version, with_cycles=True, with_orphans=True)
    db = SessionDB(db_path=path)
    try:
        assert db.search_messages(PLANTED_WORD)
        assert db.search_messages(PLANTED_CJK)
        assert db.search_messages(PLANTED_IN_TOOL_CALL)
        health = db.verify()
        assert health.ok, health.lines()
        assert (health.sessions, health.messages) == (
            expected.total_sessions + len(expected.orphan_sessions),
            expected.total_messages,
        )
    finally:
        db.close()


def test_a_database_without_rows_needs_no_backup(path: Path, fresh: dict[str, Any]) -> None:
    by_plain_sql(path, (SCHEMAS / "v05.sql").read_text())
    report = upgrade(path)
    assert report is not None
    assert report.backup is None
    assert shape(path) == fresh


def test_a_rollback_journal_is_not_changed_by_the_migration(path: Path) -> None:
    expected = build(path, 4)
    by_plain_sql(path, "PRAGMA journal_mode=DELETE")
    upgrade(path)
    with opened(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        expected.check(connection)


# --- wrong version numbers


@pytest.mark.parametrize(
    "number",
    [
        "UPDATE schema_version SET version = 1",  # the version is lower than the columns show
        "DELETE FROM schema_version",
        "INSERT INTO schema_version VALUES (2), (3)",
        "UPDATE schema_version SET version = -5",
        "DROP TABLE schema_version",
    ],
)
def test_a_version_that_lags_behind_the_columns(path: Path, number: str, fresh: dict[str, Any]) -> None:
    expected = build(path, 9)
    by_plain_sql(path, number)
    upgrade(path)
    assert shape(path) == fresh
    with opened(path) as connection:
        expected.check(connection)


def test_a_store_that_lost_its_marks_gets_them_back(path: Path, fresh: dict[str, Any]) -> None:
    """The marks in the file header are lost if another program dumps and reloads the store."""
    expected = build(path, 11)
    upgrade(path)
    by_plain_sql(
        path,
        """PRAGMA application_id = 0; PRAGMA user_version = 0; UPDATE sessions SET relation = 'reset'
        WHERE parent_session_id IS NOT NULL""",
    )
    upgrade(path)
    assert shape(path) == fresh
    assert rows(path, "SELECT DISTINCT relation FROM sessions WHERE parent_session_id IS NOT NULL") == [
        ("reset",)
    ]
    with opened(path) as connection:
        expected.check(connection)


# --- families


def test_relations_follow_the_documented_rules(path: Path) -> None:
    expected = build(path, 11, sessions=40)
    upgrade(path)
    sessions = expected.session_rows
    found = {
        row[0]: row[1:]
        for row in rows(path, "SELECT id, relation, root_id, listed, kind, source FROM sessions")
    }
    seen = set()
    for sid, row in sessions.items():
        relation, root, listed, kind, source = found[sid]
        parent = sessions.get(str(row["parent_session_id"]))
        wanted = None
        if parent and parent["ended_at"] is not None:
            later = float(str(row["started_at"])) >= float(str(parent["ended_at"]))
            wanted = (
                {"compression": "compression", "branched": "branch"}.get(str(parent["end_reason"]))
                if later
                else None
            )
        assert relation == wanted
        assert root == (found[str(row["parent_session_id"])][1] if relation == "compression" else sid)
        assert listed == (1 if parent is None or relation == "branch" else 0)
        assert kind == ("child" if parent and relation is None else "job" if source == "cron" else "chat")
        seen.add((relation, kind))
    assert seen >= {
        ("compression", "chat"),
        ("branch", "chat"),
        (None, "child"),
        (None, "job"),
        (None, "chat"),
    }


def test_activity_and_previews_are_those_of_the_messages(path: Path) -> None:
    expected = build(path, 6, sessions=30)
    upgrade(path)
    wrong = rows(
        path,
        """SELECT id FROM sessions s WHERE last_active IS NOT
            coalesce((SELECT max(timestamp) FROM messages WHERE session_id = s.id), started_at)
        OR last_person_at IS NOT (SELECT max(timestamp) FROM messages WHERE session_id = s.id AND role = 'user')
        OR (root_id = id) IS NOT (conversation_active IS NOT NULL)""",
    )
    assert wrong == []
    [(preview,)] = rows(path, "SELECT preview FROM sessions WHERE title = 'Fix Docker Build'")
    assert preview.startswith("Why does the build fail?")
    assert expected.total_sessions == 30


def test_cycles_and_self_parents_come_to_an_end(path: Path) -> None:
    expected = build(path, 11, with_cycles=True)
    upgrade(path)
    with opened(path) as connection:
        expected.check(connection)
    family = {
        row[0]: row[1:]
        for row in rows(path, "SELECT id, root_id, listed FROM sessions WHERE id LIKE 'cycle%'")
    }
    assert family["cycle_self"] == ("cycle_self", 1)
    for root, _ in family.values():
        assert family[root] == (root, 1), "every one of them is found through a listed row"


def test_a_parent_that_does_not_exist_stays_recorded(path: Path) -> None:
    build(path, 3)
    by_plain_sql(
        path,
        "INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES ('a', 'cli', 1, 'gone')",
    )
    upgrade(path)
    assert rows(path, "SELECT parent_session_id, relation, root_id, listed FROM sessions WHERE id = 'a'") == [
        ("gone", None, "a", 1)
    ]


def test_messages_without_a_session_get_one(path: Path) -> None:
    expected = build(path, 8, with_orphans=True)
    report = upgrade(path)
    assert report is not None
    assert "2 sessions were created for messages without a session" in report.notes
    with opened(path) as connection:
        expected.check(connection)
    found = rows(
        path,
        "SELECT id, source, message_count, started_at = last_active - 2 FROM sessions WHERE source = 'unknown'",
    )
    assert {row[0] for row in found} == expected.orphan_sessions
    assert {row[1:] for row in found} == {("unknown", 3, 1)}
    assert rows(path, "SELECT * FROM pragma_foreign_key_check") == []


def test_duplicate_titles_become_different(path: Path) -> None:
    expected = build(path, 5, with_duplicate_titles=True)
    by_plain_sql(
        path,
        f"""INSERT INTO sessions (id, source, started_at, title) VALUES
            ('long 1', 'cli', 1, '{"x" * 100}'), ('long 2', 'cli', 2, '{"x" * 100}'),
            ('taken', 'cli', 3, 'twins (2)')""",
    )
    upgrade(path)
    with opened(path) as connection:
        found = [d for d in expected.differences(connection, ignore=["sessions.title"]) if "is new" not in d]
        assert found == []
    titles = {row[0] for row in rows(path, "SELECT title FROM sessions WHERE title LIKE 'twins%'")}
    assert titles == {"twins", "twins (2)", "twins (3)"}
    assert rows(path, "SELECT title FROM sessions WHERE id LIKE 'long%' ORDER BY id") == [
        ("x" * 100,),
        ("x" * 96 + " (2)",),
    ]
    changed = [sid for sid, row in expected.session_rows.items() if row["title"] not in (None, "twins")]
    kept = dict(rows(path, "SELECT id, title FROM sessions"))
    assert all(kept[sid] == expected.session_rows[sid]["title"] for sid in changed)


def test_data_of_later_versions_and_topics_is_kept(path: Path, fresh: dict[str, Any]) -> None:
    expected = build(path, 11, with_topics=True, with_later_columns=True)
    upgrade(path)
    with opened(path) as connection:
        expected.check(connection)
    found = shape(path)
    for name, wanted in fresh.items():
        if name.startswith("table "):
            assert wanted <= found[name], name
        else:
            assert found[name] == wanted, name


def test_looser_columns_of_a_later_version_are_filled(path: Path) -> None:
    build(path, 11)
    by_plain_sql(
        path,
        """ALTER TABLE sessions ADD COLUMN rewind_count INTEGER; ALTER TABLE messages ADD COLUMN active INTEGER;
        UPDATE messages SET active = 0 WHERE id = 1""",
    )
    upgrade(path)
    assert rows(path, "SELECT count(*) FROM sessions WHERE rewind_count IS NULL") == [(0,)]
    assert rows(path, "SELECT active, count(*) > 1 FROM messages GROUP BY 1") == [(0, 0), (1, 1)]


def test_bytes_that_are_not_text_are_replaced(path: Path) -> None:
    """Without the replacement, no Python program could read the row or the conversation that contains it."""
    expected = build(path, 11)
    broken = "CAST(x'6869ff' AS TEXT)"
    by_plain_sql(
        path,
        f"""UPDATE messages SET content = {broken} WHERE id = 1; UPDATE sessions SET title = {broken} WHERE rowid = 2;
        INSERT INTO sessions (id, source, started_at) VALUES ({broken}, 'cli', 1);
        INSERT INTO messages (session_id, role, timestamp) VALUES ({broken}, 'user', 1);""",
    )
    report = upgrade(path)
    assert report is not None
    assert "4 texts contained bytes that are not valid text; they were replaced by U+FFFD" in report.notes
    assert rows(path, "SELECT content FROM messages WHERE id = 1") == [("hi\ufffd",)]
    assert rows(
        path,
        "SELECT m.session_id FROM messages m JOIN sessions s ON s.id = m.session_id WHERE s.id LIKE 'hi%'",
    )
    with opened(path) as connection:
        assert len(expected.differences(connection)) == 4


@pytest.mark.parametrize(
    "odd",
    [
        "INSERT INTO sessions (id, source, started_at) VALUES (NULL, 'cli', 1), (NULL, 'cli', 2)",
        "INSERT INTO messages (session_id, role, timestamp) VALUES (x'0102', 'user', 1)",
        "UPDATE messages SET content = x'00ff', timestamp = 'soon'",
        "UPDATE sessions SET source = x'01', title = NULL, started_at = 'long ago' WHERE parent_session_id IS NULL",
        "DROP INDEX idx_sessions_title_unique; UPDATE sessions SET title = x'01'",
        "CREATE VIEW broken AS SELECT x FROM nowhere",
        "CREATE VIEW theirs AS SELECT content FROM messages_fts",
    ],
)
def test_odd_values_do_not_prevent_the_migration(path: Path, odd: str) -> None:
    build(path, 11)
    by_plain_sql(path, odd)
    before = rows(
        path, "SELECT count(*), (SELECT count(*) FROM messages) FROM sessions WHERE source <> 'unknown'"
    )
    assert upgrade(path) is not None
    assert (
        rows(path, "SELECT count(*), (SELECT count(*) FROM messages) FROM sessions WHERE source <> 'unknown'")
        == before
    )
    assert upgrade(path) is None


def test_long_chains_are_linear(path: Path) -> None:
    count = 10_000
    by_plain_sql(path, (SCHEMAS / "v09.sql").read_text())
    with closing(sqlite3.connect(path)) as conn:
        conn.executemany(
            """INSERT INTO sessions (id, source, started_at, ended_at, end_reason, parent_session_id)
            VALUES (?, 'cli', ?, ?, 'compression', ?)""",
            ((f"s{n:05}", n, n, f"s{n - 1:05}" if n else None) for n in reversed(range(count))),
        )
        conn.commit()
    started = time.process_time()
    upgrade(path)
    assert time.process_time() - started < 20
    assert rows(path, "SELECT root_id, count(*) FROM sessions GROUP BY 1") == [("s00000", count)]
    assert rows(path, "SELECT listed, count(*) FROM sessions GROUP BY 1") == [(0, count - 1), (1, 1)]


# --- refused without changes


def refused(path: Path, kind: type[errors.HermesError], sentence: str) -> None:
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        upgrade(path)
    text = str(caught.value)
    assert str(path) in text
    assert sentence in text
    assert "\n" not in text
    assert path.read_bytes() == before
    assert list_backups(path) == []


def test_a_newer_schema_is_refused_untouched(path: Path) -> None:
    build_newer(path)
    refused(path, errors.StoreTooNew, f"has schema version 12, this program writes up to {SCHEMA_VERSION}")


def test_a_newer_layout_is_refused_untouched(path: Path) -> None:
    build_marked(path, user_version=LAYOUT + 1, application_id=APPLICATION_ID)
    refused(path, errors.StoreTooNew, f"(layout {LAYOUT + 1}, this one supports {LAYOUT})")


def test_an_unreadable_version_is_refused_untouched(path: Path) -> None:
    build(path, 2)
    by_plain_sql(path, "UPDATE schema_version SET version = 'eleven'")
    refused(path, errors.StoreFailed, "'eleven', which is not a number")


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE bookmarks (url TEXT)",
        "CREATE TABLE schema_version (version INTEGER)",
        "CREATE TABLE sessions (session_key TEXT PRIMARY KEY, session_data TEXT, expire_date TEXT)",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, subject TEXT, body TEXT)",
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL)",
    ],
)
def test_another_database_is_refused_and_not_changed(path: Path, tables: str) -> None:
    by_plain_sql(path, tables)
    refused(path, errors.StoreFailed, "is not a session store")


def test_a_table_of_another_program_with_the_name_of_a_store_table(path: Path) -> None:
    build(path, 11)
    by_plain_sql(path, "CREATE TABLE tags (name TEXT); INSERT INTO tags VALUES ('mine')")
    refused(path, errors.MigrationFailed, "a table named tags")


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("CREATE TABLE Changed_Messages (note TEXT)", "a table named changed_messages"),
        ("CREATE TABLE LEASES (note TEXT)", "a table named leases"),
        ("CREATE TABLE index_progress (note TEXT)", "a table named index_progress"),
        ("CREATE TABLE Messages_FTS_Words (note TEXT)", "a table named messages_fts_words"),
        ("CREATE TABLE messages_fts_ranges (note TEXT)", "a table named messages_fts_ranges"),
        ("CREATE TABLE messages_fts_words_terms (note TEXT)", "a table named messages_fts_words_terms"),
        ("CREATE VIEW Blobs AS SELECT 1", "a view named blobs"),
        ("CREATE TABLE idx_messages_order (note TEXT)", "a table named idx_messages_order"),
        (
            "CREATE TABLE mine (note TEXT); CREATE INDEX Idx_Tags_Tag ON mine (note)",
            "an index named idx_tags_tag",
        ),
    ],
)
def test_names_collide_as_sqlite_compares_them(path: Path, made: str, named: str) -> None:
    build(path, 11)
    by_plain_sql(path, made)
    refused(path, errors.MigrationFailed, named)


def test_a_trigger_may_have_the_name_of_a_store_table(path: Path, fresh: dict[str, Any]) -> None:
    build(path, 11)
    trigger = "CREATE TRIGGER tags AFTER INSERT ON sessions BEGIN SELECT 1; END"
    by_plain_sql(path, trigger)
    upgrade(path)
    assert shape(path) == {**fresh, "trigger tags": trigger}


@pytest.mark.parametrize("version", [4, 11])
def test_column_names_are_case_insensitive(path: Path, version: int, fresh: dict[str, Any]) -> None:
    build(path, version)
    by_plain_sql(
        path,
        """ALTER TABLE sessions RENAME COLUMN title TO Title;
        ALTER TABLE messages ADD COLUMN UID BLOB;
        UPDATE sessions SET Title = 'spelled otherwise' WHERE id = (SELECT min(id) FROM sessions)""",
    )
    titles = rows(path, "SELECT id, Title FROM sessions ORDER BY id")
    upgrade(path)
    assert rows(path, "SELECT id, title FROM sessions ORDER BY id") == titles
    assert shape(path) == fresh


def test_a_file_without_tables_is_for_the_opener_to_fill(path: Path) -> None:
    by_plain_sql(path, "PRAGMA user_version = 3; PRAGMA user_version = 0")
    with opened(path) as connection:
        assert check_version(connection, path) == "empty"
        assert migrate(path, connection) is None


def test_damage_in_the_messages_stops_the_migration(path: Path) -> None:
    build(path, 7, sessions=60)
    zero_some_pages(path, "messages")
    refused(path, errors.StoreDamaged, "hermes sessions repair")


def test_damage_in_an_index_is_reported_with_the_repair_command(path: Path) -> None:
    build(path, 11, sessions=60)
    zero_some_pages(path, "idx_messages_session")
    refused(path, errors.StoreDamaged, "hermes sessions repair")


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_text_of_another_encoding_is_refused_untouched(path: Path, encoding: str) -> None:
    schema = (Path(__file__).with_name("reference_schemas") / "v11.sql").read_text(encoding="utf-8")
    by_plain_sql(path, f"PRAGMA encoding='{encoding}'; {schema}; PRAGMA journal_mode=DELETE")
    refused(path, errors.MigrationFailed, f"stores its text as {encoding}")


# --- failures in the middle


def test_rows_that_change_under_the_migration_undo_it(path: Path) -> None:
    """A trigger in the old file changes messages when a session is updated. The check at the end of the
    migration detects the change. The migration is then rolled back."""
    expected = build(path, 8)
    by_plain_sql(
        path,
        """CREATE TRIGGER meddler AFTER UPDATE ON sessions BEGIN
            UPDATE messages SET content = 'changed' WHERE session_id = new.id;
        END""",
    )
    with pytest.raises(errors.MigrationFailed) as caught:
        upgrade(path)
    text = str(caught.value)
    assert "lost or changed" in text
    assert "before-migration-v8.db" in text
    with opened(path) as connection:
        expected.check(connection)
        assert connection.execute("PRAGMA application_id").fetchall() == [(0,)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master").fetchall()}
        assert "carried_context" not in names
    by_plain_sql(path, "DROP TRIGGER meddler")
    assert upgrade(path) is not None
    with opened(path) as connection:
        expected.check(connection)


def test_a_trigger_that_prevents_the_migration_is_reported_with_file_and_backup(path: Path) -> None:
    build(path, 11)
    by_plain_sql(
        path, "CREATE TRIGGER no BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'not here'); END"
    )
    with pytest.raises(errors.MigrationFailed) as caught:
        upgrade(path)
    text = str(caught.value)
    assert f"{path} was not migrated" in text
    assert "not here" in text
    assert str(list_backups(path)[0]) in text


def test_names_that_differ_only_in_invalid_bytes_are_reported_with_file_and_backup(path: Path) -> None:
    build(path, 11)
    by_plain_sql(
        path,
        """INSERT INTO sessions (id, source, started_at)
            VALUES (CAST(x'78ff' AS TEXT), 'cli', 1), (CAST(x'78fe' AS TEXT), 'cli', 2)""",
    )
    with pytest.raises(errors.MigrationFailed) as caught:
        upgrade(path)
    assert f"{path} was not migrated" in str(caught.value)
    assert str(list_backups(path)[0]) in str(caught.value)


@pytest.mark.parametrize(
    "meddling", ["DELETE FROM messages WHERE session_id = new.id", "UPDATE sessions SET model = 'x'"]
)
def test_lost_and_changed_rows_are_detected(path: Path, meddling: str) -> None:
    expected = build(path, 11)
    by_plain_sql(path, f"CREATE TRIGGER meddler AFTER UPDATE OF preview ON sessions BEGIN {meddling}; END")
    with pytest.raises(errors.MigrationFailed):
        upgrade(path)
    with opened(path) as connection:
        expected.check(connection)


def test_space_that_cannot_be_released_is_released_later(path: Path) -> None:
    build(path, 11)
    with opened(path) as connection:
        migrate(path, connection)
        connection.execute("BEGIN")
        result = shrink(connection)
        connection.execute("COMMIT")
        assert result is not None
        assert "optimize" in result
        assert shrink(connection) is None


WITHOUT_ROOM = """
import os, resource, sys
from pathlib import Path
from hermes import errors
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.migrations import migrate

path, limit = Path(sys.argv[1]), int(sys.argv[2])
connection = connect(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    print(migrate(path, connection), flush=True)
except errors.StoreError as problem:
    print("refused:", problem, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.02, 1.1])
def test_a_disk_that_fills_up_loses_nothing(path: Path, share: float) -> None:
    """The disk becomes full during the backup, during a step of the migration, or during the rewrite of the
    file at the end."""
    expected = build(path, 6, sessions=100)
    limit = int(path.stat().st_size * share)
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, path, str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert completed.startswith(("refused:", f"{path}: migrated"))
    with opened(path) as connection:
        expected.check(connection)
    upgrade(path)
    with opened(path) as connection:
        expected.check(connection)
        assert check_version(connection, path) == "ours"
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


CHILD = """
import sys
from pathlib import Path
from hermes.store.sqlite import lock_file
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.migrations import migrate

path = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
connection = connect(path)
with lock_file.exclusive(path):
    migrate(path, connection)
connection.close()
print("done", flush=True)
"""


def start_child(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def run_child(child: subprocess.Popen[str], seconds: float | None) -> bool:
    """Run a migration and kill it after `seconds`. Return whether the kill came before its end."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    if seconds is not None:
        time.sleep(seconds)
        child.kill()
    code = child.wait(60)
    child.stdin.close()
    child.stdout.close()
    return code == -signal.SIGKILL


@pytest.mark.full
def test_a_migration_killed_at_any_point_is_continued(tmp_path: Path, fresh: dict[str, Any]) -> None:
    rng = random.Random()
    seed = rng.randrange(1 << 32)
    print("seed", seed)
    rng.seed(seed)
    originals: dict[int, tuple[Path, Expected]] = {}
    for version in (1, 6, 11):
        file = tmp_path / f"v{version}.db"
        originals[version] = file, build(file, version, sessions=250, with_cycles=True, with_orphans=True)

    whole = tmp_path / "whole.db"
    shutil.copy(originals[1][0], whole)
    child = start_child(whole)
    started = time.monotonic()
    assert not run_child(child, None)
    longest = time.monotonic() - started

    kills, states, attempt = 0, set(), 0
    while kills < KILLS:
        attempt += 1
        version = rng.choice(list(originals))
        original, expected = originals[version]
        path = tmp_path / f"{attempt}" / "state.db"
        path.parent.mkdir()
        shutil.copy(original, path)
        for _ in range(rng.randint(1, 4)):
            if not run_child(start_child(path), rng.uniform(0, longest)):
                break
            kills += 1
            with opened(path) as connection:
                expected.check(connection)
                states.add(
                    (
                        connection.execute("SELECT version FROM schema_version").fetchall()[0][0],
                        connection.execute("PRAGMA user_version").fetchall()[0][0],
                    )
                )
        upgrade(path)
        with opened(path) as connection:
            make_backup(connection, path)  # also removes the partial files of a killed migration
            expected.check(connection)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        now = shape(path)
        now["auto_vacuum"] = fresh["auto_vacuum"]  # after a kill before the VACUUM, `optimize` sets it
        assert now == fresh
        assert not list(path.parent.glob("**/*-partial"))
        for kept in list_backups(path):
            with opened(kept) as connection:
                expected.check(connection)
    assert len(states) > 1, states


@pytest.mark.full
def test_many_processes_open_one_old_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    expected = build(path, 5, sessions=100)
    script = """
import sys
from pathlib import Path
from hermes_state import SessionDB
print("ready", flush=True)
sys.stdin.readline()
db = SessionDB(db_path=Path(sys.argv[1]))
print(len(db.list_sessions_rich(limit=1000)), flush=True)
db.close()
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    results = [child.communicate("\n", timeout=90) for child in children]
    assert [child.returncode for child in children] == [0] * 8, results
    assert len({out for out, _ in results}) == 1
    assert sum("migrated from version 5" in err for _, err in results) == 1
    assert len(list_backups(path)) == 1
    with opened(path) as connection:
        expected.check(connection)


# --- the reference's search tables


def spoil(path: Path, how: str) -> None:
    if how == "broken pages":
        zero_some_pages(path, "messages_fts_data")
        zero_some_pages(path, "messages_fts_trigram_data")
        return
    by_plain_sql(
        path,
        {
            "a part is missing": "PRAGMA writable_schema=ON; DROP TABLE messages_fts_config;",
            "only parts are left": """PRAGMA writable_schema=ON;
                DELETE FROM sqlite_master WHERE name IN ('messages_fts', 'messages_fts_trigram')""",
            "unknown tokenizer": """PRAGMA writable_schema=ON;
                UPDATE sqlite_master SET sql = replace(sql, 'trigram''', 'nobody''')
                WHERE name = 'messages_fts_trigram'""",
            "no parts at all": """PRAGMA writable_schema=ON;
                DELETE FROM sqlite_master WHERE name GLOB 'messages_fts_trigram_*' AND type = 'table'""",
            "a trigger by another name": """CREATE TRIGGER mirror AFTER INSERT ON messages BEGIN
                INSERT INTO messages_fts (rowid, content) VALUES (new.id + 1000000, 'again'); END""",
        }[how],
    )


SPOILT = (
    "broken pages",
    "a part is missing",
    "only parts are left",
    "unknown tokenizer",
    "no parts at all",
    "a trigger by another name",
)


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("version", [10, 11])
def test_damaged_search_tables_do_not_prevent_the_migration(
    path: Path, how: str, version: int, fresh: dict[str, Any]
) -> None:
    expected = build(path, version, sessions=60)
    spoil(path, how)
    report = upgrade(path)
    assert report is not None
    with opened(path) as connection:
        expected.check(connection)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute(
            "INSERT INTO messages (session_id, role, timestamp) SELECT id, 'user', 1 FROM sessions"
        )
    assert shape(path) == fresh


def reference_opens(path: Path) -> None:
    """Open the file as a program of the reference does: create its tables and triggers, but leave the tables
    empty."""
    script = (SCHEMAS / "v11_fresh.sql").read_text()
    by_plain_sql(path, script[script.index("CREATE VIRTUAL TABLE") :])


def test_search_tables_that_reappear_are_removed(path: Path, fresh: dict[str, Any]) -> None:
    expected = build(path, 11)
    upgrade(path)
    with opened(path) as connection:
        assert drop_foreign_search(connection) == []
    reference_opens(path)
    assert shape(path) != fresh
    with opened(path) as connection:
        removed = drop_foreign_search(connection)
        assert removed == sorted(
            [
                "messages_fts",
                "messages_fts_trigram",
                *(
                    f"messages_fts{kind}_{verb}"
                    for kind in ("", "_trigram")
                    for verb in ("insert", "delete", "update")
                ),
            ]
        )
        assert drop_foreign_search(connection) == []
        expected.check(connection)
    assert shape(path) == fresh


STRANGE = {
    "on messages": """AFTER INSERT ON messages BEGIN
        INSERT INTO "messages_fts"(rowid, content) VALUES (new.id, new.content); END""",
    "in brackets": "AFTER INSERT ON messages BEGIN DELETE FROM [messages_fts] WHERE rowid = new.id; END",
    "in backticks": "AFTER INSERT ON messages BEGIN DELETE FROM `Messages_FTS` WHERE rowid = new.id; END",
    "as a text": "AFTER INSERT ON messages BEGIN DELETE FROM 'messages_fts' WHERE rowid = new.id; END",
    "updating": "AFTER UPDATE ON messages BEGIN UPDATE messages_fts SET content = '' WHERE rowid = new.id; END",
    "reading": "AFTER UPDATE ON sessions BEGIN SELECT count(*) FROM main.messages_fts_trigram; END",
}


@pytest.mark.parametrize("how", STRANGE)
def test_triggers_that_use_foreign_search_tables_are_removed_with_them(
    path: Path, how: str, fresh: dict[str, Any]
) -> None:
    """The triggers are found by any name, spelling and table. If they stayed after their search tables are
    removed, every write would fail."""
    trigger = f"CREATE TRIGGER mine {STRANGE[how]}"
    build(path, 11)
    by_plain_sql(path, trigger)
    report = upgrade(path)
    assert report is not None
    assert "the triggers mine" in str(report)
    assert shape(path) == fresh
    reference_opens(path)
    by_plain_sql(path, trigger)
    with opened(path) as connection:
        assert "mine" in drop_foreign_search(connection)
    assert shape(path) == fresh


def test_triggers_that_only_mention_search_tables_stay(path: Path, fresh: dict[str, Any]) -> None:
    trigger = """CREATE TRIGGER mine AFTER INSERT ON messages BEGIN -- not messages_fts
        /* nor messages_fts */ SELECT 'messages_fts', 1 AS my_messages_fts, 2 AS messages_fts_2; END"""
    build(path, 11)
    by_plain_sql(path, trigger)
    upgrade(path)
    reference_opens(path)
    with opened(path) as connection:
        assert "mine" not in drop_foreign_search(connection)
    assert shape(path) == {**fresh, "trigger mine": " ".join(trigger.split())}


@pytest.mark.parametrize("how", SPOILT)
def test_damaged_search_tables_that_reappear_are_removed(path: Path, how: str, fresh: dict[str, Any]) -> None:
    expected = build(path, 11)
    upgrade(path)
    reference_opens(path)
    by_plain_sql(path, "INSERT INTO messages_fts (messages_fts) VALUES ('optimize')")
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.executemany(
            "INSERT INTO messages_fts_trigram (rowid, content) VALUES (?, ?)",
            ((n, " ".join(f"word{n * k}" for k in range(50))) for n in range(1, 200)),
        )
        conn.execute("INSERT INTO messages_fts SELECT * FROM messages_fts_trigram")
    spoil(path, how)
    with opened(path) as connection:
        assert drop_foreign_search(connection)
        if how == "no parts at all":  # the pages were lost before this step
            connection.execute("VACUUM")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        expected.check(connection)
    assert shape(path) == fresh


def test_checking_for_foreign_search_tables_is_fast(path: Path) -> None:
    build(path, 11)
    upgrade(path)
    with opened(path) as connection:
        statements: list[str] = []

        def note(_cursor: object, sql: str, _args: object) -> bool:
            statements.append(sql)
            return True

        connection.exec_trace = note
        assert drop_foreign_search(connection) == []
        assert len(statements) == 1
        assert "sqlite_master" in statements[0]
