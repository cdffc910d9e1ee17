"""A clock can go backwards, stop, or be wrong by years. Messages stay in the order in which the store
accepted them.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.survival.test_foreign import check_exact

BASE = 1_700_000_000.0
CLOCKS = {
    "backwards": [BASE - n for n in range(30)],
    "equal": [BASE] * 30,
    "future": [BASE + 10**9 + n for n in range(30)],
    "before the epoch": [-1000.0 - n for n in range(30)],
    "zero": [0.0] * 30,
    "jumping": [BASE + random.Random(3).uniform(-(10**8), 10**8) for _ in range(30)],
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_messages_are_in_the_order_they_were_appended(db: SessionDB, home: Path, clock: str) -> None:
    times = CLOCKS[clock]
    db.create_session("s", "cli", started_at=BASE)
    ids = [
        db.append_message("s", ("user", "assistant")[n % 2], f"number{n} word", timestamp=at)
        for n, at in enumerate(times)
    ]
    texts = [f"number{n} word" for n in range(len(times))]
    assert ids == sorted(ids)
    rows = db.get_messages("s")
    assert [row["content"] for row in rows] == texts
    assert [row["timestamp"] for row in rows] == times
    assert [said["content"] for said in db.get_messages_as_conversation("s")] == texts
    assert [said["content"] for said in db.get_messages_as_conversation("s", include_ancestors=True)] == texts
    listed = db.list_sessions_rich()[0]
    assert listed["last_active"] == max(times)
    assert listed["preview"] == "number0 word"  # the message that was stored first, whatever its time is
    middle = db.search_messages("number7")[0]
    assert [near["content"] for near in middle["context"]] == ["number6 word", "number7 word", "number8 word"]
    exported = db.export_session("s")
    assert exported is not None
    assert [row["content"] for row in exported["messages"]] == texts
    with SessionDB(home / "second.db") as other:
        other.import_sessions([exported], trusted=True)
        assert [row["content"] for row in other.get_messages("s")] == texts
        assert [row["timestamp"] for row in other.get_messages("s")] == times
        assert other.list_sessions_rich()[0]["last_active"] == max(times)
    check_exact(db)


def test_the_family_is_in_the_order_of_ids_too(db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=BASE)
    db.append_message("old", "user", "first", timestamp=BASE + 500)
    db.end_session("old", "compression")
    db.create_session("new", "cli", parent_session_id="old", started_at=BASE + 10**10)
    db.append_message("new", "user", "second", timestamp=BASE - 500)
    db.append_message("new", "assistant", "third", timestamp=BASE - 600)
    family = db.get_messages_as_conversation("new", include_ancestors=True)
    assert [said["content"] for said in family] == ["first", "second", "third"]
    assert db.get_compression_tip("old") == "new"


def test_a_recorded_continuation_does_not_depend_on_clocks(db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=BASE)
    db.append_message("old", "user", "hello")
    db.end_session("old", "compression")
    db.create_session("new", "cli", parent_session_id="old")
    assert db.get_compression_tip("old") == "new"
    db.reopen_session("old")
    assert db.get_compression_tip("old") == "new"
    change_rows(db, "UPDATE sessions SET started_at = 1.0 WHERE id = 'new'")
    change_rows(db, "UPDATE sessions SET started_at = 9e9, ended_at = 9e9 WHERE id = 'old'")
    assert db.get_compression_tip("old") == "new"
    assert db.get_conversation_root("new") == "old"
    check_exact(db)


def test_the_time_of_a_session_is_that_of_its_newest_message(db: SessionDB) -> None:
    db.create_session("empty", "cli", started_at=BASE + 50)
    db.create_session("early", "cli", started_at=BASE + 100)
    db.append_message("early", "user", "imported from long ago", timestamp=BASE - 10**6)
    db.create_session("late", "cli", started_at=BASE)
    db.append_message("late", "user", "now", timestamp=BASE + 1000)
    db.append_message("late", "user", "and before", timestamp=BASE + 10)
    db.create_session("future", "cli", started_at=BASE + 10**9)
    active = {row["id"]: row["last_active"] for row in db.search_sessions(limit=-1)}
    assert active == {
        "empty": BASE + 50,
        "early": BASE - 10**6,
        "late": BASE + 1000,
        "future": BASE + 10**9,
    }
    order = [row["id"] for row in db.list_sessions_rich(limit=-1, order_by_last_active=True)]
    assert order == ["future", "late", "empty", "early"]
    assert [row["id"] for row in db.list_sessions_rich(limit=-1)] == ["future", "early", "empty", "late"]
    check_exact(db)


def test_equal_times_are_ordered_by_id(db: SessionDB) -> None:
    for name in ("b", "c", "a"):
        db.create_session(name, "cli", started_at=BASE)
        db.append_message(name, "user", "hello", timestamp=BASE)
    for by_activity in (False, True):
        listed = [row["id"] for row in db.list_sessions_rich(order_by_last_active=by_activity)]
        assert listed == ["c", "b", "a"]
    assert [row["id"] for row in db.list_sessions_rich(limit=1, offset=1)] == ["b"]


def test_future_times_do_not_keep_a_message_from_being_found(db: SessionDB) -> None:
    db.create_session("s", "cli")
    for n in range(200):
        db.append_message("s", "user", f"word{n} common", timestamp=time.time() + 10**8)
    assert len(db.search_messages("common", limit=1000)) == 200
    assert len(db.search_messages("word199")) == 1
    assert db.prune_sessions(older_than_days=1) == 0
    db.end_session("s", "cli_close")
    assert db.prune_sessions(older_than_days=1) == 0
    assert db.prune_sessions(older_than_days=0) == 1


@pytest.mark.parametrize("bad", ["yesterday", float("nan"), float("inf"), object()])
def test_an_invalid_time_is_refused_and_nothing_is_written(db: SessionDB, bad: object) -> None:
    db.create_session("s", "cli")
    with pytest.raises((ValueError, TypeError)):
        db.append_message("s", "user", "when?", timestamp=bad)  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        db.create_session("t", "cli", started_at=bad)  # type: ignore[arg-type]
    assert db.get_messages("s") == []
    assert db.get_session("t") is None
    db.append_message("s", "user", "now")
    check_exact(db)
