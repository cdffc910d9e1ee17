"""Another program writes both tables with plain SQL while ours append, index and search: nothing goes out of step."""

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
from tests.survival.processes import LONG, Worker
from tests.survival.recount import Recount, decoded

FOREIGN_WRITER = Path(__file__).parents[1] / "foreign_writer.py"
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


def _rows(db: SessionDB, sql: str) -> list[dict[str, Any]]:
    return [dict(zip(row.keys(), row, strict=True)) for row in db.raw().execute(sql).fetchall()]


def check_exact(db: SessionDB) -> None:
    """Everything that is derived, against the rows as they are."""
    messages, sessions = _rows(db, RAW_MESSAGES), _rows(db, RAW_SESSIONS)
    known = {row["id"] for row in sessions}
    for query in WORDS:
        hits = db.search_messages(query, limit=100_000)
        assert hits.indexing is None
        found = [hit["id"] for hit in hits]
        expected = {row["id"] for row in messages if row["session_id"] in known and _matches(query, row)}
        assert len(found) == len(set(found)), query
        assert set(found) == expected, (query, set(found) ^ expected)

    listed = db.list_sessions_rich(limit=-1)  # it settles what was noted: the rows are read again after it
    by_activity = db.list_sessions_rich(limit=-1, order_by_last_active=True)
    recount = Recount(_rows(db, RAW_SESSIONS), messages)
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
    assert len(report.damage) == min(len(orphans), 20)  # it tells of so many


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
    """Run plain SQL in a process of its own, with the interpreter's SQLite, foreign keys off."""
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
    program += "for s in sys.argv[2:]: c.execute(s)\nc.close()"
    subprocess.run([sys.executable, "-c", program, str(path), *statements], check=True)


def test_a_foreign_row_that_nobody_counted_keeps_its_place(db: SessionDB) -> None:
    """Scripts insert messages without counting them; the session's activity must not depend on that count."""
    db.create_session("s", "cli", started_at=1000.0)
    _foreign(
        db.db_path,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'from afar', 5000.0)",
    )
    check_exact(db)
    db.append_message("s", "user", "earlier", timestamp=2000.0)
    check_exact(db)


def test_a_foreign_delete_that_nobody_counted_does_not_freeze_activity(db: SessionDB) -> None:
    db.create_session("s", "cli", started_at=5000.0)
    db.append_message("s", "user", "one", timestamp=6000.0)
    _foreign(db.db_path, "DELETE FROM messages")
    check_exact(db)
    db.append_message("s", "user", "two", timestamp=2000.0)
    check_exact(db)


def test_a_session_displaced_by_its_title_leaves_no_trace(db: SessionDB) -> None:
    """Where a title is unique, OR REPLACE deletes the session that held it, and no DELETE trigger fires."""
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


def test_a_parent_that_comes_back_is_a_parent_again(db: SessionDB) -> None:
    db.create_session("parent", "cli", started_at=1000.0)
    db.create_session("child", "cli", parent_session_id="parent", started_at=1001.0)
    check_exact(db)
    _foreign(db.db_path, "DELETE FROM sessions WHERE id = 'parent'")
    check_exact(db)
    db.create_session("parent", "cli", started_at=1000.0)
    check_exact(db)


def test_many_foreign_changes_at_once_are_all_taken_in(db: SessionDB) -> None:
    """More noted sessions than one look is ready to recompute must not make a list silently stale."""
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
