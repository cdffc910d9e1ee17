"""Deletion, pruning and maintenance: which sessions are removed and which are kept."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.store.retention.deletion import Retention, make_batches
from hermes.store.retention.thinning import Thinner
from hermes.store.sessions.selection import Selection
from hermes_state import SessionDB
from tests.store.repeating_engine import RepeatingEngine
from tests.stored_rows import change_rows, change_through, read_rows, read_value
from tests.tiers import scale_examples

DAY = 86_400.0


def ago(days: float) -> float:
    return time.time() - days * DAY


def session(db: SessionDB, session_id: str, days: float, *, ended: bool = True, source: str = "cli") -> str:
    """Create a session that was started and last used `days` days ago."""
    db.create_session(session_id, source, started_at=ago(days))
    db.append_message(session_id, "user", f"said in {session_id}", timestamp=ago(days) + 1)
    if ended:
        db.end_session(session_id, "cli_close")
    return session_id


def continued(db: SessionDB, days: float) -> tuple[str, str]:
    """Create a conversation of two sessions: the first ended by compression, the second open."""
    session(db, "first", days, ended=False)
    db.end_session("first", "compression")
    db.create_session("second", "cli", parent_session_id="first")
    change_rows(
        db, "UPDATE sessions SET relation = 'compression', started_at = ? WHERE id = 'second'", ago(days)
    )
    return "first", "second"


def carry(db: SessionDB, session_id: str, first: int, last: int, position: int = 0) -> None:
    change_rows(db, "INSERT INTO carried_context VALUES (?, ?, ?, ?)", session_id, position, first, last)


def contents(db: SessionDB, session_id: str) -> list[str]:
    return [row["content"] for row in db.get_messages(session_id)]


def ids(db: SessionDB) -> set[str]:
    return {row[0] for row in read_rows(db, "SELECT id FROM sessions")}


def column(db: SessionDB, session_id: str, name: str) -> object:
    found = db.get_session(session_id, include_trashed=True)
    assert found is not None
    return found[name]


# ---------------------------------------------------------------- delete


def test_deleting_an_unknown_session_returns_false(db: SessionDB) -> None:
    assert db.delete_session("nobody") is False


def test_a_deleted_session_is_gone_with_its_messages_and_from_search(db: SessionDB) -> None:
    session(db, "a", 1)
    session(db, "b", 1)
    assert len(db.search_messages("said")) == 2
    assert db.delete_session("a") is True
    assert db.delete_session("a") is False
    assert ids(db) == {"b"}
    assert db.message_count() == 1
    assert [hit["session_id"] for hit in db.search_messages("said")] == ["b"]


def test_all_data_of_a_session_is_deleted_with_it(db: SessionDB) -> None:
    session(db, "a", 1)
    message = read_value(db, "SELECT id FROM messages")
    change_rows(
        db,
        "INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at)"
        " VALUES ('k', 'telegram', 'dm', 'a', 1, 1)",
    )
    lease = "INSERT INTO leases (conversation_id, epoch, expires_at) VALUES ('a', 1, ?)"
    change_rows(db, lease, time.time() + 60)
    change_rows(db, "INSERT INTO tags VALUES ('a', 'work')")
    change_rows(db, "INSERT INTO model_usage (session_id, at) VALUES ('a', 1)")
    change_rows(db, "INSERT INTO blobs VALUES (?, 'image/png', 1, ?, 1)", b"\x01", b"\xff")
    change_rows(db, "INSERT INTO blob_refs VALUES (?, ?)", message, b"\x01")
    carry(db, "a", 1, 1)
    assert db.delete_session("a") is True
    for table in (
        "routing",
        "leases",
        "tags",
        "model_usage",
        "blobs",
        "blob_refs",
        "carried_context",
        "messages",
    ):
        assert read_value(db, f"SELECT count(*) FROM {table}") == 0, table


def test_an_attachment_that_another_session_shows_too_is_kept(db: SessionDB) -> None:
    change_rows(db, "INSERT INTO blobs VALUES (?, 'image/png', 1, ?, 1)", b"\x01", b"\xff")
    for name in ("a", "b"):
        session(db, name, 1)
    change_rows(db, "INSERT INTO blob_refs SELECT id, hash FROM messages, blobs")
    db.delete_session("a")
    assert read_value(db, "SELECT count(*) FROM blobs") == 1


def test_deleting_the_first_of_a_chain_makes_the_second_a_root_of_its_own(db: SessionDB) -> None:
    session(db, "root", 3, ended=False)
    for parent, child in (("root", "c1"), ("c1", "c2")):
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent)
    assert db.get_compression_tip("root") == "c2"
    assert db.delete_session("root") is True
    assert column(db, "c1", "parent_session_id") is None
    assert column(db, "c1", "relation") is None
    assert (column(db, "c1", "root_id"), column(db, "c2", "root_id")) == ("c1", "c1")
    assert db.get_compression_tip("c1") == "c2"
    assert [row["id"] for row in db.list_sessions_rich()] == ["c2"]


@pytest.fixture
def carried(db: SessionDB) -> SessionDB:
    """Create `root` with four messages, one with a tool call, and `tip`, which carries the second and third."""
    db.create_session("root", "cli", started_at=100.0)
    db.append_message("root", "user", "one", timestamp=101.0)
    db.append_message("root", "user", "two", timestamp=102.0)
    db.append_message("root", "assistant", "three", tool_calls=[{"id": "x"}, {"id": "y"}], timestamp=103.0)
    db.append_message("root", "user", "four", timestamp=104.0)
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root", started_at=200.0)
    db.append_message("tip", "user", "five", timestamp=201.0)
    carry(db, "tip", 2, 3)
    return db


def spoken(db: SessionDB, session_id: str) -> list[str]:
    return [message["content"] for message in db.get_messages_as_conversation(session_id)]


def test_messages_that_a_survivor_carries_move_to_it(carried: SessionDB) -> None:
    before = spoken(carried, "tip")
    assert before == ["two", "three", "five"]
    assert carried.delete_session("root") is True
    assert spoken(carried, "tip") == before
    assert contents(carried, "tip") == ["two", "three", "five"]
    assert (column(carried, "tip", "message_count"), column(carried, "tip", "tool_call_count")) == (3, 2)
    assert carried.message_count() == 3
    assert column(carried, "tip", "preview") == "two"
    assert {hit["session_id"] for hit in carried.search_messages("two OR three")} == {"tip"}
    assert carried.search_messages("four") == []


def test_carried_messages_move_to_the_oldest_carrier_and_then_to_the_next(carried: SessionDB) -> None:
    carried.create_session("branch", "cli", started_at=300.0)
    carry(carried, "branch", 1, 3)
    carried.delete_session("root")
    assert contents(carried, "tip") == ["two", "three", "five"]
    assert contents(carried, "branch") == ["one"]
    assert spoken(carried, "branch") == ["one", "two", "three"]
    carried.delete_session("tip")
    assert contents(carried, "branch") == ["one", "two", "three"]
    assert column(carried, "branch", "message_count") == 3


def test_a_message_rewound_in_its_session_stays_where_it_is_carried(carried: SessionDB) -> None:
    change_rows(carried, "UPDATE messages SET active = 0 WHERE content IN ('two', 'four')")
    assert spoken(carried, "tip")[0] == "two"
    carried.delete_session("root")
    assert contents(carried, "tip") == ["two", "three", "five"]
    assert read_value(carried, "SELECT count(*) FROM messages") == 3


# ---------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "transcripts"
    made.mkdir()
    return made


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("{}")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_the_files_of_the_session_are_removed(db: SessionDB, folder: Path) -> None:
    session(db, "a", 1)
    session(db, "a_b", 1)
    own = ("a.json", "a.jsonl", "session_a.json", "request_dump_a_1.json", "request_dump_a_2025_01.json")
    others = (
        "a_b.jsonl",
        "session_a_b.json",
        "request_dump_a_b_1.json",
        "b.json",
        "sessions.json",
        "a.txt",
        "ab.json",
    )
    put(folder, *own, *others)
    db.delete_session("a", sessions_dir=folder)
    assert names(folder) == set(others)


def test_without_a_folder_nothing_is_removed(db: SessionDB, home: Path) -> None:
    session(db, "a", 1)
    (home / "sessions").mkdir()
    put(home / "sessions", "a.jsonl")
    db.delete_session("a")
    assert names(home / "sessions") == {"a.jsonl"}


@pytest.mark.parametrize("name", ["*", "?", "[ab]", "../up", "..", "x/y", "sessions", "nul\0", "a" * 300])
def test_an_id_is_neither_a_pattern_nor_a_path(db: SessionDB, folder: Path, name: str) -> None:
    put(folder.parent, "up.json", "up.jsonl")
    (folder / "x").mkdir()
    put(folder / "x", "y.json")
    put(folder, "a.json", "b.jsonl", "sessions.json", "request_dump_a_1.json")
    before = names(folder)
    db.create_session(name, "cli")
    assert db.delete_session(name, sessions_dir=folder) is True
    assert names(folder) == before
    assert (folder.parent / "up.json").exists()
    assert (folder / "x" / "y.json").exists()


def test_files_that_cannot_be_removed_are_not_an_error(db: SessionDB, folder: Path, tmp_path: Path) -> None:
    session(db, "a", 1)
    session(db, "b", 1)
    (folder / "a.json").mkdir()
    assert db.delete_session("a", sessions_dir=folder) is True
    assert db.delete_session("b", sessions_dir=tmp_path / "missing") is True


def test_a_purge_leaves_no_byte_of_the_text_in_the_home(db: SessionDB, home: Path) -> None:
    secret = "kilimandscharo-secret-4711"
    db.create_session("a", "cli")
    db.append_message("a", "user", f"my word is {secret}")
    session(db, "b", 1)
    (home / "sessions").mkdir()
    (home / "sessions" / "a.jsonl").write_text(secret)
    assert db.search_messages(secret)
    assert db.delete_session("a", purge=True) is True
    held = [path for path in home.rglob("*") if path.is_file() and b"kilimandscharo" in path.read_bytes()]
    assert held == []
    assert contents(db, "b") == ["said in b"]


# ---------------------------------------------------------------- prune


def test_pruning_goes_by_last_activity(db: SessionDB) -> None:
    session(db, "old", 100)
    session(db, "revived", 400)
    db.append_message("revived", "user", "back again")
    session(db, "young", 10)
    assert [row["id"] for row in db.list_prune_candidates(90)] == ["old"]
    assert db.prune_sessions(older_than_days=90) == 1
    assert ids(db) == {"revived", "young"}


def test_a_session_without_messages_ages_from_its_start(db: SessionDB) -> None:
    db.create_session("empty", "cli", started_at=ago(100))
    db.end_session("empty", "cli_close")  # ended today, unused for 100 days
    assert db.prune_sessions(90) == 1


def test_pruning_can_be_limited_to_a_source(db: SessionDB) -> None:
    session(db, "a", 100, source="telegram")
    session(db, "b", 100, source="api_server")
    session(db, "c", 100)
    assert db.prune_sessions(older_than_days=30, source="telegram") == 1
    assert db.prune_sessions(older_than_days=30, source="api_server") == 1
    assert ids(db) == {"c"}


def test_zero_days_remove_everything_ended_even_from_the_future(db: SessionDB) -> None:
    session(db, "now", 0)
    session(db, "future", -50)
    session(db, "open", 400, ended=False)
    assert db.prune_sessions(older_than_days=0) == 2
    assert ids(db) == {"open"}


@pytest.mark.parametrize("days", [None, "90", True, float("nan")])
def test_days_must_be_a_number(db: SessionDB, days: object) -> None:
    session(db, "old", 1000)
    with pytest.raises(ValueError, match="older_than_days"):
        db.prune_sessions(days)  # type: ignore[arg-type]
    assert ids(db) == {"old"}


def test_a_conversation_is_one_unit(db: SessionDB) -> None:
    continued(db, 100)
    assert db.prune_sessions(90) == 0, "its tip is open"
    db.append_message("second", "user", "still here", timestamp=ago(10))
    db.end_session("second", "cli_close")
    assert db.prune_sessions(90) == 0, "its tip was used"
    assert [row["id"] for row in db.list_prune_candidates(9)] == ["first", "second"]
    assert db.prune_sessions(9) == 2
    assert ids(db) == set()


KEPT = {
    "pinned": "UPDATE sessions SET pinned_at = 1 WHERE id = 'second'",
    "open": "UPDATE sessions SET ended_at = NULL WHERE id = 'first'",
    "trashed": "UPDATE sessions SET trashed_at = 1 WHERE id = 'first'",
    "routed": "INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at)"
    " VALUES ('k', 'telegram', 'dm', 'second', 1, 1)",
    "leased": "INSERT INTO leases (conversation_id, epoch, expires_at) VALUES ('first', 1, 99999999999.0)",
}


@pytest.mark.parametrize("why", KEPT)
def test_a_kept_conversation_is_kept_as_a_whole(db: SessionDB, why: str) -> None:
    continued(db, 100)
    db.end_session("second", "cli_close")
    assert len(db.list_prune_candidates(0)) == 2
    change_rows(db, KEPT[why])
    assert db.list_prune_candidates(0) == []
    assert db.prune_sessions(0) == 0
    assert ids(db) == {"first", "second"}


def test_a_conversation_in_a_telegram_topic_is_kept(db: SessionDB) -> None:
    session(db, "a", 100, source="telegram")
    db.bind_telegram_topic(chat_id="1", thread_id="2", user_id="3", session_key="k", session_id="a")
    assert db.list_prune_candidates(0) == []
    assert db.prune_sessions(0) == 0
    db.disable_telegram_topic_mode(chat_id="1")
    assert db.prune_sessions(0) == 1


def test_an_expired_lease_keeps_nothing(db: SessionDB) -> None:
    session(db, "a", 100)
    change_rows(db, "INSERT INTO leases (conversation_id, epoch, expires_at) VALUES ('a', 1, ?)", ago(1))
    assert db.prune_sessions(90) == 1
    assert read_value(db, "SELECT count(*) FROM leases") == 0


def test_surviving_children_become_roots(db: SessionDB) -> None:
    session(db, "parent", 100)
    db.create_session("child", "cli", parent_session_id="parent")
    assert db.prune_sessions(90) == 1
    assert column(db, "child", "parent_session_id") is None
    assert [row["id"] for row in db.list_sessions_rich()] == ["child"]


def test_subagents_are_pruned_with_their_conversation_and_not_before(db: SessionDB) -> None:
    session(db, "parent", 100, ended=False)
    session(db, "task", 100)
    change_rows(
        db, "UPDATE sessions SET parent_session_id = 'parent', relation = 'delegate' WHERE id = 'task'"
    )
    assert db.list_prune_candidates(90) == []
    db.end_session("parent", "cli_close")
    assert db.prune_sessions(90) == 2


def test_a_branch_keeps_what_it_carries_of_a_pruned_conversation(db: SessionDB) -> None:
    session(db, "old", 100)
    db.create_session("branch", "cli", parent_session_id="old")
    carry(db, "branch", 1, 1)
    assert db.prune_sessions(90) == 1
    assert spoken(db, "branch") == ["said in old"]


def test_a_dry_run_names_exactly_what_goes_longest_unused_first(db: SessionDB) -> None:
    session(db, "b", 200)
    session(db, "a", 300)
    session(db, "c", 10)
    candidates = db.list_prune_candidates(90)
    assert [row["id"] for row in candidates] == ["a", "b"]
    assert {"source", "title", "preview", "last_active", "message_count", "root_id"} <= set(candidates[0])
    assert ids(db) == {"a", "b", "c"}
    assert db.prune_sessions(90) == len(candidates)


class Meanwhile(Retention):
    """A retention manager in which a message is stored after old sessions were selected and before they are
    deleted."""

    def _prune_batch(
        self, roots: list[str], cutoff: float, only: Selection, ended_by: float | None
    ) -> list[str]:
        sql = (
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('revived', 'user', 'hi', ?)"
        )
        change_through(self._engine, sql, time.time())
        return super()._prune_batch(roots, cutoff, only, ended_by)


def test_activity_of_another_program_during_a_prune_spares_the_session(db: SessionDB) -> None:
    session(db, "revived", 100)
    session(db, "old", 100)
    assert Meanwhile(db._engine).prune(90) == 1
    assert ids(db) == {"revived"}


def test_many_small_conversations_share_commits_and_big_ones_do_not(db: SessionDB) -> None:
    sizes = [(number, 1500 if number >= 448 else 0) for number in range(450)]
    assert [len(batch) for batch in make_batches(sizes)] == [200, 200, 49, 1]
    for number in range(450):
        db.create_session(f"s{number:03}", "cli", started_at=ago(100 + number))
    change_rows(db, "UPDATE sessions SET ended_at = 1, end_reason = 'x'")
    assert db.prune_sessions(90) == 450
    assert ids(db) == set()


def test_files_of_pruned_sessions_go(db: SessionDB, folder: Path) -> None:
    session(db, "old", 100)
    session(db, "young", 1)
    put(folder, "old.jsonl", "young.jsonl", "request_dump_old_1.json", "request_dump_young_1.json")
    db.prune_sessions(90, sessions_dir=folder)
    assert names(folder) == {"young.jsonl", "request_dump_young_1.json"}


# ---------------------------------------------------------------- after crashes


def test_ended_untitled_empty_tui_sessions_are_removed_after_a_day(db: SessionDB, folder: Path) -> None:
    def ghost(name: str, days: float = 2, source: str = "tui", ended: bool = True) -> None:
        db.create_session(name, source, started_at=ago(days))
        if ended:
            db.end_session(name, "tui_shutdown")

    ghost("ghost")
    ghost("today", days=0.5)
    ghost("cli", source="cli")
    ghost("open", ended=False)
    ghost("titled")
    db.set_session_title("titled", "keep me")
    ghost("said")
    db.append_message("said", "user", "something")
    put(folder, "ghost.json", "today.json")
    assert db.prune_empty_ghost_sessions(sessions_dir=folder) == 1
    assert ids(db) == {"today", "cli", "open", "titled", "said"}
    assert names(folder) == {"today.json"}
    assert db.prune_empty_ghost_sessions() == 0


def test_orphaned_continuations_are_ended(db: SessionDB) -> None:
    session(db, "parent", 20, ended=False)
    db.end_session("parent", "compression")
    for name, days in (("orphan", 8), ("recent", 6), ("silent", 8), ("working", 8)):
        db.create_session(name, "cli", parent_session_id="parent", started_at=ago(days))
        if name != "silent":
            db.append_message(name, "user", "hello", timestamp=ago(days))
    db.create_session("spoken to", "cli", parent_session_id="parent", started_at=ago(8))
    db.append_message("spoken to", "user", "today")
    db.update_token_counts("working", api_call_count=1)
    session(db, "rootless", 20, ended=False)
    assert db.finalize_orphaned_compression_sessions() == 1
    assert column(db, "orphan", "end_reason") == "orphaned_compression"
    assert column(db, "orphan", "ended_at") is not None
    for name in ("recent", "silent", "working", "rootless", "spoken to"):
        assert column(db, name, "ended_at") is None, name
    assert db.finalize_orphaned_compression_sessions() == 0


@pytest.fixture
def departed() -> int:
    """Return the pid of a process that has just ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.fixture
