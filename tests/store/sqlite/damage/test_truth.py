"""Pages of a table are lost, and the table cannot be rebuilt from others. Writes are then refused, no session
appears to be empty, and the remaining rows are recovered.
"""

from __future__ import annotations

import random
import stat
from pathlib import Path

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import (
    MESSAGES,
    PAGES,
    SESSIONS,
    assert_whole,
    blank_entries,
    child,
    cut_in_half,
    everything,
    ids_on_page,
    overwrite,
    pages_of,
    repaired,
    sql,
    stored_messages,
    zero,
)


def test_a_lost_page_of_messages_stops_writing_everywhere_and_is_named(store: Path) -> None:
    zero(store, "messages", at=5)
    with SessionDB(store) as db:
        collected = []
        for number in range(SESSIONS):
            try:
                assert len(db.get_messages(f"s{number}")) >= MESSAGES  # never fewer messages than were stored
            except errors.StoreDamaged as problem:
                collected.append(str(problem))
        assert collected
        assert "malformed" in collected[0]
        assert "hermes sessions repair" in collected[0]
        with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
            db.append_message("s0", "user", "more")
        with pytest.raises(errors.StoreDamaged):
            db.create_session("new", "cli")
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(store)
    elsewhere = child("SessionDB(path).append_message('s0', 'user', 'more')", store)
    assert elsewhere.returncode != 0
    assert "hermes sessions repair" in elsewhere.stderr


@pytest.mark.parametrize("at", [0, 3, 7, -1])
def test_repair_saves_every_row_of_the_other_pages(store: Path, at: int) -> None:
    before = everything(store)
    page = pages_of(store, "messages")[at]
    gone = ids_on_page(store, page)
    assert gone
    zero(store, "messages", at=at)
    report = repaired(store)
    after = stored_messages(store)
    expected = {m["id"]: m for _, _, messages in before.values() for m in messages if m["id"] not in gone}
    assert after == expected
    assert_whole(store)
    lost_count = sum(
        int(line.split(": ")[1].split(" of its ")[0]) for line in report.lost if " of its " in line
    )
    assert lost_count == len(gone)
    assert report.kept is not None
    assert stat.S_IMODE(report.kept.stat().st_mode) == 0o600
    with SessionDB(store) as db:
        for message in random.Random(at).sample(
            [m for m in expected.values() if "zebra" in m["content"]], 10
        ):
            word = message["content"].split()[2]
            assert [hit["id"] for hit in db.search_messages(word)] == [message["id"]]
        for name, (title, _, _) in before.items():
            row = db.get_session(name)
            assert row is not None
            assert row["title"] == title
            assert row["message_count"] == len(db.get_messages(name))
        assert db.get_meta("colour") == "green"
        assert db.append_message("s0", "user", "goes on") > max(*expected, *gone)


@pytest.mark.parametrize("table", ["messages", "sessions"])
def test_a_lost_interior_page_loses_no_row(store: Path, table: str) -> None:
    before = everything(store)
    interior = pages_of(store, table, "internal")
    if not interior:
        with SessionDB(store) as db:
            for number in range(40):
                db.create_session(f"more{number}", "cli", system_prompt="long " * 300)
        before = everything(store)
        interior = pages_of(store, table, "internal")
    zero(store, table, "internal")
    with pytest.raises(errors.StoreDamaged):
        everything(store)
    report = repaired(store)
    assert everything(store) == before
    assert report.lost == ()
    assert_whole(store)


@pytest.mark.parametrize(
    "name", ["idx_messages_session", "idx_messages_order", "sqlite_autoindex_sessions_1"]
)
def test_a_lost_page_of_an_ordinary_index_loses_no_row(store: Path, name: str) -> None:
    before = everything(store)
    zero(store, name)
    report = repaired(store)
    assert everything(store) == before
    assert report.lost == ()
    assert_whole(store)


@pytest.mark.parametrize("verb", ["get_messages", "get_messages_as_conversation", "export_session"])
def test_a_history_that_its_index_does_not_lead_to_is_never_shown_as_empty(store: Path, verb: str) -> None:
    before = everything(store)
    for page in pages_of(store, "idx_messages_order"):
        blank_entries(store, page)
    with SessionDB(store) as db:
        row = db.get_session("s5")
        assert row is not None
        assert row["message_count"] == MESSAGES
        with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
            getattr(db, verb)("s5")
        with pytest.raises(errors.StoreDamaged):
            db.append_message("s5", "user", "more")
    report = repaired(store)
    assert report.lost == ()
    assert everything(store) == before
    assert_whole(store)


