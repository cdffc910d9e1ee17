"""Damage done to real files: what still works, what is refused, and what `repair` brings back."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes_state import SessionDB

SESSIONS = 6
MESSAGES = 50
PAGE = 4096
SCHEMAS = Path(__file__).parents[1] / "reference_schemas"

PAGES = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path"


@pytest.fixture
def store(home: Path) -> Path:
    """A closed store of six titled conversations, with one message that spans many pages."""
    path = home / "state.db"
    with SessionDB(path) as db:
        for number in range(SESSIONS):
            name = f"s{number}"
            db.create_session(name, "cli", model="m", system_prompt=f"prompt of {name} " * 20)
            db.set_session_title(name, f"Title {number}")
            for at in range(MESSAGES):
                role = "user" if at % 2 == 0 else "assistant"
                calls = (
                    [{"id": f"c{at}", "function": {"name": "ls", "arguments": "{}"}}]
                    if at % 10 == 1
                    else None
                )
                db.append_message(
                    name, role, f"{name} message{at} zebra{number}x{at} " + "words " * 40, tool_calls=calls
                )
        db.append_message("s3", "user", "giant " * 20_000)
        db.set_meta("colour", "green")
        db.search_messages("zebra0x0")
    return path


@contextmanager
def sql(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


def pages_of(path: Path, name: str, kind: str = "leaf") -> list[int]:
    with sql(path) as connection:
        return [row[0] for row in connection.execute(PAGES, (name, kind))]


def overwrite(path: Path, page: int, data: bytes = b"\0" * PAGE) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(data)


def cut_in_half(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE + PAGE // 2)
        file.write(bytes(PAGE // 2))


def blank_entries(path: Path, page: int) -> None:
    """Leave of a page only how many entries it has, and where they were."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        data = file.read(PAGE)
        file.seek((page - 1) * PAGE)
        file.write(data[: 8 + 2 * int.from_bytes(data[3:5], "big")].ljust(PAGE, b"\0"))


def zero(path: Path, name: str, kind: str = "leaf", at: int = 0) -> int:
    pages = pages_of(path, name, kind)
    assert not os.path.exists(f"{path}-wal"), "the log must be folded in before a page is destroyed"
    overwrite(path, pages[at])
    return pages[at]


def ids_on_page(path: Path, page: int) -> set[int]:
    """Message ids on a leaf page of `messages`, found by destroying it in a copy and asking what is left."""
    from hermes.store.sqlite.pages import Image

    descriptor = os.open(path, os.O_RDONLY)
    try:
        image = Image(descriptor, None)
        return {row.rowid for row in image.rows(page, image.page(page))}
    finally:
        os.close(descriptor)


def everything(path: Path) -> dict[str, Any]:
    """Sessions and messages as callers see them."""
    with SessionDB(path) as db:
        return {
            row["id"]: (row["title"], row["source"], db.get_messages(row["id"]))
            for row in db.search_sessions(limit=1000)
        }