def living() -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child.pid
    child.communicate()


def process(pid: int, host: str | None = None, start: str | None = None) -> str:
    return json.dumps({"host": host or socket.gethostname(), "pid": pid, "start": start})


def test_idle_terminal_sessions_of_dead_processes_are_closed(
    db: SessionDB, departed: int, living: int
) -> None:
    recorded = {
        "nobody": None,
        "dead": process(departed),
        "alive": process(living),
        "me": process(os.getpid()),
        "elsewhere": process(os.getpid(), host="another-host"),
        "nonsense": "{",
        "routed": None,
    }
    for name, text in recorded.items():
        session(db, name, 8, ended=False)
        change_rows(db, "UPDATE sessions SET process = ? WHERE id = ?", text, name)
    session(db, "used", 6, ended=False)
    session(db, "chat", 30, ended=False, source="telegram")
    change_rows(
        db,
        "INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at)"
        " VALUES ('k', 'telegram', 'dm', 'routed', 1, 1)",
    )
    assert db._retention.close_orphaned_cli() == 3
    closed = {name for name in ids(db) if column(db, name, "end_reason") == "orphaned"}
    assert closed == {"nobody", "dead", "nonsense"}
    assert db._retention.close_orphaned_cli() == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to tell when a process started")
def test_a_pid_that_was_given_to_another_process_is_not_the_one_recorded(db: SessionDB, living: int) -> None:
    start = Path(f"/proc/{living}/stat").read_text().rpartition(")")[2].split()[19]
    for name, text in (("same", start), ("reused", "1")):
        session(db, name, 8, ended=False)
        change_rows(db, "UPDATE sessions SET process = ? WHERE id = ?", process(living, start=text), name)
    assert db._retention.close_orphaned_cli() == 1
    assert column(db, "reused", "end_reason") == "orphaned"


