"""In layout 2, every column of the documented tables is text, a number or NULL. Stores of layout 1 are
migrated to it.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes.store.sqlite.migrations import LAYOUT
from hermes_state import SessionDB
from tests.store.sqlite.former_layouts import make_layout_1
from tests.store.sqlite.test_migrations import shape

PROGRESS = "SELECT name, value FROM index_progress ORDER BY name"
NOTED = "SELECT (SELECT count(*) FROM changed_messages), (SELECT count(*) FROM changed_sessions)"
KINDS = "SELECT typeof(uid), count(*) FROM messages GROUP BY 1"


def ask(path: Path, sql: str) -> list[Any]:
    """Run a query with the SQLite library that the store uses, so that the store can stay open."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return connection.execute(sql).fetchall()


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def fill(path: Path, sessions: int = 3, messages: int = 8) -> None:
    with SessionDB(path) as db:
        for session in range(sessions):
            db.create_session(f"s{session}", "cli", model="m", model_config={"temperature": 0.5})
            for number in range(messages):
                role = "assistant" if number % 2 else "user"
                db.append_message(f"s{session}", role, f"pelican {session} says {number}")
        db.append_message("s0", "user", [{"type": "text", "text": "structured heron"}])
        db.optimize()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old" / "state.db"
    fill(path)
    make_layout_1(path)
    return path


def hits(db: SessionDB) -> list[tuple[Any, ...]]:
    return [
        (hit["id"], hit["session_id"], hit["snippet"])
        for word in ("pelican", "heron", "says 3")
        for hit in db.search_messages(word, limit=50)
    ]


# --- the migration


