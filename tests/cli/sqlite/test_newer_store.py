"""A newer release of the reference has opened the store. The commands can read the store, but not change it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Hermes
from tests.store.sqlite.reference_databases import PLANTED_WORD, Expected, build

NOTE = "is of a newer version; the following is read from a copy of it"


@pytest.fixture
def newer(home: Path) -> Expected:
    home.mkdir(mode=0o700, exist_ok=True)
    expected = build(home / "state.db", 11)
    with closing(sqlite3.connect(home / "state.db")) as connection:
        connection.execute("UPDATE schema_version SET version = 22")
        connection.commit()
    return expected


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["list"], "旅行の計画"),
        (["show", "旅行の計画"], "旅行の計画"),
        (["search", PLANTED_WORD], f">>>{PLANTED_WORD}<<<"),
        (["export", "-"], PLANTED_WORD),
        (["tree", "旅行の計画"], "旅行の計画"),
        (["stats"], "12"),
    ],
)
def test_commands_that_only_read_work(
    home: Path, newer: Expected, hermes: Hermes, words: list[str], seen: str
) -> None:
    before = (home / "state.db").read_bytes()
    done = hermes("sessions", *words)
    assert done.returncode == 0
    assert seen in done.stdout
    assert NOTE in done.stderr.splitlines()[0]
    assert (home / "state.db").read_bytes() == before


def test_a_backup_copies_the_file_itself(home: Path, newer: Expected, hermes: Hermes) -> None:
    with closing(sqlite3.connect(home / "state.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    assert hermes("sessions", "backup", str(home / "copy.db")).returncode == 0
    with closing(sqlite3.connect(home / "copy.db")) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(22,)]
        newer.check(connection, ignore=("schema_version",))
    assert not (home / "state.db-wal").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "rename", "clocks", "watches"),
        ("sessions", "delete", "clocks", "--yes"),
        ("sessions", "prune", "--yes"),
        ("-q", "hello"),
    ],
)
def test_commands_that_write_are_refused_with_a_hint(
    home: Path, newer: Expected, hermes: Hermes, words: Sequence[str]
) -> None:
    before = (home / "state.db").read_bytes()
    done = hermes(*words, HERMES_MODEL="offline")
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert "has schema version 22" in told
    assert f"hermes sessions import --trusted {home / 'state.db'}" in told
    assert (home / "state.db").read_bytes() == before


def test_doctor_gives_a_hint(newer: Expected, hermes: Hermes) -> None:
    done = hermes("doctor")
    assert done.returncode == 1
    assert "hermes sessions import" in done.stdout