# ---------------------------------------------------------------- opt-in maintenance


def test_maintenance_prunes_vacuums_and_leaves_its_stamp(db: SessionDB) -> None:
    session(db, "old", 100)
    session(db, "young", 1)
    before = time.time()
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert float(db.get_meta("last_auto_prune") or 0) >= before
    assert ids(db) == {"young"}


def test_a_second_run_within_the_interval_is_skipped(db: SessionDB) -> None:
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 0, "vacuumed": False}
    session(db, "old", 100)
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": True, "pruned": 0, "vacuumed": False}
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0, vacuum=False)["pruned"] == 1


@pytest.mark.parametrize("stamp", ["", "yesterday", "nan", "99999999999", "-5", "0"])
def test_an_invalid_time_of_the_last_run_is_ignored(db: SessionDB, stamp: str) -> None:
    db.set_meta("last_auto_prune", stamp)
    assert db.maybe_auto_prune_and_vacuum()["skipped"] is False


def test_maintenance_runs_again_after_the_interval(db: SessionDB) -> None:
    db.set_meta("last_auto_prune", str(time.time() - 2 * 3600))
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=3)["skipped"] is True
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=1)["skipped"] is False


def test_only_one_of_many_concurrent_runs_is_executed(db: SessionDB, home: Path) -> None:
    session(db, "old", 100)
    stores = [SessionDB(home / "state.db") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda store: store.maybe_auto_prune_and_vacuum(vacuum=False), stores))
    for store in stores:
        store.close()
    assert sorted(result["skipped"] for result in results) == [False] + [True] * 5
    assert sum(result["pruned"] for result in results) == 1


