"""A worker with an additional column, `mood`, in `sessions` and `messages`. It checks that every operation
keeps the values of the column.

    python column_worker.py FOLDER

`FOLDER/old.db` is a store without the column.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import zero
from tests.stored_rows import change_rows


def moods(db: SessionDB, session_id: str) -> tuple[Any, list[Any]]:
    row = db.get_session(session_id)
    assert row is not None
    return row["mood"], [message["mood"] for message in db.get_messages(session_id)]


def fill(db: SessionDB) -> None:
    db.create_session("s", "cli", mood="glad")
    db.append_message("s", "user", "hello", mood="curious")
    db.append_message("s", "assistant", "good morning")
    assert moods(db, "s") == ("glad", ["curious", None])
    assert {row["id"]: row["mood"] for row in db.list_sessions_rich()} == {"s": "glad"}
    assert [message.get("mood") for message in db.get_messages_as_conversation("s")] == ["curious", None]
    with pytest.raises(TypeError, match="weather"):
        db.append_message("s", "user", "hello", weather="fine")
    with pytest.raises(TypeError, match="weather"):
        db.create_session("t", "cli", weather="fine")


def replace(db: SessionDB) -> None:
    rows = db.get_messages_as_conversation("s")
    db.replace_messages("s", [rows[0], {**rows[1], "mood": "awake"}])
    assert moods(db, "s") == ("glad", ["curious", "awake"])


def branch(db: SessionDB) -> None:
    child = db.branch("s", end_parent=False)
    assert moods(db, child) == ("glad", [])


def transfer(db: SessionDB, folder: Path) -> None:
    exported = db.export_session("s")
    assert exported is not None
    assert exported["mood"] == "glad"
    for trusted in (True, False):
        with SessionDB(folder / f"imported-{trusted}.db") as other:
            other.import_sessions([exported], trusted=trusted)
            assert moods(other, "s") == ("glad", ["curious", "awake"])
            mirrored = other.mirrored.read_session("s")
            assert mirrored is not None
            assert mirrored.columns["mood"] == "glad"


def merge(db: SessionDB, folder: Path) -> None:
    with SessionDB(folder / "imported-True.db") as other:
        other.append_message("s", "user", "and on", mood="tired")
        change_rows(other, "UPDATE sessions SET mood = 'calm' WHERE id = 's'")
        newer = other.export_session("s")
    assert newer is not None
    db.import_sessions([newer], trusted=True)
    assert moods(db, "s") == ("calm", ["curious", "awake", "tired"])


def repair(path: Path) -> None:
    zero(path, "idx_messages_session")
    assert SessionDB.repair_file(path).ok
    with SessionDB(path) as db:
        assert moods(db, "s") == ("calm", ["curious", "awake", "tired"])


def upgrade(path: Path) -> None:
    with SessionDB(path) as db:
        assert moods(db, "old") == (None, [None])
        db.append_message("old", "user", "again", mood="curious")
        assert moods(db, "old") == (None, [None, "curious"])


def main(folder: Path) -> None:
    path = folder / "state.db"
    with SessionDB(path) as db:
        fill(db)
        replace(db)
        branch(db)
        transfer(db, folder)
        merge(db, folder)
    repair(path)
    upgrade(folder / "old.db")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
