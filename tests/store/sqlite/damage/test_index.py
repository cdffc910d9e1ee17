"""A damaged search index prevents no operation and loses no data. It is rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import (
    MESSAGES,
    assert_whole,
    everything,
    overwrite,
    pages_of,
    repaired,
    sql,
)


@pytest.mark.parametrize(
    "part",
    [
        f"messages_fts_{name}"
        for name in (
            *("words_data", "words_idx", "words_docsize"),
            *("blocks_data", "blocks_idx", "blocks_docsize", "ranges", "members"),
        )
    ],
)
def test_a_broken_index_stops_nothing_and_is_rebuilt(store: Path, part: str) -> None:
    before = everything(store)
    for page in pages_of(store, part):
        overwrite(store, page)
    with SessionDB(store) as db:
        for at in range(80):
            db.append_message("s1", "user", f"afterwards{at} quokka")
        assert [m["content"] for m in db.get_messages("s1")][:MESSAGES] == [
            m["content"] for m in before["s1"][2]
        ]
        assert len(db.search_messages("quokka", limit=100)) == 80
        assert len(db.search_messages("zebra2x7")) == 1
        assert db.search_sessions_ranked("zebra2x7")[0]["session_id"] == "s2"
        assert db.verify().damage == ()
    assert not Path(f"{store}.damaged").exists()
    assert_whole(store)


def test_searching_first_finds_a_broken_index_and_rebuilds_it(store: Path) -> None:
    for page in pages_of(store, "messages_fts_words_data"):
        overwrite(store, page)
    with SessionDB(store, read_only=True) as db, pytest.raises(errors.StoreDamaged):
        db.search_messages("zebra2x7")  # a read-only handle cannot rebuild the index, so it raises
    with SessionDB(store) as db:
        assert len(db.search_messages("zebra2x7")) == 1
        db.optimize()
    assert_whole(store)


def test_a_broken_index_does_not_prevent_a_deletion(store: Path) -> None:
    for page in pages_of(store, "messages_fts_words_data"):
        overwrite(store, page)
    with SessionDB(store) as db:
        assert db.delete_session("s1")
        assert db.get_session("s1") is None
        assert db.search_messages("zebra1x1") == []
        db.replace_messages("s2", [{"role": "user", "content": "instead wombat"}])
        assert len(db.search_messages("wombat")) == 1
        db.optimize()
    assert_whole(store)


def test_repair_rebuilds_a_broken_index_in_place(store: Path) -> None:
    before = everything(store)
    for page in pages_of(store, "messages_fts_words_data"):
        overwrite(store, page)
    inode = store.stat().st_ino
    looked = SessionDB.repair_file(store, check_only=True)
    assert not looked.ok
    assert "search index" in looked.lines()[0]
    report = repaired(store)
    assert "search index" in report.lines()[0]
    assert report.kept is None
    assert store.stat().st_ino == inode
    assert everything(store) == before
    with SessionDB(store) as db:
        assert len(db.search_messages("zebra4x9")) == 1
    assert_whole(store)


def test_repair_corrects_derived_columns(store: Path) -> None:
    with sql(store) as connection:
        connection.execute(
            "UPDATE sessions SET preview = 'wrong', last_active = 1 WHERE id = 's2'"
        ).fetchall()
    assert not SessionDB.repair_file(store, check_only=True).ok
    assert any("s2" in line for line in repaired(store).lines())
    assert_whole(store)
    with SessionDB(store) as db:
        assert db.get_session("s2")["preview"].startswith("s2 message0")  # type: ignore[index]


def test_messages_without_a_session_get_one(store: Path) -> None:
    with sql(store) as connection:
        connection.execute("DELETE FROM sessions WHERE id = 's2'").fetchall()
    repaired(store)
    assert_whole(store)
    with SessionDB(store) as db:
        row = db.get_session("s2")
        assert row is not None
        assert (row["source"], row["message_count"], row["tool_call_count"]) == ("unknown", MESSAGES, 5)
        assert len(db.get_messages("s2")) == MESSAGES


def test_a_repair_without_damage_clears_an_old_mark(store: Path) -> None:
    before = everything(store)
    Path(f"{store}.damaged").write_text("seen once\n")
    with pytest.raises(errors.StoreDamaged, match="seen once"):
        SessionDB(store)
    report = repaired(store)
    assert "no problems found" in report.lines()[0]
    assert (report.lost, report.kept) == ((), None)
    assert everything(store) == before