def test_maintenance_closes_sessions_that_a_crash_left_open(db: SessionDB, departed: int) -> None:
    session(db, "crashed", 100, ended=False)
    session(db, "idle", 8, ended=False)
    session(db, "chat", 100, ended=False, source="telegram")
    change_rows(db, "UPDATE sessions SET process = ?", process(departed))
    assert db.maybe_auto_prune_and_vacuum()["pruned"] == 0
    assert ids(db) == {"crashed", "idle", "chat"}
    assert column(db, "idle", "end_reason") == column(db, "crashed", "end_reason") == "orphaned"
    assert column(db, "chat", "ended_at") is None


def test_maintenance_never_raises(db: SessionDB) -> None:
    session(db, "old", 100)
    assert "0 or more" in db.maybe_auto_prune_and_vacuum(retention_days=-1)["error"]
    assert ids(db) == {"old"}
    db.close()
    result = db.maybe_auto_prune_and_vacuum()
    assert (result["skipped"], result["pruned"], result["vacuumed"]) == (False, 0, False)
    assert "closed" in result["error"]


# ---------------------------------------------------------------- a dry run reports exactly what a run does

FAMILIES = st.lists(
    st.fixed_dictionaries(
        {
            "parent": st.integers(-2, 6),
            "source": st.sampled_from(["cli", "telegram"]),
            "end": st.sampled_from([None, "compression", "branched", "cli_close", "cli_close"]),
            "started": st.integers(0, 200),
            "said": st.lists(st.integers(-10, 200), max_size=2),
            "kept": st.sampled_from([None, None, None, None, "pin", "route", "lease", "old lease", "trash"]),
        }
    ),
    min_size=1,
    max_size=8,
)


