"""Parents can form a cycle, a session can be its own parent, and a chain can have ten thousand sessions.
Every operation ends and affects only the sessions that it names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.survival.test_foreign import _foreign, check_exact

LENGTH = 10_000
FIRST = 1_700_000_000.0
SLOWEST = 20.0


@pytest.fixture
def circles(db: SessionDB) -> SessionDB:
    """Create a -> b -> c -> a, `self` (its own parent), `tail` (a child of the cycle) and `apart` (unrelated)."""
    for n, name in enumerate(("a", "b", "c", "self", "tail", "apart")):
        db.create_session(name, "cli", started_at=FIRST + n)
        db.append_message(name, "user", f"said by {name}", timestamp=FIRST + 100 + n)
        db.append_message(name, "assistant", f"answered to {name}", timestamp=FIRST + 100 + n)
    _foreign(
        db.db_path,
        *(
            f"UPDATE sessions SET parent_session_id = '{up}' WHERE id = '{low}'"
            for low, up in ("ba", "cb", "ac")
        ),
        "UPDATE sessions SET parent_session_id = 'self' WHERE id = 'self'",
        "UPDATE sessions SET parent_session_id = 'c' WHERE id = 'tail'",
    )
    return db


@pytest.mark.parametrize("reason", ["compression", "branched", "cli_close", None])
def test_every_operation_on_a_cycle_ends(circles: SessionDB, reason: str | None) -> None:
    db = circles
    if reason:
        _foreign(db.db_path, f"UPDATE sessions SET ended_at = {FIRST - 5}, end_reason = '{reason}'")
    names = ("a", "b", "c", "self", "tail", "apart")
    for name in names:
        assert db.get_compression_tip(name) in names
        assert db.get_conversation_root(name) in names
        assert db.resolve_resume_session_id(name) == name
        family = db.get_messages_as_conversation(name, include_ancestors=True)
        members = {"a", "b", "c", "tail"} if name == "tail" else {"a", "b", "c"} if name in "abc" else {name}
        assert len(family) == 2 * len(members)
        exported = db.export_session(name)
        assert exported is not None
        assert len(exported["messages"]) == 2
    assert len(db.export_all()) == 6
    assert len(db.list_sessions_rich(limit=-1, include_children=True)) == 6
    listed = {row["id"] for row in db.list_sessions_rich(limit=-1)}
    assert {"self", "apart"} <= listed
    check_exact(db)


def test_a_cycle_can_be_imported_and_exported(circles: SessionDB, home: Path) -> None:
    exported = list(circles.export_each())
    with SessionDB(home / "second.db") as other:
        report = other.import_sessions(exported)
        assert len(report.added) == 6
        assert other.message_count() == 12
        assert other.import_sessions(exported).added == ()
        assert other.verify().ok


def test_deleting_from_a_cycle_affects_only_that_session(circles: SessionDB) -> None:
    db = circles
    assert db.delete_session("b")
    assert {row["id"] for row in db.search_sessions(limit=-1)} == {"a", "c", "self", "tail", "apart"}
    assert db.delete_session("self")
    assert db.message_count() == 8
    for name in ("a", "c", "tail", "apart"):
        assert db.message_count(name) == 2
    check_exact(db)


def test_pruning_a_cycle_leaves_the_rest(circles: SessionDB) -> None:
    db = circles
    _foreign(
        db.db_path,
        f"UPDATE sessions SET ended_at = {FIRST - 5}, end_reason = 'compression' WHERE id IN ('a', 'b', 'c', 'self')",
    )
    candidates = {row["id"] for row in db.list_prune_candidates(older_than_days=0)}
    assert candidates <= {"a", "b", "c", "self"}
    pruned = db.prune_sessions(older_than_days=0)
    assert pruned == len(candidates)
    left = {row["id"] for row in db.search_sessions(limit=-1)}
    assert left == {"a", "b", "c", "self", "tail", "apart"} - candidates
    assert {"tail", "apart"} <= left
    check_exact(db)


# --- the chain


@pytest.fixture(scope="module")
def chain_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create s0 <- s1 <- ... as another program. Each session was ended by a compression and has two
    messages."""
    path = tmp_path_factory.mktemp("chain") / "state.db"
    SessionDB(path).close()
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {LENGTH - 1})"
    _foreign(
        path,
        f"{numbers} INSERT INTO sessions"
        " (id, source, parent_session_id, started_at, ended_at, end_reason, message_count)"
        f" SELECT 's' || i, 'cli', CASE WHEN i THEN 's' || (i - 1) END, {FIRST} + i, {FIRST} + i + 1, 'compression', 2"
        " FROM n",
        f"UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = 's{LENGTH - 1}'",
        f"{numbers} INSERT INTO messages (session_id, role, content, timestamp)"
        f" SELECT 's' || (i / 2), CASE i % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, 'message' || i, {FIRST} + i"
        " FROM n",
        f"{numbers} INSERT INTO messages (session_id, role, content, timestamp)"
        f" SELECT 's' || ({LENGTH // 2} + i / 2), 'assistant', 'later' || i, {FIRST} + {LENGTH} + i FROM n",
        "INSERT INTO sessions (id, source, started_at) VALUES ('apart', 'cli', 1.0)",
    )
    with SessionDB(path) as db:
        began = time.process_time()
        assert len(db.list_sessions_rich(limit=-1)) == 2  # this computes the conversations
        assert time.process_time() - began < 60
    return path


