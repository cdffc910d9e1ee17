"""`hermes sessions import` of stores that the reference wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Hermes
from tests.store.sqlite.reference_databases import PLANTED_WORD, build


@pytest.mark.parametrize("version", [1, 7, 11, 22])
def test_a_store_of_any_version_is_imported_once_and_left_as_it_is(
    hermes: Hermes, tmp_path: Path, version: int
) -> None:
    file = tmp_path / "other" / "state.db"
    file.parent.mkdir()
    expected = build(file, min(version, 11))
    if version > 11:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("UPDATE schema_version SET version = ?", (version,))
            connection.commit()
    before = file.read_bytes()
    for _ in range(2):
        done = hermes("sessions", "import", "--trusted", str(file))
        assert done.returncode == 0
        with SessionDB() as db:
            assert (db.session_count(), db.message_count()) == (
                expected.total_sessions,
                expected.total_messages,
            )
            assert len(db.search_messages(PLANTED_WORD)) == 1
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == before