def test_a_store_of_layout_1_keeps_messages_uids_and_index(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    with SessionDB(path) as db:
        messages, found = list(db.export_all()), hits(db)
    wanted = shape(path)
    uids = make_layout_1(path)
    assert ask(path, KINDS) == [("blob", len(uids))]
    progress = ask(path, PROGRESS)

    with SessionDB(path) as db:
        assert ask(path, PROGRESS) == progress, "the index was not filled again"
        assert ask(path, NOTED) == [(0, 0)], "no message counts as changed"
        results = db.search_messages("pelican", limit=50)
        assert results.indexing is None
        assert hits(db) == found
        assert list(db.export_all()) == messages
        assert db.verify().ok
    assert dict(ask(path, "SELECT id, uid FROM messages")) == uids
    assert shape(path) == wanted
    assert ask(path, "PRAGMA user_version") == [(LAYOUT,)]


def test_triggers_of_another_program_do_not_run_and_stay(old: Path) -> None:
    change(
        old,
        """CREATE TABLE audit (id INTEGER);
        CREATE TRIGGER audited AFTER UPDATE ON messages BEGIN INSERT INTO audit VALUES (new.id); END""",
    )
    SessionDB(old).close()
    assert ask(old, "SELECT count(*) FROM audit") == [(0,)]
    change(old, "UPDATE messages SET token_count = 1 WHERE id = 1")
    assert ask(old, "SELECT id FROM audit") == [(1,)]


def test_layout_1_is_read_without_writing(old: Path) -> None:
    before = old.read_bytes()
    with SessionDB(old, read_only=True) as db:
        first = db.get_messages("s1")[0]
        assert first["content"] == "pelican 1 says 0"
        assert len(first["uid"]) == 32
        assert len(db.search_messages("heron")) == 1
        json.dumps(list(db.export_all()))
    assert old.read_bytes() == before


def test_a_store_that_lost_its_marks_gets_uids_as_text_too(old: Path) -> None:
    change(old, "PRAGMA application_id = 0; PRAGMA user_version = 0")
    uids = {number: uid.hex() for number, uid in ask(old, "SELECT id, uid FROM messages")}
    SessionDB(old).close()
    assert dict(ask(old, "SELECT id, uid FROM messages")) == uids


KILLED = """
import os, signal, sys
from pathlib import Path
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.migrations import migrate

path, rows = Path(sys.argv[1]), int(sys.argv[2])
connection = connect(path)
connection.execute("PRAGMA cache_size=5").fetchall()  # pages of the transaction reach the log before its end
seen = 0
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def count(*change):
    global seen
    seen += 1
    if seen == rows:
        die()
connection.set_update_hook(count)
connection.set_commit_hook(lambda: die() if seen else False)
migrate(path, connection)
"""


@pytest.mark.parametrize("rows", [1, 300, 100_000])
def test_killed_in_the_middle_nothing_is_lost(tmp_path: Path, rows: int) -> None:
    """The process is killed after `rows` migrated rows. The last value of `rows` kills it during the
    commit."""
    path = tmp_path / "state.db"
    fill(path, sessions=4, messages=100)
    uids = make_layout_1(path)
    child = subprocess.run([sys.executable, "-c", KILLED, path, str(rows)], check=False, timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert ask(path, "PRAGMA user_version") == [(1,)]
    assert {number: uid.hex() for number, uid in ask(path, "SELECT id, uid FROM messages")} == uids
    with SessionDB(path) as db:
        assert dict(ask(path, "SELECT id, uid FROM messages")) == uids
        assert db.verify().ok


# --- copies in layout 1


def test_a_backup_in_the_old_form_is_restored_and_migrated(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=1)
    uids = {number: uid.hex() for number, uid in ask(old, "SELECT id, uid FROM messages")}
    SessionDB.restore_file(path, old)
    with SessionDB(path) as db:
        assert dict(ask(path, "SELECT id, uid FROM messages")) == uids
        assert len(db.search_messages("heron")) == 1
        assert db.verify().ok


def test_purge_recognises_copies_in_the_old_form(tmp_path: Path) -> None:
    """The purge recognises a copy by the uids of its messages. The copy may have another name and other start
    times."""
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        for name, word in (("secret", "quetzalcoatlus"), ("other", "pelican")):
            db.create_session(name, "cli")
            db.append_message(name, "user", f"the word is {word}")
        own, named = db.backup().path, db.backup(tmp_path / "mine.db").path
    for copy in (own, named):
        make_layout_1(copy)
    change(named, "UPDATE sessions SET started_at = 1")
    with SessionDB(path) as db:
        assert db.delete_session("secret", purge=True)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"quetzal" in file.read_bytes()]
    with SessionDB(named) as db:
        assert [row["id"] for row in db.list_sessions_rich()] == ["other"]


def test_an_export_in_the_old_form_is_the_same_conversation(old: Path, tmp_path: Path) -> None:
    with SessionDB(old, read_only=True) as db:
        exported = json.loads(json.dumps(list(db.export_all())))
    with SessionDB(tmp_path / "new.db") as db:
        first = db.import_sessions(exported)
        again = db.import_sessions(exported)
        count = db.message_count()
    assert (first.messages, again.messages) == (count, 0)
    uids = ask(old, "SELECT lower(hex(uid)) FROM messages ORDER BY session_id, id")
    assert ask(tmp_path / "new.db", "SELECT uid FROM messages ORDER BY session_id, id") == uids


@pytest.mark.parametrize("named", [True, False])
def test_rows_put_back_from_an_old_copy_get_text_at_once(old: Path, tmp_path: Path, named: bool) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("own", "cli")
        db.append_message("own", "user", "a word of my own")
    columns = "id, session_id, role, content, timestamp, uid"
    columns = columns if named else columns.removeprefix("id, ")
    change(
        path,
        f"""ATTACH '{old}' AS old;
        INSERT INTO sessions SELECT * FROM old.sessions;
        INSERT INTO messages ({columns}) SELECT {columns} FROM old.messages WHERE old.messages.id > 1""",
    )
    assert [kind for kind, _count in ask(path, KINDS)] == ["text"]
    with SessionDB(path) as db:
        assert len(db.search_messages("heron")) == 1
        assert db.verify().ok
    put_back = ask(path, "SELECT uid FROM messages WHERE session_id <> 'own' ORDER BY session_id, id")
    wanted = ask(old, "SELECT lower(hex(uid)) FROM messages WHERE id > 1 ORDER BY session_id, id")
    assert put_back == wanted


BYTES = "UPDATE messages SET uid = x'0123456789abcdef0123456789abcdef' WHERE id = 2"
SAME = "0123456789abcdef" * 2


def test_uids_that_another_program_updates_are_text_at_once(tmp_path: Path) -> None:
    """An older version of this program has the store open. It writes uids as bytes when it replaces messages.
    A trigger converts them to text."""
    path = tmp_path / "state.db"
    fill(path, sessions=1)
    change(path, BYTES)
    assert ask(path, "SELECT uid FROM messages WHERE id = 2") == [(SAME,)]


def test_uids_that_no_trigger_converted_are_reported_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=1)
    with closing(apsw.Connection(str(path))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.execute(BYTES).fetchall()
    with SessionDB(path) as db:
        assert "uid of 1 message, stored as bytes" in db.verify().drift
        assert db.get_messages("s0")[1]["uid"] == SAME
    done = SessionDB.repair_file(path)
    assert done.ok
    assert "uids stored as bytes, converted to text: 1" in done.done
    assert ask(path, "SELECT uid FROM messages WHERE id = 2") == [(SAME,)]


def test_a_damaged_file_in_the_old_layout_is_repaired_with_its_uids(old: Path, tmp_path: Path) -> None:
    uids = {number: uid.hex() for number, uid in ask(old, "SELECT id, uid FROM messages")}
    [(page,)] = ask(old, "SELECT rootpage FROM sqlite_master WHERE name = 'idx_messages_session'")
    [(size,)] = ask(old, "PRAGMA page_size")
    with old.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert SessionDB.repair_file(old).ok
    assert dict(ask(old, "SELECT id, uid FROM messages")) == uids


def test_repair_migrates_an_old_layout(old: Path) -> None:
    looked = SessionDB.repair_file(old, check_only=True)
    assert looked.ok, "an older layout is no fault"
    assert any("its layout is an older one" in line for line in looked.done)
    assert ask(old, "PRAGMA user_version") == [(1,)]
    assert SessionDB.repair_file(old).ok
    assert ask(old, "PRAGMA user_version") == [(LAYOUT,)]
    assert [kind for kind, _count in ask(old, KINDS)] == ["text"]


# --- every column of the documented tables, after the use of every verb

DOCUMENTED = (
    *("sessions", "messages", "state_meta", "schema_version", "routing"),
    *("telegram_dm_topic_mode", "telegram_dm_topic_bindings"),
)


def test_every_value_of_the_documented_tables_is_json(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path, spool=True) as db:
        db.create_session(
            "a", "telegram", model="m", model_config={"x": [1, None]}, system_prompt="p", user_id="7"
        )
        db.append_message("a", "user", "plain")
        db.append_message("a", "user", b"bytes \xff")
        db.append_message(
            "a", "assistant", [{"type": "text", "text": "structured"}], tool_calls=[{"id": "1"}]
        )
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 2000}}
        db.append_message("a", "user", [image], platform_message_id="12")
        db.append_message("a", "assistant", None, reasoning="r", reasoning_details=[{"t": 1}], token_count=3)
        db.append_message("a", "tool", "result", tool_name="t", tool_call_id="1")
        db.replace_messages("a", [*db.get_messages("a"), {"role": "user", "content": "one more"}])
        db.update_token_counts("a", input_tokens=3, model="m", estimated_cost_usd=0.1)
        db.set_session_title("a", "a title")
        db.set_meta("key", "value")
        db.update_system_prompt("a", "other")
        db.enable_telegram_topic_mode(chat_id="1", user_id="7")
        db.bind_telegram_topic(chat_id="1", thread_id="2", user_id="7", session_key="k", session_id="a")
        db.routing.route("k", "telegram", "dm", 1, None, None, "a", {"name": "Ann"})
        db.request_handoff("a", "telegram")
        db.create_session("b", "cli", parent_session_id="a")
        target = db.append_message("b", "user", "to be taken back")
        db.rewind_to_message("b", target)
        child = db.begin_continuation("a", summary="what was said")
        exported = json.loads(json.dumps(list(db.export_all())))
        json.dumps([db.get_messages(one) for one in ("a", "b", str(child))])
        json.dumps(db.list_sessions_rich(include_children=True))
        db.end_session("b", "done")
        db.trash_session("b")
    with SessionDB(tmp_path / "other.db") as other:
        other.import_sessions(exported)
    shutil.copy(path, tmp_path / "copy.db")
    for file in (path, tmp_path / "other.db", tmp_path / "copy.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.row_factory = sqlite3.Row
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            for table in tables & {*DOCUMENTED}:
                rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
                json.dumps(rows)
                for row in rows:
                    assert not [name for name, value in row.items() if isinstance(value, bytes)], table
                declared = {row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
                assert declared <= {"TEXT", "INTEGER", "REAL"}, table
    assert {*DOCUMENTED} <= {row[0] for row in ask(path, "SELECT name FROM sqlite_master")}


def test_uids_are_32_digits_in_order(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=1, messages=3)
    uids = [row[0] for row in ask(path, "SELECT uid FROM messages ORDER BY id")]
    assert all(len(uid) == 32 and uid == bytes.fromhex(uid).hex() and uid[12] == "7" for uid in uids)
    assert len({*uids}) == len(uids)
    assert [uid[:12] for uid in uids] == sorted(uid[:12] for uid in uids)


@pytest.mark.parametrize("uid", ["'no uid at all, but 32 characters'", "17", "1.5", "x'ff00'"])
def test_other_values_in_place_of_a_uid_prevent_nothing(tmp_path: Path, uid: str) -> None:
    path = tmp_path / "state.db"
    fill(path, sessions=1, messages=2)
    change(path, f"UPDATE messages SET uid = {uid}")
    with SessionDB(path) as db:
        listed = {row["uid"] for row in db.get_messages("s0")}
        assert listed <= {None, "17", "ff00"}
        exported = list(db.export_all())
        json.dumps(exported)
        db.begin_continuation("s0", "a summary", [1, 2])
        json.dumps(list(db.export_all()))
    with SessionDB(tmp_path / "other.db") as db:
        db.import_sessions(exported)
        assert db.message_count() == 3