def folder(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


def child(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from hermes_state import SessionDB\nimport sys\npath = sys.argv[1]\n" + code,
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )


def repaired(path: Path, **options: bool) -> Any:
    report = SessionDB.repair_file(path, **options)
    assert report.ok, report.lines()
    return report


def assert_whole(path: Path) -> None:
    with SessionDB(path) as db:
        health = db.verify()
        assert health.ok, health.lines()


def stored_messages(path: Path) -> dict[int, Any]:
    return {message["id"]: message for _, _, messages in everything(path).values() for message in messages}


# -------------------------------------------------------------------- the search index


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
        db.search_messages("zebra2x7")  # it may not write, so it says so
    with SessionDB(store) as db:
        assert len(db.search_messages("zebra2x7")) == 1
        db.optimize()
    assert_whole(store)


def test_a_broken_index_keeps_nobody_from_deleting(store: Path) -> None:
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


def test_repair_builds_a_broken_index_anew_in_place(store: Path) -> None:
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


def test_repair_puts_derived_columns_right(store: Path) -> None:
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


def test_nothing_wrong_says_so_and_clears_an_old_mark(store: Path) -> None:
    before = everything(store)
    Path(f"{store}.damaged").write_text("seen once\n")
    with pytest.raises(errors.StoreDamaged, match="seen once"):
        SessionDB(store)
    report = repaired(store)
    assert "nothing is wrong" in report.lines()[0]
    assert (report.lost, report.kept) == ((), None)
    assert everything(store) == before


# -------------------------------------------------------------------- the truth


def test_a_lost_page_of_messages_stops_writing_everywhere_and_is_named(store: Path) -> None:
    zero(store, "messages", at=5)
    with SessionDB(store) as db:
        told = []
        for number in range(SESSIONS):
            try:
                assert len(db.get_messages(f"s{number}")) >= MESSAGES  # never less than there was
            except errors.StoreDamaged as problem:
                told.append(str(problem))
        assert told
        assert "malformed" in told[0]
        assert "hermes sessions repair" in told[0]
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
    told = sum(int(line.split(": ")[1].split(" of its ")[0]) for line in report.lost if " of its " in line)
    assert told == len(gone)
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
    with sql(store) as connection:  # another program, which leaves the counter as it was
        connection.execute("DELETE FROM messages WHERE session_id = 's1'").fetchall()
    with SessionDB(store) as db:
        for name in ("empty", "s1"):
            assert db.get_messages(name) == []
            assert db.get_messages_as_conversation(name) == []
        assert db.verify().damage == ()


def test_half_a_page_of_attachments_is_told(store: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 6000}}
    with SessionDB(store) as db:
        db.append_message("s1", "user", [picture])
    cut_in_half(store, pages_of(store, "blobs")[0])
    with SessionDB(store) as db:
        assert any("holds other bytes than were stored" in line for line in db.verify().damage)


def test_a_schema_that_is_lost_while_the_process_runs_is_told_by_every_verb(store: Path) -> None:
    overwrite(
        store, pages_of(store, "sqlite_schema")[0]
    )  # which the process knows: the fixture has opened it
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


def test_sessions_come_back_from_their_indexes_and_messages(store: Path) -> None:
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


def test_sessions_whose_rows_and_indexes_are_lost_stand_as_unknown(store: Path) -> None:
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


def test_bytes_that_are_no_text_are_marked_and_the_rest_is_kept(store: Path) -> None:
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


def test_rows_that_were_deleted_do_not_come_back(store: Path) -> None:
    with sql(store) as connection:  # another program, whose deleted pages keep their bytes
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
        "virtual table notes: let the program that made it make it again"
    ]
    assert_whole(store)


def test_rows_of_other_programs_that_cannot_be_stored_again_are_told(store: Path) -> None:
    with sql(store) as connection:
        connection.execute(
            "CREATE TABLE shelf (book TEXT, CHECK (book <> 'lost')); CREATE TABLE marks ("
            "message INTEGER REFERENCES messages(id)); INSERT INTO marks SELECT id FROM messages;"
            "PRAGMA ignore_check_constraints=ON; INSERT INTO shelf VALUES ('lost'), ('found')"
        ).fetchall()
    zero(store, "messages", at=6)
    report = repaired(store)
    assert "1 row of shelf, which its rules do not allow" in report.lost
    assert [line for line in report.lost if "marks" in line and "point to" in line]
    with sql(store) as connection:
        assert connection.execute("SELECT book FROM shelf").fetchall() == [("found",)]
        assert connection.execute("SELECT count(*) FROM marks").fetchall() == [(SESSIONS * MESSAGES + 1,)]
    assert_whole(store)


# -------------------------------------------------------------------- odd values that other programs left


