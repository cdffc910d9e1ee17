"""Another program writes both tables with plain SQL while the product appends, indexes and searches. Derived
data stays correct.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.oracle import oracle_matches
from tests.stored_rows import read_dicts
from tests.survival.processes import LONG, Worker
from tests.survival.recount import Recount, decoded

FOREIGN_WRITER = Path(__file__).parents[1] / "store" / "sqlite" / "foreign_writer.py"
WORDS = (
    *("foreign", "program", "déjà", "naive", "FACADE", "端午", "龍舟", "데이터베이스", "before", "after"),
    *(
        "привет",
        "structured",
        "überall",
        "tool",
        "ours",
        "word7*",
        '"foreign program"',
        "foreign NOT program",
    ),
    *("facade OR привет", "ours 端午", "json", "call_f"),
)
RAW_MESSAGES = (
    "SELECT id, session_id, role, content, content_kind, tool_name, tool_calls, timestamp FROM messages"
)
RAW_SESSIONS = "SELECT * FROM sessions"


def check_exact(db: SessionDB) -> None:
    """Compare all derived data with the rows."""
    messages, sessions = read_dicts(db, RAW_MESSAGES), read_dicts(db, RAW_SESSIONS)
    known = {row["id"] for row in sessions}
    for query in WORDS:
        hits = db.search_messages(query, limit=100_000)
        assert hits.indexing is None
        found = [hit["id"] for hit in hits]
        expected = {row["id"] for row in messages if row["session_id"] in known and _matches(query, row)}
        assert len(found) == len(set(found)), query
        assert set(found) == expected, (query, set(found) ^ expected)

    # this applies the recorded changes, so the rows are read after it
    listed = db.list_sessions_rich(limit=-1)
    by_activity = db.list_sessions_rich(limit=-1, order_by_last_active=True)
    recount = Recount(read_dicts(db, RAW_SESSIONS), messages)
    assert _shown(listed) == recount.conversations(by_activity=False)
    assert _shown(by_activity) == recount.conversations(by_activity=True)
    every = [
        (row["id"], row["last_active"], row["preview"])
        for row in db.list_sessions_rich(limit=-1, include_children=True)
    ]
    assert every == recount.every(by_activity=False)
    active = [(row["id"], row["last_active"], row["preview"]) for row in db.search_sessions(limit=-1)]
    assert active == recount.every(by_activity=True)
    for session in recount.sessions.values():
        wanted = recount.must_have_relation(session)
        assert wanted is None or session["relation"] is not None, session["id"]
        assert db.get_conversation_root(session["id"]) == recount.root(session)["id"]
        assert db.get_compression_tip(session["id"]) == recount.tip(session)["id"]

    report = db.verify()
    assert report.drift == ()
    orphans = {f"messages without a session: {session}" for session in recount.orphans()}
    assert set(report.damage) <= orphans
    assert len(report.damage) == min(len(orphans), 20)  # the report has at most this number


def _matches(query: str, row: dict[str, Any]) -> bool:
    calls = row["tool_calls"]
    return oracle_matches(
        query, {**row, "content": decoded(row), "tool_calls": json.loads(calls) if calls else None}
    )


def _shown(rows: list[dict[str, Any]]) -> list[tuple[str, str, float, str]]:
    return [
        (row["id"], row.get("_lineage_root_id", row["id"]), row["last_active"], row["preview"])
        for row in rows
    ]


@pytest.mark.timeout(600 if LONG else 120)
@pytest.mark.full
def test_lists_and_searches_stay_exact_beside_a_foreign_writer(home: Path) -> None:
    path = home / "state.db"
    SessionDB(path).close()
    seconds = 6.0 if LONG else 1.2
    for seed in range(20 if LONG else 3):
        with ExitStack() as stack:
            ours = [stack.enter_context(Worker()) for _ in range(2)]
            for n, worker in enumerate(ours):
                worker.start("churn_for", path=str(path), me=f"p{n}", seconds=seconds, seed=seed * 10 + n)
            for worker in ours:
                worker.wait_for("open")
            foreign = subprocess.run(
                [sys.executable, str(FOREIGN_WRITER), str(path), str(seconds), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for worker in ours:
                worker.result()
        assert foreign.returncode == 0
        assert foreign.stdout.count("\n") >= 5
        with SessionDB(path) as db:
            check_exact(db)


def _foreign(path: Path, *statements: str) -> None:
    """Run plain SQL in another process, with the interpreter's SQLite and foreign keys off."""
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
    program += "for s in sys.argv[2:]: c.execute(s)\nc.close()"
    subprocess.run([sys.executable, "-c", program, str(path), *statements], check=True)


def test_a_foreign_row_without_an_updated_count_is_listed_correctly(db: SessionDB) -> None:
    """Scripts insert messages without updating `message_count`. The last activity of a session must not
    depend on that count."""
    db.create_session("s", "cli", started_at=1000.0)
    _foreign(
        db.db_path,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'from afar', 5000.0)",
    )
    check_exact(db)
    db.append_message("s", "user", "earlier", timestamp=2000.0)
    check_exact(db)


