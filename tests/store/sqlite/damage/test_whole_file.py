"""The whole file is damaged: it is empty, garbage or truncated, or it is missing while its log exists."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import (
    PAGE,
    SCHEMAS,
    assert_whole,
    crashed,
    everything,
    ids_on_page,
    overwrite,
    pages_of,
    repaired,
    sql,
    stored_messages,
)


def test_an_empty_file_is_never_an_empty_history(store: Path) -> None:
    store.write_bytes(b"")
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(store)
    report = SessionDB.repair_file(store)
    assert not report.ok
    assert "nothing in it is readable" in report.lines()[0]
    assert store.stat().st_size == 0
    with pytest.raises(errors.StoreDamaged):
        SessionDB(store)


def test_the_command_to_restore_a_backup_is_named(store: Path) -> None:
    before = everything(store)
    with SessionDB(store) as db:
        made = db.backup().path
    store.write_bytes(b"")
    report = SessionDB.repair_file(store)
    assert not report.ok
    assert any(f"hermes sessions restore {made}" in line for line in report.lines())
    SessionDB.restore_file(store, made)
    assert everything(store) == before


@pytest.mark.parametrize("size", [10, 5000, 200_000])
def test_garbage_is_left_as_it_is(store: Path, size: int) -> None:
    garbage = random.Random(size).randbytes(size)
    store.write_bytes(garbage)
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(store)
    report = SessionDB.repair_file(store)
    assert not report.ok
    assert store.read_bytes() == garbage
    assert sorted(file.name for file in store.parent.glob("*.new-*")) == []


def test_garbage_at_the_start_leaves_the_rest(store: Path) -> None:
    before = everything(store)
    overwrite(store, 1, random.Random(1).randbytes(2 * PAGE))
    repaired(store)
    after = everything(store)
    assert {name: len(row[2]) for name, row in after.items()} == {
        name: len(row[2]) for name, row in before.items()
    }
    assert_whole(store)


@pytest.mark.parametrize("part", [0.6, 0.7, 0.95])
def test_a_truncated_file(store: Path, part: float) -> None:
    before = stored_messages(store)
    size = int(store.stat().st_size * part)
    kept = {
        number
        for page in pages_of(store, "messages")
        if page * PAGE <= size
        for number in ids_on_page(store, page)
        if number in before and "giant" not in before[number]["content"]
    }
    os.truncate(store, size)
    repaired(store)
    after = stored_messages(store)
    assert kept
    assert {number: after.get(number) for number in kept} == {number: before[number] for number in kept}
    assert_whole(store)


def test_a_log_beside_a_damaged_file_is_not_lost(store: Path) -> None:
    page = pages_of(store, "messages")[1]
    gone = ids_on_page(store, page)
    before = stored_messages(store)
    crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    overwrite(store, page)
    report = repaired(store)
    after = stored_messages(store)
    assert set(before) - set(after) == gone
    assert after[max(after)]["content"] == "only in the log"
    assert report.kept is not None
    assert Path(f"{report.kept}-wal").stat().st_size > 0
    assert_whole(store)


def test_a_log_without_its_file(home: Path) -> None:
    path = home / "state.db"
    crashed(
        path, "db.create_session('s', 'cli')\nfor n in range(20): db.append_message('s', 'user', f'kept{n}')"
    )
    path.unlink()
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(path)
    assert not path.exists()
    repaired(path)
    with SessionDB(path) as db:
        assert [m["content"] for m in db.get_messages("s")] == [f"kept{n}" for n in range(20)]
        assert len(db.search_messages("kept7")) == 1
    assert_whole(path)


def test_a_log_beside_an_empty_file(home: Path) -> None:
    path = home / "state.db"
    crashed(
        path, "db.create_session('s', 'cli')\nfor n in range(20): db.append_message('s', 'user', f'kept{n}')"
    )
    path.write_bytes(b"")
    repaired(path)
    with SessionDB(path) as db:
        assert [m["content"] for m in db.get_messages("s")] == [f"kept{n}" for n in range(20)]


def test_a_file_that_is_not_there(home: Path) -> None:
    report = SessionDB.repair_file(home / "state.db")
    assert not report.ok
    assert "does not exist" in report.lines()[0]
    assert not (home / "state.db").exists()


def test_a_damaged_older_store_is_repaired_to_the_current_version(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    with sql(path) as connection:
        connection.execute((SCHEMAS / "v11.sql").read_text()).fetchall()
        connection.execute(
            "INSERT INTO sessions (id, source, started_at, message_count) VALUES ('a', 'cli', 1.0, 300)"
        )
        for at in range(300):
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp, reasoning)"
                " VALUES ('a', 'user', ?, ?, 'why')",
                (f"old{at} " + "text " * 50, float(at)),
            )
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    page = pages_of(path, "messages")[3]
    gone = ids_on_page(path, page)
    overwrite(path, page)
    repaired(path)
    with SessionDB(path) as db:
        found = db.get_messages("a")
        assert [m["id"] for m in found] == [n for n in range(1, 301) if n not in gone]
        assert {m["reasoning"] for m in found} == {"why"}
        assert len(db.search_messages("old299")) == 1
    assert_whole(path)