ODD_ROWS = {
    "bytes for content": (
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('s0', 'user', x'6f6b61706920ff', 1.0)"
    ),
    "bytes for a tool": (
        "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp)"
        " VALUES ('s0', 'tool', 'okapi', x'ff', x'fe', 1.0)"
    ),
    "bytes for a role": (
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s0', x'ff', 'okapi', 1.0)"
    ),
    "bytes for an id": (
        "INSERT INTO sessions (id, source, started_at) VALUES (x'0102', 'cli', 1.0);"
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (x'0102', 'user', 'okapi', 1.0)"
    ),
    "a time in words": (
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('s0', 'user', 'okapi', '2024-05-01T10:00:00')"
    ),
    "times in words of a session": (
        "INSERT INTO sessions (id, source, started_at) VALUES ('w', 'cli', '2024-05-01T10:00:00');"
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('w', 'user', 'okapi', datetime('now'))"
    ),
    "counts in words": (
        "UPDATE sessions SET message_count = 'many', tool_call_count = 'some' WHERE id = 's0';"
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s0', 'user', 'okapi', 1.0)"
    ),
}


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_an_odd_row_is_found_listed_and_exported_like_any_other(store: Path, odd: str) -> None:
    with sql(store) as connection:
        connection.execute(ODD_ROWS[odd]).fetchall()
    with SessionDB(store) as db:
        for _ in range(2):  # read where the index has not been, then from the index
            found = db.search_messages("okapi")
            assert len(found) == 1
            assert "okapi" in found[0]["snippet"]
            assert len(db.search_sessions_ranked("okapi")) == 1
            db.optimize()
        owner = found[0]["session_id"]
        assert owner in {row["id"] for row in db.list_sessions_rich(order_by_last_active=True)}
        exported = db.export_session(owner)
        assert exported is not None
        assert db.get_messages(owner) == exported["messages"]
        assert db.get_messages_as_conversation(owner)[-1]["content"].startswith("okapi")
        db.append_message(owner, "user", "goes on")
        assert len(db.search_messages("okapi")) == 1
        row = db.get_session(owner)
        assert row is not None
        assert isinstance(row["last_active"], float)
        assert db.verify().ok, db.verify().lines()
    assert "nothing is wrong" in repaired(store).lines()[0]
    assert_whole(store)


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_an_odd_row_keeps_nothing_else_from_being_saved(store: Path, odd: str) -> None:
    with sql(store) as connection:
        connection.execute(ODD_ROWS[odd]).fetchall()
    before = stored_messages(store)
    gone = ids_on_page(store, pages_of(store, "messages")[3])
    zero(store, "messages", at=3)
    repaired(store)
    assert stored_messages(store) == {number: row for number, row in before.items() if number not in gone}
    with SessionDB(store) as db:
        assert len(db.search_messages("okapi")) == 1
    assert_whole(store)