def test_a_foreign_delete_without_an_updated_count_updates_the_activity(db: SessionDB) -> None:
    db.create_session("s", "cli", started_at=5000.0)
    db.append_message("s", "user", "one", timestamp=6000.0)
    _foreign(db.db_path, "DELETE FROM messages")
    check_exact(db)
    db.append_message("s", "user", "two", timestamp=2000.0)
    check_exact(db)


def test_a_session_displaced_by_its_title_leaves_no_trace(db: SessionDB) -> None:
    """If titles are unique, OR REPLACE deletes the session that has the same title. No DELETE trigger runs
    for it."""
    db.create_session("parent", "cli", started_at=1000.0)
    db.append_message("parent", "user", "said by the parent", timestamp=1001.0)
    db.set_session_title("parent", "the title")
    db.end_session("parent", "compression")
    db.create_session("child", "cli", parent_session_id="parent")
    db.append_message("child", "user", "said by the child")
    db.create_session("other", "cli", started_at=900.0)
    db.append_message("other", "user", "said by the other")
    check_exact(db)
    _foreign(db.db_path, "UPDATE OR REPLACE sessions SET title = 'the title' WHERE id = 'other'")
    assert db.get_session("parent") is None
    check_exact(db)


def test_a_parent_that_is_inserted_again_is_a_parent_again(db: SessionDB) -> None:
    db.create_session("parent", "cli", started_at=1000.0)
    db.create_session("child", "cli", parent_session_id="parent", started_at=1001.0)
    check_exact(db)
    _foreign(db.db_path, "DELETE FROM sessions WHERE id = 'parent'")
    check_exact(db)
    db.create_session("parent", "cli", started_at=1000.0)
    check_exact(db)


def test_many_foreign_changes_are_all_applied(db: SessionDB) -> None:
    """A list must be complete even if more sessions have changed than one pass processes."""
    many = 30_000
    db.create_session("seed", "cli")
    _foreign(
        db.db_path,
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})"
        " INSERT INTO sessions (id, source, started_at) SELECT 'many' || i, 'cli', 1000.0 + i FROM n",
    )
    assert len(db.list_sessions_rich(limit=-1)) == many + 1
    assert len(db.list_sessions_rich(limit=-1, order_by_last_active=True)) == many + 1
    assert db.verify().drift == ()


def test_rows_written_under_the_watermark_are_found(db: SessionDB) -> None:
    db.create_session("s", "cli")
    first = [db.append_message("s", "user", f"ours {n}") for n in range(200)]
    assert len(db.search_messages("ours", limit=1000)) == 200
    _foreign(
        db.db_path,
        f"DELETE FROM messages WHERE id BETWEEN {first[10]} AND {first[20]}",
        f"INSERT INTO messages (id, session_id, role, content, timestamp)"
        f" VALUES ({first[15]}, 's', 'user', 'foreign program', 1.0)",
        f"UPDATE OR REPLACE messages SET id = {first[30]} WHERE id = {first[40]}",
        f"INSERT OR REPLACE INTO messages (id, session_id, role, content, timestamp)"
        f" VALUES ({first[50]}, 's', 'user', 'foreign again', 1.0)",
    )
    check_exact(db)
    db.optimize()
    check_exact(db)


# --- complete rows of ours, including uids, restored by hand


def _talk(db: SessionDB, session_id: str, word: str) -> None:
    db.create_session(session_id, "cli", started_at=1000.0)
    for n in range(5):
        db.append_message(session_id, "user", f"{word} number {n}", timestamp=1001.0 + n)


def _copy(db: SessionDB, folder: Path) -> str:
    """Create a copy of the store. Return the statement that attaches it."""
    db.optimize()
    return f"ATTACH '{db.backup(folder / 'copy.db').path}' AS copy"


@pytest.mark.parametrize("first", ["sessions", "messages"])
def test_a_session_restored_from_a_copy_is_found_and_listed(db: SessionDB, home: Path, first: str) -> None:
    _talk(db, "a", "foreign")
    _talk(db, "b", "ours")
    attach = _copy(db, home)
    db.delete_session("a")
    db.optimize()
    statements = [
        "INSERT INTO sessions SELECT * FROM copy.sessions WHERE id = 'a'",
        "INSERT INTO messages SELECT * FROM copy.messages WHERE session_id = 'a'",
    ]
    _foreign(db.db_path, attach, *(statements if first == "sessions" else reversed(statements)))
    assert len(db.search_messages("foreign")) == 5
    check_exact(db)
    db.append_message("a", "user", "ours again")
    check_exact(db)


def test_a_session_restored_without_its_messages_has_none(db: SessionDB, home: Path) -> None:
    _talk(db, "a", "foreign")
    attach = _copy(db, home)
    db.delete_session("a")
    _foreign(db.db_path, attach, "INSERT INTO sessions SELECT * FROM copy.sessions WHERE id = 'a'")
    check_exact(db)