def build_families(db: SessionDB, families: list[dict[str, Any]]) -> None:
    now = time.time()
    for number, family in enumerate(families):
        name = f"s{number}"
        parent = f"s{family['parent']}" if 0 <= family["parent"] < number else None
        db.create_session(
            name, family["source"], parent_session_id=parent, started_at=now - family["started"] * DAY
        )
        for days in family["said"]:
            db.append_message(name, "user", "x", timestamp=now - days * DAY)
        if family["end"] is not None:
            db.end_session(name, family["end"])
    for number, family in enumerate(families):
        name = f"s{number}"
        if family["kept"] == "pin":
            db.pin_session(name, segment=True)
        elif family["kept"] == "route":
            change_rows(
                db,
                "INSERT INTO routing (session_key, platform, chat_type, chat_id, session_id, created_at, updated_at)"
                " VALUES (?, 'telegram', 'dm', ?, ?, 1, 1)",
                name,
                name,
                name,
            )
        elif family["kept"] in ("lease", "old lease"):
            until = now + (60 if family["kept"] == "lease" else -60)
            lease = (db.get_conversation_root(name), until)
            change_rows(
                db,
                "INSERT INTO leases (conversation_id, epoch, expires_at) VALUES (?, 1, ?) ON CONFLICT DO NOTHING",
                *lease,
            )
        elif family["kept"] == "trash":
            db.trash_session(name, segment=number % 2 == 0)