def test_a_session_that_has_no_messages_is_empty(store: Path) -> None:
    with SessionDB(store) as db:
        db.create_session("empty", "cli")
    with sql(store) as connection:  # written by another program that does not update the counter
        connection.execute("DELETE FROM messages WHERE session_id = 's1'").fetchall()
    with SessionDB(store) as db:
        for name in ("empty", "s1"):
            assert db.get_messages(name) == []
            assert db.get_messages_as_conversation(name) == []
        assert db.verify().damage == ()


def test_a_partly_lost_page_of_attachments_is_reported(store: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 6000}}
    with SessionDB(store) as db:
        db.append_message("s1", "user", [picture])
    cut_in_half(store, pages_of(store, "blobs")[0])
    with SessionDB(store) as db:
        assert any("do not match its hash" in line for line in db.verify().damage)


def test_every_verb_reports_a_schema_that_is_lost_while_the_process_runs(store: Path) -> None:
    # This process has the schema in its cache, because the fixture has opened the store.
    overwrite(store, pages_of(store, "sqlite_schema")[0])
    with SessionDB(store) as db:
        for verb in (
            db.list_sessions_rich,
            lambda: db.get_messages("s0"),
            lambda: db.search_messages("zebra0x0"),
            db.verify,
            db.backup,
            lambda: db.append_message("s0", "user", "more"),
        ):
            with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
                verb()


def test_sessions_are_recovered_from_their_indexes_and_messages(store: Path) -> None:
    before = everything(store)
    zero(store, "sessions")
    with pytest.raises(errors.StoreDamaged):
        everything(store)
    report = repaired(store)
    after = everything(store)
    assert after == before, "title, source and every message are known without the row"
    assert any("part of its row" in line for line in report.lost)
    assert_whole(store)
    with SessionDB(store) as db:
        row = db.get_session("s4")
        assert row is not None
        assert (row["message_count"], row["tool_call_count"]) == (MESSAGES, 5)


def test_sessions_whose_rows_and_indexes_are_lost_have_the_source_unknown(store: Path) -> None:
    before = everything(store)
    with sql(store) as connection:
        names = [
            r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE tbl_name = 'sessions'")
        ]
        pages = {
            p
            for name in names
            for kind in ("leaf", "internal")
            for (p,) in connection.execute(PAGES, (name, kind))
        }
    for page in pages:
        overwrite(store, page)
    repaired(store)
    after = everything(store)
    assert {name: messages for name, (_, _, messages) in after.items()} == {
        name: messages for name, (_, _, messages) in before.items()
    }
    assert {(title, source) for title, source, _ in after.values()} == {(None, "unknown")}
    assert_whole(store)


def test_children_of_a_lost_session_are_kept(store: Path) -> None:
    with SessionDB(store) as db:
        db.create_session("empty", "cli")
        db.create_session("child", "cli", parent_session_id="empty")
        db.append_message("child", "user", "still here")
    with sql(store) as connection:
        connection.execute("PRAGMA foreign_keys=OFF").fetchall()
        connection.execute("DELETE FROM sessions WHERE id = 'empty'").fetchall()
    zero(store, "messages", at=2)
    repaired(store)
    with SessionDB(store) as db:
        row = db.get_session("child")
        assert row is not None
        assert row["parent_session_id"] is None
        assert [m["content"] for m in db.get_messages("child")] == ["still here"]
    assert_whole(store)