def test_a_session_without_an_id_is_no_obstacle(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    with sql(path) as connection:
        connection.execute((SCHEMAS / "v11.sql").read_text()).fetchall()
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES (NULL, 'cli', 1.0)")
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('a', 'cli', 2.0)")
    with SessionDB(path) as db:
        for at in range(200):
            db.append_message("a", "user", f"kept{at} " + "words " * 40)
        assert db.verify().ok, db.verify().lines()
    assert "nothing is wrong" in repaired(path).lines()[0]
    zero(path, "messages", at=2)
    report = repaired(path)
    with SessionDB(path) as db:
        assert db.session_count() == 2 or "1 row of sessions, which its rules do not allow" in report.lost
        assert len(db.get_messages("a")) > 150
    assert_whole(path)


def test_text_of_another_encoding_is_carried_over(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    with sql(path) as connection:
        connection.execute("PRAGMA encoding='UTF-16'").fetchall()
        connection.execute((SCHEMAS / "v11.sql").read_text()).fetchall()
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('höhle', 'cli', 1.0)")
        for at in range(300):
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('höhle', 'user', ?, ?)",
                (f"日本{at} " + "text " * 50, float(at)),
            )
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    with pytest.raises(errors.MigrationFailed, match=r"UTF-16.*hermes sessions repair"):
        SessionDB(path)
    whole = path.read_bytes()
    looked = SessionDB.repair_file(path, check_only=True)
    assert not looked.ok
    assert "UTF-16" in looked.lines()[0]
    report = repaired(path)
    assert report.lost == ()
    with SessionDB(path) as db:
        assert [m["content"].split()[0] for m in db.get_messages("höhle")] == [f"日本{n}" for n in range(300)]
        assert db.get_messages("höhle")[0]["timestamp"] == 0.0
        assert len(db.search_messages("日本299")) == 1
    assert_whole(path)

    path.write_bytes(whole)
    page = pages_of(path, "messages")[3]
    gone = ids_on_page(path, page)
    overwrite(path, page)
    repaired(path)
    with SessionDB(path) as db:
        assert [m["id"] for m in db.get_messages("höhle")] == [n for n in range(1, 301) if n not in gone]
    assert_whole(path)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_overwritten_the_rest_comes_back(store: Path, seed: int) -> None:
    """Several pages at once, zeroed, filled with noise, or with another page's bytes."""
    chance = random.Random(seed)
    before = stored_messages(store)
    count = store.stat().st_size // PAGE
    hit = set(chance.sample(range(1, count + 1), chance.randint(1, 8)))
    safe = {
        number
        for page in pages_of(store, "messages")
        if page not in hit
        for number in ids_on_page(store, page)
        if len(before[number]["content"]) < 1000
    }
    for page in hit:
        other = chance.choice([p for p in range(1, count + 1) if p not in hit])
        with store.open("rb") as file:
            file.seek((other - 1) * PAGE)
            twin = file.read(PAGE)
        overwrite(store, page, chance.choice([b"\0" * PAGE, chance.randbytes(PAGE), twin]))
    repaired(store)
    after = stored_messages(store)
    assert {number: after.get(number) for number in safe} == {number: before[number] for number in safe}
    assert set(after) <= set(before)
    assert_whole(store)


# -------------------------------------------------------------------- the file as a whole


def test_an_empty_file_is_never_an_empty_history(store: Path) -> None:
    store.write_bytes(b"")
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        SessionDB(store)
    report = SessionDB.repair_file(store)
    assert not report.ok
    assert "nothing in it can be read" in report.lines()[0]
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


@pytest.mark.parametrize("part", [0.5, 0.7, 0.95])
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


def crashed(path: Path, code: str) -> None:
    """Write in another process and die, so that the log stays."""
    done = child(
        f"import os, signal\ndb = SessionDB(path)\n{code}\nos.kill(os.getpid(), signal.SIGKILL)", path
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert os.path.getsize(f"{path}-wal") > 0


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


def test_an_older_store_that_is_damaged_comes_back_current(home: Path) -> None:
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


# -------------------------------------------------------------------- who may repair, and when


HOLDER = """import sys, time
from hermes_state import SessionDB
db = SessionDB(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("damage", ["none", "page", "garbage", "gone"])
def test_repair_is_refused_while_another_process_holds_the_store(store: Path, damage: str) -> None:
    page = pages_of(store, "messages")[2]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(store)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        if damage == "page":
            overwrite(store, page)
        elif damage == "garbage":
            overwrite(store, 1, b"garbage" * 100)
        elif damage == "gone":
            Path(f"{store}-wal").write_bytes(b"x" * 100)
            store.unlink()
        before = folder(store)
        for check_only in (True, False):
            with pytest.raises(errors.StoreBusy):
                SessionDB.repair_file(store, check_only=check_only)
        assert {name: data for name, data in folder(store).items() if not name.endswith("-shm")} == {
            name: data for name, data in before.items() if not name.endswith("-shm")
        }
    finally:
        holder.kill()
        holder.communicate()


def test_repair_is_refused_while_this_process_holds_the_store(store: Path) -> None:
    with SessionDB(store) as db:
        with pytest.raises(errors.StoreBusy):
            SessionDB.repair_file(store)
        db.append_message("s0", "user", "still mine")
        assert db.get_messages("s0")[-1]["content"] == "still mine"


REPAIRER = """import os, sys
from pathlib import Path
from hermes.store.sqlite import opening, salvage

name, moment = (*sys.argv[2:], "", "")[:2]

def dying(act):
    def act_and_die(*arguments):
        if moment == "after":
            act(*arguments)
        os.kill(os.getpid(), 9)
    return act_and_die

for place in (salvage, opening, os):
    if hasattr(place, name):
        setattr(place, name, dying(getattr(place, name)))
salvage.repair_file(Path(sys.argv[1]))
"""


@pytest.fixture
def damaged(store: Path, tmp_path: Path) -> tuple[Path, Path, dict[int, Any]]:
    """(the store, a copy of its folder, what is left of it): one page gone, and a message that is only in the log."""
    page = pages_of(store, "messages")[4]
    gone = ids_on_page(store, page)
    before = stored_messages(store)
    crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    overwrite(store, page)
    shutil.copytree(store.parent, tmp_path / "copy")
    return store, tmp_path / "copy", {number: row for number, row in before.items() if number not in gone}


def assert_repaired(store: Path, left: dict[int, Any]) -> None:
    repaired(store)
    after = stored_messages(store)
    newest = after.pop(max(after))
    assert after == left
    assert newest["content"] == "only in the log"
    assert_whole(store)
    assert list(store.parent.glob("*.new-*")) == []


def test_killed_between_any_two_steps_a_repair_can_be_done_again(
    damaged: tuple[Path, Path, dict[int, Any]],
) -> None:
    store, copy, left = damaged
    steps = ["mark_damaged", "keep_aside", "pwrite", "truncate", "fold_log", "unlink", "replace", "retire"]
    for step in [*steps, "clear_damage_mark"]:
        for moment in ("before", "after"):
            shutil.rmtree(store.parent)
            shutil.copytree(copy, store.parent)
            victim = subprocess.run([sys.executable, "-c", REPAIRER, str(store), step, moment], timeout=60)
            assert victim.returncode == -signal.SIGKILL, (step, moment)
            assert_repaired(store, left)


def test_killed_at_a_random_moment_a_repair_can_be_done_again(
    damaged: tuple[Path, Path, dict[int, Any]],
) -> None:
    store, copy, left = damaged
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", REPAIRER, str(store)], check=True, timeout=60)
    took = time.monotonic() - started
    chance = random.Random(7)
    for _ in range(8):
        shutil.rmtree(store.parent)
        shutil.copytree(copy, store.parent)
        victim = subprocess.Popen([sys.executable, "-c", REPAIRER, str(store)])
        time.sleep(chance.uniform(0.15, 1.0) * took)
        victim.kill()
        victim.wait()
        assert_repaired(store, left)


@pytest.mark.parametrize("damage", ["none", "index", "page", "garbage", "empty", "log"])
def test_looking_changes_nothing(store: Path, damage: str) -> None:
    if damage == "index":
        zero(store, "messages_fts_words_data", at=-1)
    elif damage == "page":
        zero(store, "messages", at=2)
    elif damage == "garbage":
        overwrite(store, 1, random.Random(1).randbytes(PAGE))
    elif damage == "empty":
        store.write_bytes(b"")
    elif damage == "log":
        crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    before = folder(store)
    report = SessionDB.repair_file(store, check_only=True)
    assert report.ok == (damage in ("none", "log")), report.lines()
    assert report.kept is None
    assert folder(store) == before
    if damage == "page":
        assert "messages can be read" in report.lines()[0]


def test_without_a_backup_only_the_new_file_is_left(store: Path) -> None:
    zero(store, "messages", at=2)
    report = repaired(store, keep_backup=False)
    assert report.kept is None
    assert sorted(file.name for file in store.parent.iterdir()) == ["state.db", "state.db.lock"]
    assert_whole(store)


def test_whoever_waited_for_the_old_file_is_told(store: Path) -> None:
    zero(store, "messages", at=2)
    waiting = os.open(store, os.O_RDONLY)
    try:
        repaired(store)
        assert not os.pread(waiting, 16, 0).startswith(b"SQLite format 3")
    finally:
        os.close(waiting)


def test_everything_a_repair_writes_is_private(store: Path) -> None:
    crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    overwrite(store, pages_of_quietly(store, "messages")[1])
    os.umask(0)
    repaired(store)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.parent.iterdir()}
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}
    with SessionDB(store):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.parent.iterdir()}
        assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}


def pages_of_quietly(path: Path, name: str) -> list[int]:
    """`pages_of` without folding the log in: on a copy."""
    copy = path.parent.parent / "copy.db"
    shutil.copyfile(path, copy)
    return pages_of(copy, name)