def test_a_session_overwritten_by_an_older_row_still_shows_its_messages(db: SessionDB, home: Path) -> None:
    db.create_session("a", "cli", started_at=1000.0)
    attach = _copy(db, home)
    db.append_message("a", "user", "ours", timestamp=2000.0)
    check_exact(db)
    _foreign(db.db_path, attach, "INSERT OR REPLACE INTO sessions SELECT * FROM copy.sessions")
    check_exact(db)


def test_overwritten_rows_are_found_by_their_new_text_only(db: SessionDB) -> None:
    _talk(db, "a", "before")
    _talk(db, "b", "ours")
    assert len(db.search_messages("before")) == 5
    _foreign(
        db.db_path,
        "CREATE TEMP TABLE t AS SELECT * FROM messages WHERE session_id = 'a'",
        "UPDATE t SET content = replace(content, 'before', 'after'), timestamp = timestamp + 7000,"
        " session_id = CASE WHEN id % 2 THEN 'b' ELSE 'a' END",
        "INSERT OR REPLACE INTO messages SELECT * FROM t",
    )
    assert (len(db.search_messages("before")), len(db.search_messages("after"))) == (0, 5)
    check_exact(db)


@pytest.mark.parametrize("shift", [0, 1000], ids=["above what is indexed", "far above"])
def test_rows_put_above_all_others_count_for_their_session(db: SessionDB, shift: int) -> None:
    _talk(db, "a", "ours")
    db.create_session("b", "cli", started_at=900.0)
    db.optimize()
    _foreign(
        db.db_path,
        "CREATE TEMP TABLE t AS SELECT * FROM messages",
        f"UPDATE t SET id = id + 5 + {shift}, session_id = 'b', timestamp = timestamp + 7000",
        "INSERT INTO messages SELECT * FROM t",
    )
    assert db.list_sessions_rich(order_by_last_active=True)[0]["id"] == "b"
    check_exact(db)


@pytest.mark.parametrize("later", [7000, -90], ids=["newer", "older"])
def test_rows_copied_under_new_ids_count_when_the_index_has_seen_them(db: SessionDB, later: int) -> None:
    """The copied rows look like rows of the product in every column. They are detected when the index reads
    them."""
    _talk(db, "a", "ours")
    db.create_session("b", "cli", started_at=900.0)
    db.append_message("b", "assistant", "ours", timestamp=5000.0)
    _foreign(
        db.db_path,
        "INSERT INTO messages (session_id, role, content, content_kind, timestamp, uid)"
        f" SELECT 'b', role, content, content_kind, timestamp + {later}, uid FROM messages WHERE session_id = 'a'",
    )
    db.optimize()
    check_exact(db)


def test_a_continuation_restored_without_its_parent_is_listed_itself(db: SessionDB, home: Path) -> None:
    db.create_session("parent", "cli", started_at=1000.0)
    db.create_session("sub", "cli", parent_session_id="parent", started_at=1001.0)
    db.end_session("parent", "compression")
    db.create_session("child", "cli", parent_session_id="parent")
    attach = _copy(db, home)
    for session_id in ("child", "sub", "parent"):
        db.delete_session(session_id)
    _foreign(db.db_path, attach, "INSERT INTO sessions SELECT * FROM copy.sessions WHERE id <> 'parent'")
    check_exact(db)
    _foreign(db.db_path, attach, "INSERT INTO sessions SELECT * FROM copy.sessions WHERE id = 'parent'")
    check_exact(db)


@pytest.mark.parametrize("parent", ["'parent'", "NULL", "'nobody'"])
def test_a_session_restored_under_another_parent_is_listed_correctly(db: SessionDB, parent: str) -> None:
    for name in ("parent", "other", "alone"):
        db.create_session(name, "cli", started_at=1000.0)
    db.delegate("other", session_id="below")
    db.branch("other", session_id="beside")
    check_exact(db)
    _foreign(
        db.db_path,
        "CREATE TEMP TABLE t AS SELECT * FROM sessions WHERE id IN ('alone', 'below', 'beside')",
        f"UPDATE t SET parent_session_id = {parent}",
        "INSERT OR REPLACE INTO sessions SELECT * FROM t",
    )
    check_exact(db)


def test_an_attachment_restored_without_its_reference_is_kept(db: SessionDB, home: Path) -> None:
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 3000}}]
    db.create_session("a", "cli")
    db.append_message("a", "user", image)
    attach = _copy(db, home)
    db.delete_session("a")
    _foreign(
        db.db_path,
        attach,
        *(f"INSERT INTO {table} SELECT * FROM copy.{table}" for table in ("sessions", "blobs", "messages")),
    )
    db.optimize()
    assert db.get_messages("a")[0]["content"] == image


def test_own_writes_leave_no_change_records(db: SessionDB) -> None:
    """The triggers record changes for the next list. The product's own writes leave no such records, because
    they update the derived data themselves."""
    _talk(db, "a", "ours")
    db.create_session("a", "cli")
    db.branch("a")
    db.delegate("a")
    db.begin_continuation("a", summary="what was said")
    assert read_dicts(db, "SELECT * FROM changed_sessions") == []
    assert read_dicts(db, "SELECT * FROM changed_messages") == []