@settings(max_examples=scale_examples(200))
@given(
    families=FAMILIES,
    days=st.sampled_from([0, 1, 30, 90, 150.5]),
    source=st.sampled_from([None, "cli", "telegram"]),
)
def test_the_candidates_are_exactly_what_a_prune_deletes(
    tmp_path_factory: pytest.TempPathFactory, families: list[dict[str, Any]], days: float, source: str | None
) -> None:
    with SessionDB(tmp_path_factory.mktemp("families") / "state.db", durability="normal") as db:
        build_families(db, families)
        before = ids(db)
        planned = [row["id"] for row in db.list_prune_candidates(days, source)]
        roots = {name: column(db, name, "root_id") for name in before}
        assert len(planned) == len(set(planned))
        assert ids(db) == before
        assert db.prune_sessions(days, source) == len(planned)
        assert before - ids(db) == set(planned)
        for name in planned:
            assert {other for other in before if roots[other] == roots[name]} <= set(planned), "as a whole"
        kept = {
            f"s{number}"
            for number, one in enumerate(families)
            if one["kept"] in ("pin", "route", "lease", "trash")
        }
        kept |= {f"s{number}" for number, one in enumerate(families) if one["end"] is None}
        assert not kept & set(planned)
        assert db.list_prune_candidates(days, source) == []
        assert db.verify().ok