@pytest.fixture
def chain(chain_file: Path, home: Path) -> Iterator[SessionDB]:
    home.mkdir(mode=0o700)
    copy = home / "state.db"
    copy.write_bytes(chain_file.read_bytes())
    copy.chmod(0o600)
    with SessionDB(copy) as db:
        yield db


LAST = f"s{LENGTH - 1}"


@pytest.mark.full
def test_a_chain_of_ten_thousand_is_one_conversation(chain: SessionDB) -> None:
    db, began = chain, time.process_time()
    assert db.get_compression_tip("s0") == LAST
    assert db.get_compression_tip("s5000") == LAST
    assert db.get_conversation_root(LAST) == "s0"
    assert db.resolve_resume_session_id(LAST) == LAST
    family = db.get_messages_as_conversation(LAST, include_ancestors=True)
    assert len(family) == 2 * LENGTH
    assert family[0]["content"] == "message0"
    assert family[-1]["content"] == f"later{LENGTH - 1}"
    first, second = db.list_sessions_rich(limit=10)
    assert (first["id"], first["_lineage_root_id"]) == (LAST, "s0")
    assert second["id"] == "apart"
    assert len(db.list_sessions_rich(limit=-1, include_children=True)) == LENGTH + 1
    assert sum(1 for _ in db.export_each()) == LENGTH + 1
    assert time.process_time() - began < SLOWEST


def test_working_at_the_end_of_the_chain_is_not_slow(chain: SessionDB) -> None:
    db, began = chain, time.process_time()
    for n in range(20):
        db.append_message(LAST, "user", f"still at it {n}")
    db.end_session(LAST, "compression")
    db.create_session("next", "cli", parent_session_id=LAST)
    assert db.get_compression_tip("s0") == "next"
    assert db.get_conversation_root("next") == "s0"
    assert time.process_time() - began < 5


def test_deleting_within_the_chain_touches_only_that_row(chain: SessionDB) -> None:
    db, began = chain, time.process_time()
    assert db.delete_session("s5000")
    assert db.session_count() == LENGTH
    assert db.message_count() == 2 * LENGTH - 2
    assert db.get_conversation_root(LAST) == "s5001"
    assert db.get_conversation_root("s4999") == "s0"
    assert db.get_compression_tip("s0") == "s4999"
    assert len(db.list_sessions_rich(limit=10)) == 3
    assert db.delete_session("s0")
    assert db.get_conversation_root("s4999") == "s1"
    assert time.process_time() - began < SLOWEST
    assert db.verify().drift == ()


@pytest.mark.full
def test_pruning_the_chain_is_all_or_nothing(chain: SessionDB) -> None:
    db, began = chain, time.process_time()
    # its last session is open, so the whole conversation stays
    assert db.prune_sessions(older_than_days=0) == 0
    assert db.session_count() == LENGTH + 1
    db.end_session(LAST, "cli_close")
    assert len(db.list_prune_candidates(older_than_days=0)) == LENGTH
    assert db.prune_sessions(older_than_days=0) == LENGTH
    assert [row["id"] for row in db.search_sessions(limit=-1)] == ["apart"]
    assert db.message_count() == 0
    assert time.process_time() - began < SLOWEST
    assert db.verify().ok


def test_resume_follows_a_long_chain_of_empty_sessions(db: SessionDB) -> None:
    silent = 3000
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {silent})"
    _foreign(
        db.db_path,
        f"{numbers} INSERT INTO sessions (id, source, parent_session_id, started_at)"
        f" SELECT 's' || i, 'cli', CASE WHEN i THEN 's' || (i - 1) END, {FIRST} + i FROM n",
    )
    assert db.resolve_resume_session_id("s0") == "s0"
    db.append_message(f"s{silent}", "user", "somebody speaks")
    assert db.resolve_resume_session_id("s0") == f"s{silent}"
