"""Opens an SQLite file. Covers its log, its settings, and files that newer or older programs have written."""

from __future__ import annotations

import os
import sqlite3
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
from tests.interface.test_opening import READS, WRITES


def test_the_write_ahead_log_and_its_index_lie_beside_the_file(home: Path) -> None:
    with SessionDB() as db:
        say(db, "a", "hello")
        assert {"state.db", "state.db-wal", "state.db-shm"} <= set(os.listdir(home))


def test_no_connection_prepares_a_statement_again_for_each_value(db: SessionDB) -> None:
    """Some builds of SQLite prepare a statement again when its bound values change. This takes longer than
    most statements, so it is turned off."""
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


# --- files of a newer program


def files_beside(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in path.parent.glob(f"{path.name}*")
        if file.suffix != ".lock" and not file.name.endswith("-shm")
    }


def make_newer(path: Path, *, with_log: bool) -> None:
    """Create a store whose version is one higher than any known version. With `with_log`, that version is
    only in the log."""
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
    opener._checked_schemas.clear()  # forget the cached check, as if this were another process


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_newer_version_is_refused_and_not_changed(
    tmp_path: Path, with_log: bool, seen_before: bool
) -> None:
    """The header of the file is that of this program, but its version is newer. The newer version may be only
    in the log."""
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
def test_a_newer_version_is_detected_despite_a_cached_schema(tmp_path: Path, verb: str) -> None:
    """The version can change although the schema stays the same. So a process that has cached the schema
    checks the version again when it first uses the store."""
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


def test_an_older_store_gets_the_current_triggers(tmp_path: Path) -> None:
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


def test_a_current_store_is_opened_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    before = path.read_bytes()
    opener._checked_schemas.clear()
    SessionDB(path).close()
    assert path.read_bytes() == before
