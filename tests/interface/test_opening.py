"""Opening and closing: where the file is made, what read-only means, what happens after the end."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes.store.engine_choice import open_engine
from hermes.store.sqlite import opener
from hermes.store.sqlite.connection import SqliteReader, pragma
from hermes.store.sqlite.engine import SqliteEngine
from hermes_state import SessionDB
from tests.interface.conftest import contents, say

Verb = Callable[[SessionDB], Any]

WRITES: dict[str, Verb] = {
    "create_session": lambda db: db.create_session("new", "cli"),
    "end_session": lambda db: db.end_session("a", "cli_close"),
    "append_message": lambda db: db.append_message("a", "user", "more"),
    "replace_messages": lambda db: db.replace_messages("a", [{"role": "user", "content": "other"}]),
    "clear_messages": lambda db: db.clear_messages("a"),
    "set_session_title": lambda db: db.set_session_title("a", "name"),
    "update_token_counts": lambda db: db.update_token_counts("a", 1, 1),
    "set_meta": lambda db: db.set_meta("key", "value"),
    "delete_session": lambda db: db.delete_session("a"),
}
READS: dict[str, Verb] = {
    "get_session": lambda db: db.get_session("a"),
    "get_messages": lambda db: db.get_messages("a"),
    "list_sessions_rich": lambda db: db.list_sessions_rich(),
    "search_sessions": lambda db: db.search_sessions(),
    "search_messages": lambda db: db.search_messages("hello"),
    "session_count": lambda db: db.session_count(),
    "get_meta": lambda db: db.get_meta("key"),
}


def test_the_store_is_state_db_in_the_home(home: Path) -> None:
    with SessionDB() as db:
        assert db.db_path == home / "state.db"
        assert (home / "state.db").is_file()


@pytest.mark.parametrize("kind", [str, Path])
def test_another_path_may_be_given_and_its_folders_are_made(
    tmp_path: Path, kind: Callable[[Path], Any]
) -> None:
    path = tmp_path / "deep" / "down" / "other.db"
    SessionDB(db_path=kind(path)).close()
    assert path.is_file()


def test_the_write_ahead_log_and_its_index_lie_beside_the_file(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
        assert {"state.db", "state.db-wal", "state.db-shm"} <= set(os.listdir(home))


def test_folder_and_files_are_private(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
        modes = {
            name: (home / name).stat().st_mode & 0o777 for name in os.listdir(home) if "state.db" in name
        }
    assert home.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}


def test_what_was_stored_is_there_after_reopening(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
    with SessionDB() as db:
        assert contents(db.get_messages("a")) == ["hello"]


def test_two_stores_on_one_file_see_each_other(db: SessionDB) -> None:
    with SessionDB() as second:
        say(db, "a", "from the first")
        second.append_message("a", "user", "from the second")
        assert contents(db.get_messages("a")) == ["from the first", "from the second"]
        assert len(second.search_messages("from")) == 2


def test_read_only_reads(db: SessionDB) -> None:
    say(db, "a", "hello")
    db.set_meta("key", "value")
    with SessionDB(read_only=True) as reader:
        assert {name: verb(reader) for name, verb in READS.items()} == {
            name: verb(db) for name, verb in READS.items()
        }


@pytest.mark.parametrize("verb", WRITES.values(), ids=WRITES.keys())
def test_read_only_writes_nothing_and_says_so(db: SessionDB, verb: Verb) -> None:
    say(db, "a", "hello")
    with SessionDB(read_only=True) as reader:
        with pytest.raises(errors.StoreReadOnly) as refused:
            verb(reader)
        assert isinstance(refused.value, sqlite3.OperationalError)
    assert (db.session_count(), contents(db.get_messages("a")), db.get_meta("key")) == (1, ["hello"], None)


def test_read_only_makes_no_file(home: Path) -> None:
    with pytest.raises(errors.HermesError):
        SessionDB(read_only=True)
    assert not (home / "state.db").exists()


def test_closing_twice_is_safe(home: Path) -> None:
    db = SessionDB()
    db.close()
    db.close()


def test_leaving_the_context_closes(home: Path) -> None:
    with SessionDB() as db:
        assert db.session_count() == 0
    with pytest.raises(errors.StoreClosed):
        db.session_count()


@pytest.mark.parametrize("verb", [*READS.values(), *WRITES.values()], ids=[*READS.keys(), *WRITES.keys()])
def test_a_closed_store_says_that_it_is_closed(db: SessionDB, verb: Verb) -> None:
    say(db, "a", "hello")
    db.close()
    with pytest.raises(errors.StoreClosed) as refused:
        verb(db)
    assert isinstance(refused.value, sqlite3.ProgrammingError)


def test_a_path_that_cannot_be_a_store_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(errors.HermesError) as refused:
        SessionDB(tmp_path)
    assert "\n" not in str(refused.value)


def test_no_connection_makes_a_plan_anew_for_each_value(db: SessionDB) -> None:
    """SQLite would, where it was built to look at values; it cost more than most statements themselves."""
    say(db, "a", "hello")
    engine = db._engine
    assert isinstance(engine, SqliteEngine)
    with engine.read() as reading, engine.read(owners=("telegram:person:1",)) as scoped:
        connections = [reader._connection for reader in (reading, scoped) if isinstance(reader, SqliteReader)]
    connections.append(engine._transactions.run_alone(lambda connection: connection))
    assert [one.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) for one in connections] == [1, 1, 1]


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_the_very_first_write_is_as_durable_as_was_asked(home: Path, durability: str, level: int) -> None:
    SessionDB().close()
    for first in ("a transaction", "alone"):
        engine = open_engine(home / "state.db", durability=durability)
        assert isinstance(engine, SqliteEngine)
        try:
            if first == "alone":
                assert (
                    engine._transactions.run_alone(
                        lambda connection: pragma(connection, "PRAGMA synchronous")
                    )
                    == level
                )
            else:
                assert engine.write(lambda writer: writer.value("PRAGMA synchronous")) == level
        finally:
            engine.close()


# --- what a newer program wrote


def files_beside(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in path.parent.glob(f"{path.name}*")
        if file.suffix != ".lock" and not file.name.endswith("-shm")
    }


def make_newer(path: Path, *, with_log: bool) -> None:
    """A store whose version stands a step higher than any that we know; if wanted, only in its log."""
    SessionDB(path).close()
    source = path.with_name("source.db")
    path.rename(source)
    connection = sqlite3.connect(source)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("UPDATE schema_version SET version = 12")
    connection.commit()
    if with_log:
        for ending in ("", "-wal"):
            path.with_name(path.name + ending).write_bytes(Path(f"{source}{ending}").read_bytes())
    connection.close()
    if not with_log:
        source.rename(path)
    opener._checked_schemas.clear()  # what this process knows of it, another one does not


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_newer_version_is_refused_untouched(tmp_path: Path, with_log: bool, seen_before: bool) -> None:
    """The marks in the header are ours: the version may be newer all the same, and stand in the log alone."""
    path = tmp_path / "state.db"
    make_newer(path, with_log=with_log)
    before = files_beside(path)
    if seen_before:  # as after another program was killed
        path.with_name("state.db-shm").write_bytes(b"")
    with pytest.raises(errors.StoreTooNew, match="has schema version 12"):
        SessionDB(path)
    assert files_beside(path) == before
    assert seen_before or not path.with_name("state.db-shm").exists()


@pytest.mark.parametrize("verb", ["create_session", "append_message", "get_session", "search_messages"])
def test_a_newer_version_is_seen_by_whoever_had_the_store_before(tmp_path: Path, verb: str) -> None:
    """A row may change without the schema: a process that knows the schema looks at it when it first uses the store."""
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        say(db, "a", "hello")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 12")
    connection.commit()
    connection.close()
    before = files_beside(path)
    with SessionDB(path) as db, pytest.raises(errors.StoreTooNew, match="has schema version 12"):
        {**WRITES, **READS}[verb](db)
    assert files_beside(path) == before


# --- an older store of ours


RULES = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'view', 'index') ORDER BY name"


def rules_of(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(RULES).fetchall()
    finally:
        connection.close()


def test_an_older_store_gets_the_triggers_of_today(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        say(db, "a", "hello")
    wanted = rules_of(path)
    connection = sqlite3.connect(path)
    connection.executescript(
        """DROP TRIGGER hermes_message_placed; DROP VIEW hermes_changed; DROP TRIGGER hermes_session_placed;
        CREATE TRIGGER hermes_message_displaced BEFORE INSERT ON messages WHEN new.uid IS NULL BEGIN SELECT 1; END;
        CREATE TRIGGER hermes_session_inserted AFTER INSERT ON sessions WHEN new.root_id IS NULL BEGIN SELECT 1; END"""
    )
    connection.close()
    with SessionDB(path) as db:
        assert contents(db.get_messages("a")) == ["hello"]
    assert rules_of(path) == wanted


def test_a_store_of_today_is_opened_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    before = path.read_bytes()
    opener._checked_schemas.clear()
    SessionDB(path).close()
    assert path.read_bytes() == before