# ---------------------------------------------------------------- thinning

LONG = "first line of the output\n" + "x" * 30_000 + "\nlast line of the output"


@pytest.fixture
def tools(db: SessionDB) -> SessionDB:
    """Create a conversation unused for 100 days, with small and large tool output."""
    db.create_session("old", "cli", started_at=ago(100))
    calls = [{"id": "c1", "function": {"name": "run", "arguments": "{}"}}]
    db.append_message("old", "user", LONG, timestamp=ago(100))
    db.append_message("old", "assistant", "I look", tool_calls=calls, timestamp=ago(100))
    db.append_message("old", "tool", LONG, tool_name="run", tool_call_id="c1", timestamp=ago(100))
    db.append_message("old", "tool", "short", tool_name="run", timestamp=ago(100))
    db.append_message("old", "assistant", LONG, timestamp=ago(100))
    return db


def test_large_old_tool_output_keeps_its_ends_and_everything_else_stays(tools: SessionDB) -> None:
    before = tools.get_messages("old")
    assert tools.search_messages("last AND first", role_filter=["tool"])
    seen = tools.list_sessions_rich()
    planned = tools.thin(dry_run=True)
    assert tools.get_messages("old") == before
    assert tools.thin() == planned == (1, len(LONG) - 800, 1)
    after = tools.get_messages("old")
    cut = after[2]
    assert cut["content"].startswith(LONG[:400] + "\n[… ")
    assert cut["content"].endswith(" …]\n" + LONG[-400:])
    assert f"{planned.bytes:,} bytes" in cut["content"]
    assert time.strftime("%Y-%m-%d") in cut["content"]
    assert cut["thinned_bytes"] == planned.bytes
    same = {**before[2], "content": cut["content"], "thinned_bytes": planned.bytes}
    assert after == [before[0], before[1], same, *before[3:]]
    assert tools.list_sessions_rich() == seen
    assert tools.search_messages("last AND dropped", role_filter=["tool"])
    assert tools.search_messages("x" * 30_000, role_filter=["tool"]) == []
    assert tools.verify().ok


def test_a_body_is_thinned_once(tools: SessionDB) -> None:
    assert tools.thin(larger_than=1000).messages == 1
    before = tools.get_messages("old")
    assert tools.thin(larger_than=10) == tools.thin(larger_than=0, dry_run=True) == (0, 0, 0)
    assert tools.get_messages("old") == before


