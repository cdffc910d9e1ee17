"""Maintenance runs while the store is used. Open sessions are kept. A session that a crash left open is
closed first, and its age counts from that time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.db.session_db import SessionDB
from hermes.store.processes import current_record
from hermes.store.retention.deletion import Retention
from hermes.store.retention.maintenance import Maintenance
from tests.stored_rows import change_rows

DAY = 86_400.0
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")

OTHER_PROCESS = """
import sys, time
from hermes_state import SessionDB
db = SessionDB()
{work}
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def db(home: Path) -> Iterator[SessionDB]:
    store = SessionDB(home / "state.db")
    yield store
    store.close()


def use_in_process(home: Path, work: str) -> subprocess.Popen[str]:
    """Start another process that runs `work` on the store. The process then stays alive until its stdin is
    closed."""
    child = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS.format(work=work)],
        env={**os.environ, "HERMES_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def leave(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def add_session(db: SessionDB, name: str, days: float, source: str = "cli") -> None:
    db.create_session(name, source, started_at=time.time() - days * DAY)
    db.append_message(name, "user", f"said in {name}", timestamp=time.time() - days * DAY)


def row_of(db: SessionDB, name: str) -> dict[str, Any]:
    row = db.get_session(name)
    assert row is not None, name
    return row


def date_back(db: SessionDB, name: str, days: float) -> None:
    """Move the times of a session `days` days into the past."""
    at = time.time() - days * DAY
    change_rows(db, "UPDATE messages SET timestamp = ? WHERE session_id = ?", at, name)
    change_rows(
        db,
        "UPDATE sessions SET started_at = ?, last_active = ?, conversation_active = ? WHERE id = ?",
        at,
        at,
        at,
        name,
    )


CREATED = "db.create_session('s', 'cli'); db.append_message('s', 'user', 'hello')"


@pytest.mark.parametrize(
    "work",
    [
        CREATED,
        "db.ensure_session('s', 'cli')",
        "db.append_message('s', 'user', 'more')",
        "db.reopen_session('s')",
        "import os\nif os.fork():\n    os._exit(0)\ndb = SessionDB()\ndb.append_message('s', 'user', 'a child')",
    ],
    ids=["create", "ensure", "append", "reopen", "fork"],
)
def test_a_session_that_a_living_process_uses_is_neither_closed_nor_deleted(
    db: SessionDB, home: Path, work: str
) -> None:
    if work != CREATED:
        add_session(db, "s", 100)
        change_rows(db, "UPDATE sessions SET process = NULL")
    if "reopen" in work:
        db.end_session("s", "cli_close")
    child = use_in_process(home, work)
    try:
        date_back(db, "s", 100)
        result = db.maybe_auto_prune_and_vacuum()
        assert "error" not in result
        row = row_of(db, "s")
        assert (row["ended_at"], row["end_reason"]) == (None, None)
    finally:
        leave(child)
    if "fork" not in work:  # a child whose parent no longer waits for it
        db.maybe_auto_prune_and_vacuum(min_interval_hours=0)
        assert row_of(db, "s")["end_reason"] == "orphaned"


def test_the_creator_keeps_its_session_when_another_process_wrote_to_it_and_died(
    db: SessionDB, home: Path
) -> None:
    add_session(db, "s", 100)
    leave(use_in_process(home, "db.append_message('s', 'user', 'from another process')"))
    date_back(db, "s", 100)
    db.maybe_auto_prune_and_vacuum()
    assert row_of(db, "s")["ended_at"] is None


def test_dead_processes_are_removed_from_the_record(db: SessionDB, home: Path) -> None:
    add_session(db, "s", 1)
    for number in range(3):
        leave(use_in_process(home, f"db.append_message('s', 'user', 'number {number}')"))
    db.append_message("s", "user", "here again")
    records = json.loads(row_of(db, "s")["process"])
    pids = [record["pid"] for record in (records if isinstance(records, list) else [records])]
    assert os.getpid() in pids
    assert len(pids) <= 2


@needs_proc
@pytest.mark.parametrize(
    ("changes", "closed"),
    [
        ({}, False),
        ({"start": "1"}, True),  # its process id belongs to another process now
        ({"boot": "another"}, True),  # the machine was restarted
        ({"namespace": "pid:[1]"}, False),  # another container on this machine
        ({"host": "elsewhere", "boot": "another"}, False),  # another machine
        ({"host": "renamed"}, False),
        ({"host": "renamed", "start": "1"}, True),
    ],
)
def test_only_a_process_that_is_certainly_dead_loses_its_session(
    db: SessionDB, changes: dict[str, str], closed: bool
) -> None:
    add_session(db, "s", 100)
    change_rows(db, "UPDATE sessions SET process = ?", json.dumps(json.loads(current_record()) | changes))
    db.maybe_auto_prune_and_vacuum()
    assert (row_of(db, "s")["end_reason"] == "orphaned") is closed


@pytest.mark.parametrize("source", ["tui", "api-server", "tool", "unknown", "telegram"])
def test_open_sessions_of_other_sources_are_left_alone(db: SessionDB, source: str) -> None:
    add_session(db, "s", 1000, source)
    db.create_session("empty", source, started_at=time.time() - 1000 * DAY)
    change_rows(db, "UPDATE sessions SET process = NULL")
    assert db.maybe_auto_prune_and_vacuum(retention_days=0)["pruned"] == 0
    assert row_of(db, "s")["ended_at"] is None
    assert row_of(db, "empty")["ended_at"] is None


@pytest.mark.parametrize("retention_days", [0, 90])
def test_sessions_that_were_open_at_the_start_are_not_deleted(db: SessionDB, retention_days: float) -> None:
    add_session(db, "crashed", 1000)
    add_session(db, "compressed", 1000)
    db.end_session("compressed", "compression")
    db.create_session("orphan", "cli", parent_session_id="compressed", started_at=time.time() - 900 * DAY)
    db.append_message("orphan", "user", "hello", timestamp=time.time() - 900 * DAY)
    change_rows(db, "UPDATE sessions SET process = NULL")
    assert db.maybe_auto_prune_and_vacuum(retention_days=retention_days)["pruned"] == 0
    assert row_of(db, "crashed")["end_reason"] == "orphaned"
    assert row_of(db, "orphan")["ended_at"] is not None
    # From now on, the age of these sessions counts from the time at which they were closed.
    assert db.list_prune_candidates(90) == []
    assert db.prune_sessions(90) == 0
    assert db.maybe_auto_prune_and_vacuum(min_interval_hours=0)["pruned"] == 0
    change_rows(db, "UPDATE sessions SET ended_at = ?", time.time() - 91 * DAY)
    assert {row["id"] for row in db.list_prune_candidates(90)} == {"crashed", "compressed", "orphan"}
    assert db.prune_sessions(90) == 3


class EndsMeanwhile(Retention):
    """A retention manager in which two sessions end after maintenance has begun. They end before sessions are
    deleted."""

    def prune(self, *arguments: Any, **named: Any) -> int:
        from hermes.store.sessions.sessions import Sessions

        Sessions(self._engine).end("s", "cli_close")
        Sessions(self._engine).end("ghost", "cli_close")
        return super().prune(*arguments, **named)


def test_sessions_that_end_during_maintenance_are_not_deleted(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_session(db, "s", 1000)
    db.create_session("ghost", "tui", started_at=time.time() - 1000 * DAY)
    monkeypatch.setattr("hermes.store.retention.maintenance.Retention", EndsMeanwhile)
    result = Maintenance(db._engine).maybe_auto_prune_and_vacuum(retention_days=0)
    assert result == {"skipped": False, "pruned": 0, "vacuumed": False}
    assert row_of(db, "s")["end_reason"] == "cli_close"
    monkeypatch.undo()
    assert db.maybe_auto_prune_and_vacuum(retention_days=0, min_interval_hours=0)["pruned"] == 2


@pytest.mark.parametrize("trusted", [False, True])
def test_the_moment_of_closing_survives_an_export(db: SessionDB, tmp_path: Path, trusted: bool) -> None:
    add_session(db, "s", 1000)
    change_rows(db, "UPDATE sessions SET process = NULL")
    db.maybe_auto_prune_and_vacuum()
    other = SessionDB(tmp_path / "other" / "state.db")
    other.import_sessions(list(db.export_all()), trusted=trusted)
    assert other.prune_sessions(90) == 0
    assert other.prune_sessions(0) == 1
    other.close()


def test_an_orphan_that_was_used_again_ages_by_its_activity(db: SessionDB) -> None:
    add_session(db, "s", 1000)
    change_rows(db, "UPDATE sessions SET process = NULL")
    db.maybe_auto_prune_and_vacuum()
    db.reopen_session("s")
    db.end_session("s", "cli_close")
    assert [row["id"] for row in db.list_prune_candidates(90)] == ["s"]


def test_maintenance_thins_no_terminal_session_of_a_living_process(db: SessionDB, home: Path) -> None:
    add_session(db, "s", 100)
    db.append_message("s", "tool", "x" * 30_000, timestamp=time.time() - 100 * DAY)
    result = db.maybe_auto_prune_and_vacuum(thin_days=30)
    assert "thinned" not in result
    assert db.thin().messages == 1  # requested by a person


def test_maintenance_leaves_the_continuation_of_a_living_process_open(db: SessionDB) -> None:
    add_session(db, "parent", 100, "tui")
    db.end_session("parent", "compression")
    db.create_session("next", "tui", parent_session_id="parent", started_at=time.time() - 90 * DAY)
    db.append_message("next", "user", "hello", timestamp=time.time() - 90 * DAY)
    db.maybe_auto_prune_and_vacuum()
    assert row_of(db, "next")["ended_at"] is None
    change_rows(db, "UPDATE sessions SET process = NULL")
    db.maybe_auto_prune_and_vacuum(min_interval_hours=0)
    assert row_of(db, "next")["end_reason"] == "orphaned_compression"
