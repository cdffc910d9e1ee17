"""A file or path that SQLite cannot open raises one clear error. Nothing is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes import errors
from hermes_state import SessionDB


@pytest.mark.parametrize("kept", [0, 1, 2, 50, 99])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_truncated_store_is_damage_and_not_a_new_store(home: Path, kept: int, read_only: bool) -> None:
    path = home / "cut.db"
    with SessionDB(path) as db:
        db.create_session("a", "cli")
        db.append_message("a", "user", "kept")
    os.truncate(path, kept)
    with pytest.raises(errors.StoreDamaged, match="sessions repair"):
        SessionDB(path, read_only=read_only)
    assert path.stat().st_size == kept
    assert not SessionDB.repair_file(path).ok
    assert path.stat().st_size == kept


def test_a_file_that_is_not_a_store_is_not_changed(tmp_path: Path) -> None:
    folder, foreign, notes = tmp_path / "folder", tmp_path / "foreign.db", tmp_path / "notes.txt"
    folder.mkdir(mode=0o755)
    with closing(sqlite3.connect(foreign)) as other:
        other.execute("CREATE TABLE accounts (name TEXT)")
    notes.write_text("nothing of ours\n" * 100)
    modes = {path: path.stat().st_mode for path in (folder, foreign, notes)}
    for path in modes:
        path.chmod(0o755 if path.is_dir() else 0o644)
        modes[path] = path.stat().st_mode
        with pytest.raises(errors.StoreError):
            SessionDB(path)
    assert {path: path.stat().st_mode for path in modes} == modes
    with pytest.raises(errors.StoreFailed, match="is not a file"):
        SessionDB(folder)


def test_a_path_that_sqlite_cannot_open(
    db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = tmp_path / os.fsdecode(b"caf\xe9.db")
    refused = pytest.raises(
        errors.InvalidArgument, match=r"path of a store must be valid UTF-8, got '.*caf\\udce9.db'"
    )
    for attempt in (
        lambda: SessionDB(name),
        lambda: SessionDB(name, read_only=True),
        lambda: db.backup(name),
        lambda: SessionDB.repair_file(name),
        lambda: SessionDB.restore_file(name, db.db_path),
        lambda: SessionDB.restore_file(tmp_path / "new.db", name),
    ):
        with refused:
            attempt()
    assert [finding.level for finding in SessionDB.diagnose_file(name).findings].count("error") == 1
    assert os.listdir(os.fsencode(tmp_path)).count(os.fsencode(name.name)) == 0
    monkeypatch.setenv("HERMES_HOME", str(name))
    with pytest.raises(errors.InvalidArgument, match="UTF-8"):
        SessionDB()
    assert not name.exists()
