"""Another program has used the highest possible row id. Appends still work. The problem is reported and can
be repaired.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hermes.errors import StoreFull
from hermes.store.engine import Writer
from hermes_state import SessionDB

LAST = (1 << 63) - 1
ADD = "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (?, ?, 'user', ?, 5.0)"


def filled(db: SessionDB) -> None:
    for session in ("a", "b"):
        db.create_session(session, "cli")
        for number in range(3):
            db.append_message(session, "user", f"{session} early {number}")


def texts(db: SessionDB, session: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session)]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("high", [(LAST,), (LAST - 1, LAST), ((1 << 62) + 5, LAST)])
def test_appends_continue_after_the_highest_id(home: Path, high: tuple[int, ...], indexed: bool) -> None:
    with SessionDB() as db:
        filled(db)
        if indexed:
            assert len(db.search_messages("early")) == 6
        for row_id in high:
            db.raw().execute(ADD, (row_id, "a", f"foreign {high.index(row_id)}"))
        wrong = db.verify()
        assert not wrong.ok
        assert str(LAST) in "\n".join(wrong.lines())
        ids = [db.append_message(session, "user", f"{session} late") for session in "ab"]
        assert ids == sorted(ids)
        assert ids[-1] < 100
        foreign = [f"foreign {number}" for number in range(len(high))]
        assert texts(db, "a") == ["a early 0", "a early 1", "a early 2", *foreign, "a late"]
        assert texts(db, "b") == ["b early 0", "b early 1", "b early 2", "b late"]
        assert len(db.search_messages("foreign")) == len(high)
        assert len(db.search_messages("late")) == 2
        assert db.verify().ok


def test_all_threads_that_share_a_commit_succeed(home: Path) -> None:
    with SessionDB() as db:
        filled(db)
        db.raw().execute(ADD, (LAST, "a", "foreign"))
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(lambda number: db.append_message("b", "user", f"late {number}"), range(40)))
        assert len(set(ids)) == 40
        assert len(texts(db, "b")) == 43
        assert db.verify().ok


def test_a_write_that_found_no_id_is_repeated_after_another_thread_moved_the_ids(home: Path) -> None:
    with SessionDB() as db:
        filled(db)
        calls = []

        def append(writer: Writer) -> int:
            calls.append(writer)
            if len(calls) == 1:  # the state that the write sees before the other thread moves the high ids
                raise StoreFull("no room left")
            return writer.run("UPDATE sessions SET model = 'm' WHERE id = 'a'")

        assert db._engine.write(append) == 1
        assert len(calls) == 2


def test_doctor_names_the_row_and_repair_moves_it_with_its_references(home: Path) -> None:
    with SessionDB() as db:
        filled(db)
        picture = [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 20_000}}
        ]
        attached = db.append_message("a", "user", picture)
        references = db.raw().execute("SELECT count(*) FROM blob_refs").fetchone()
        assert references == (1,)
        before = db.get_messages("a")
        raw = db.raw()
        raw.execute("PRAGMA foreign_keys=OFF")
        raw.execute("UPDATE messages SET id = ? WHERE id = ?", (LAST, attached))
        raw.execute("UPDATE blob_refs SET message_id = ?", (LAST,))
        raw.execute("INSERT INTO carried_context VALUES ('b', 0, ?, ?)", (LAST, LAST))
        raw.close()
        path = db.db_path
        found = [finding for finding in db.diagnose().findings if str(LAST) in finding.what]
        assert found
    foretold = SessionDB.repair_file(path, check_only=True)
    assert not foretold.ok
    assert any(str(LAST) in line for line in foretold.done)
    done = SessionDB.repair_file(path)
    assert done.ok
    assert any(f"messages row {LAST} of a is now row" in line for line in done.done)
    with SessionDB() as db:
        after = db.get_messages("a")
        assert [row["content"] for row in after] == [row["content"] for row in before]
        moved = after[-1]["id"]
        assert moved < 100
        assert db.raw().execute("SELECT message_id FROM blob_refs").fetchone() == (moved,)
        carried = "SELECT first_message_id, last_message_id FROM carried_context"
        assert db.raw().execute(carried).fetchone() == (moved, moved)
        assert db.append_message("a", "user", "late") > moved
        assert db.verify().ok


@pytest.mark.parametrize("table", ["messages", "inbox", "outbox"])
def test_a_counter_at_its_end_is_set_back(home: Path, table: str) -> None:
    with SessionDB() as db:
        filled(db)
        db.raw().execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        db.raw().execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, LAST))
        assert table in "\n".join(db.verify().lines())
        if table == "messages":
            assert db.append_message("a", "user", "late") == 7
        path = db.db_path
    assert SessionDB.repair_file(path).ok
    with SessionDB() as db:
        assert db.verify().ok
        assert db.raw().execute("SELECT max(seq) < 100 FROM sqlite_sequence").fetchone() == (1,)


@pytest.mark.parametrize("row_id", [0, -1, -5, -LAST])
def test_ids_below_the_first_are_found_too(home: Path, row_id: int) -> None:
    with SessionDB() as db:
        filled(db)
        assert len(db.search_messages("early")) == 6
        db.raw().execute(ADD, (row_id, "a", "foreign words"))
        assert db.append_message("a", "user", "late") == 7
        assert texts(db, "a")[0] == "foreign words"
        assert [row["id"] for row in db.search_messages("foreign")] == [row_id]
        assert db.verify().ok