UNTHINNED: dict[str, list[tuple[Any, ...]]] = {
    "pinned": [("UPDATE sessions SET pinned_at = 1",)],
    "in the trash": [("UPDATE sessions SET trashed_at = 1",)],
    "used": [("UPDATE messages SET timestamp = ? WHERE content = 'short'", time.time())],
    "leased": [
        ("INSERT INTO leases (conversation_id, epoch, expires_at) VALUES ('old', 1, 99999999999.0)",),
    ],
    "not so large": [("UPDATE messages SET content = ? WHERE content = ?", LONG[:16_384], LONG)],
    "carried elsewhere": [
        ("INSERT INTO sessions (id, source, started_at, root_id) VALUES ('new', 'cli', 9e9, 'new')",),
        ("INSERT INTO carried_context VALUES ('new', 0, 2, 3)",),
    ],
}


@pytest.mark.parametrize("why", UNTHINNED)
def test_what_is_not_thinned(tools: SessionDB, why: str) -> None:
    for statement, *values in UNTHINNED[why]:
        change_rows(tools, statement, *values)
    assert tools.thin(dry_run=True) == tools.thin() == (0, 0, 0)


def test_carried_output_is_thinned_for_the_whole_conversation(tools: SessionDB) -> None:
    tools.end_session("old", "compression")
    tools.create_session("next", "cli", parent_session_id="old", started_at=ago(99))
    carry(tools, "next", 2, 3)
    assert tools.thin().messages == 1
    assert "bytes of tool output dropped" in str(tools.get_messages_as_conversation("next"))


def test_structured_output_becomes_the_text_in_it(db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=ago(100))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}
    db.append_message("old", "tool", [{"type": "text", "text": "a picture"}, picture], timestamp=ago(100))
    db.append_message("old", "tool", [{"type": "text", "text": "ü" * 20_000}], timestamp=ago(100))
    assert db.thin(dry_run=True) == db.thin()
    visible, long = contents(db, "old")
    assert visible.startswith("a picture\n[… 30,")
    assert read_value(db, "SELECT count(*) FROM blobs") == 0
    assert long.startswith("ü" * 400 + "\n[… 38,")
    assert long.endswith("ü" * 400)


@pytest.mark.parametrize(
    "wrong", [{"older_than_days": -1}, {"larger_than": "16k"}, {"older_than_days": None}]
)
def test_arguments_of_thinning_are_checked(tools: SessionDB, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        tools.thin(**wrong)


def test_maintenance_thins_only_if_configured(tools: SessionDB) -> None:
    tools.end_session("old", "x")
    assert "thinned" not in tools.maybe_auto_prune_and_vacuum(retention_days=999)
    result = tools.maybe_auto_prune_and_vacuum(retention_days=999, min_interval_hours=0, thin_days=30)
    assert result == {"skipped": False, "pruned": 0, "vacuumed": True, "thinned": len(LONG) - 800}


def test_a_thinning_that_is_repeated_after_its_commit_counts_once(tools: SessionDB) -> None:
    planned = tools.thin(dry_run=True)
    assert Thinner(RepeatingEngine(tools)).thin() == planned


@settings(max_examples=scale_examples(100))
@given(
    families=FAMILIES,
    sizes=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 40), st.booleans()), max_size=10),
    days=st.sampled_from([0, 30, 100]),
    larger_than=st.sampled_from([-1, 0, 1000, 5000]),
)
def test_a_dry_run_of_thinning_reports_what_would_happen(
    tmp_path_factory: pytest.TempPathFactory,
    families: list[dict[str, Any]],
    sizes: list[tuple[int, int, bool]],
    days: float,
    larger_than: int,
) -> None:
    with SessionDB(tmp_path_factory.mktemp("thinning") / "state.db", durability="normal") as db:
        build_families(db, families)
        for number, size, structured in sizes:
            if db.get_session(f"s{number}") is not None:
                text = "wörd " * (size * 60)
                db.append_message(
                    f"s{number}", "tool", [{"text": text}] if structured else text, timestamp=1.0
                )

        def size_of_all() -> int:
            return int(read_value(db, "SELECT sum(octet_length(content)) FROM messages") or 0)

        before, count = size_of_all(), db.message_count()
        planned = db.thin(days, larger_than, dry_run=True)
        assert size_of_all() == before
        assert db.thin(days, larger_than) == planned
        assert db.message_count() == count
        assert before - planned.bytes <= size_of_all() <= before
        marks = "SELECT count(*), coalesce(sum(thinned_bytes), 0), count(DISTINCT session_id) FROM messages"
        assert read_rows(db, f"{marks} WHERE thinned_bytes IS NOT NULL") == [planned]
        assert db.thin(days, larger_than) == (0, 0, 0)
        assert db.verify().ok