def test_the_readable_part_of_a_cut_message_is_kept(store: Path) -> None:
    with sql(store) as connection:
        chain = [row[0] for row in connection.execute(PAGES, ("messages", "overflow"))]
    before = everything(store)
    overwrite(store, chain[len(chain) // 2])
    report = repaired(store)
    after = everything(store)
    whole, cut = before["s3"][2].pop(), after["s3"][2].pop()
    assert after == before
    assert 40_000 < len(cut["content"]) < len(whole["content"])
    assert whole["content"].startswith(cut["content"])
    assert (cut["id"], cut["role"], cut["timestamp"]) == (whole["id"], "user", whole["timestamp"])
    assert any(f"message {cut['id']} of session s3" in line for line in report.lost)
    assert_whole(store)


def test_bytes_that_are_not_text_are_marked_and_the_rest_is_kept(store: Path) -> None:
    data = store.read_bytes()
    at = data.index(b"s4 message7 zebra4x7")
    store.write_bytes(data[: at + 3] + b"\xff\xfe" + data[at + 5 :])
    report = repaired(store)
    with SessionDB(store) as db:
        assert db.get_messages("s4")[7]["content"].startswith("s4 \ufffd\ufffdssage7 zebra4x7")
    assert "characters of 1 text," in report.lost[0]
    assert_whole(store)


def test_a_lost_page_of_the_schema(store: Path) -> None:
    before = everything(store)
    for page in pages_of(store, "sqlite_schema"):
        overwrite(store, page)
    repaired(store)
    after = everything(store)
    assert {name: len(row[2]) for name, row in after.items()} == {
        name: len(row[2]) for name, row in before.items()
    }
    assert after == before
    assert_whole(store)


def test_a_lost_first_page(store: Path) -> None:
    before = everything(store)
    overwrite(store, 1)
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(store)
    repaired(store)
    assert everything(store) == before
    assert_whole(store)


def test_deleted_rows_are_not_recovered(store: Path) -> None:
    # deleted by another program, which leaves the bytes of deleted rows in the file
    with sql(store) as connection:
        connection.execute("PRAGMA secure_delete=OFF").fetchall()
        connection.execute("DELETE FROM messages WHERE session_id = 's1'").fetchall()
    zero(store, "messages", at=-1)
    repaired(store)
    with SessionDB(store) as db:
        assert db.get_messages("s1") == []
        assert db.search_messages("zebra1x3") == []


def test_tables_and_columns_of_other_programs_are_kept(store: Path) -> None:
    with sql(store) as connection:
        connection.execute(
            "CREATE TABLE notes (who TEXT, what TEXT, made INTEGER GENERATED ALWAYS AS (length(what)) STORED);"
            "CREATE INDEX notes_who ON notes (who); CREATE VIEW short AS SELECT who FROM notes;"
            "CREATE TABLE pairs (v TEXT, k TEXT, PRIMARY KEY (k)) WITHOUT ROWID;"
            "ALTER TABLE messages ADD COLUMN mood TEXT DEFAULT 'calm';"
            "UPDATE messages SET mood = 'glad' WHERE id = 3;"
            "INSERT INTO notes (who, what) VALUES ('ann', 'one'), ('bob', 'two'); INSERT INTO pairs VALUES ('1', 'a');"
        ).fetchall()
    zero(store, "messages", at=6)
    repaired(store)
    with sql(store) as connection:
        assert connection.execute("SELECT who, what, made FROM notes").fetchall() == [
            ("ann", "one", 3),
            ("bob", "two", 3),
        ]
        assert connection.execute("SELECT k, v FROM pairs").fetchall() == [("a", "1")]
        assert connection.execute("SELECT id, mood FROM messages WHERE id < 5").fetchall() == [
            (1, "calm"), (2, "calm"), (3, "glad"), (4, "calm"),
        ]  # fmt: skip
        assert connection.execute("SELECT count(*) FROM short").fetchall() == [(2,)]
    assert_whole(store)


def test_tables_whose_names_only_look_like_those_of_a_search_table_are_kept(store: Path) -> None:
    with sql(store) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE notes USING fts5(what); INSERT INTO notes VALUES ('an idea');"
            "CREATE TABLE notes_archive (what TEXT); INSERT INTO notes_archive VALUES ('an old idea');"
            "CREATE INDEX notes_archive_what ON notes_archive (what);"
            "CREATE TABLE messages_fts_mine (what TEXT); INSERT INTO messages_fts_mine VALUES ('mine');"
            "CREATE INDEX mine_what ON messages_fts_mine (what)"
        ).fetchall()
    zero(store, "messages", at=6)
    report = repaired(store)
    with sql(store) as connection:
        assert connection.execute("SELECT what FROM notes_archive").fetchall() == [("an old idea",)]
        assert connection.execute("SELECT what FROM messages_fts_mine").fetchall() == [("mine",)]
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert {"notes_archive_what", "mine_what"} <= names
    assert not {"notes", "notes_data", "notes_content"} & names
    assert [line for line in report.lost if "notes" in line] == [
        "virtual table notes: the program that created it must create it again"
    ]
    assert_whole(store)


def test_rows_of_other_programs_that_cannot_be_stored_again_are_reported(store: Path) -> None:
    with sql(store) as connection:
        connection.execute(
            "CREATE TABLE shelf (book TEXT, CHECK (book <> 'lost')); CREATE TABLE marks ("
            "message INTEGER REFERENCES messages(id)); INSERT INTO marks SELECT id FROM messages;"
            "PRAGMA ignore_check_constraints=ON; INSERT INTO shelf VALUES ('lost'), ('found')"
        ).fetchall()
    zero(store, "messages", at=6)
    report = repaired(store)
    assert "1 row of shelf, which violate its constraints" in report.lost
    assert [line for line in report.lost if "marks" in line and "refer to" in line]
    with sql(store) as connection:
        assert connection.execute("SELECT book FROM shelf").fetchall() == [("found",)]
        assert connection.execute("SELECT count(*) FROM marks").fetchall() == [(SESSIONS * MESSAGES + 1,)]
    assert_whole(store)
