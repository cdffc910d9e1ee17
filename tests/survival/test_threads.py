"""Threads share one store and its group commits. Ctrl-C and forks can happen at any point."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.survival.processes import LONG, Worker


def test_threads_append_exactly_once_in_their_order(home: Path) -> None:
    threads, each = 16, 60
    with Worker() as worker:
        result = worker.ask("append_in_threads", path=str(home / "state.db"), threads=threads, each=each)
    assert result["wrong"] == []
    assert result["refused"] == [len(range(3, each, 7))] * threads
    with SessionDB() as db:
        for me in range(threads):
            rows = db.get_messages(f"t{me}")
            assert [row["content"] for row in rows] == [f"t{me}n{n}" for n in range(each)]
            assert [row["id"] for row in rows] == result["ids"][me]
            session = db.get_session(f"t{me}")
            assert session is not None
            assert session["message_count"] == each
        assert db.message_count() == threads * each
        assert db.verify().ok


def test_interrupts_lose_nothing_while_threads_write(home: Path) -> None:
    """Ctrl-C interrupts the main thread repeatedly. Another program sometimes holds the lock."""
    path = home / "state.db"
    SessionDB(path).close()
    seconds = 20.0 if LONG else 3.0
    rng = random.Random(1)
    with Worker() as writers, Worker() as holder:
        writers.start("interrupted_writers", path=str(path), threads=8, seconds=seconds)
        writers.wait_for("open")
        holder.start("hold_lock_now_and_then", path=str(path), seconds=seconds, each=0.03)
        holder.wait_for("held")
        until = time.monotonic() + seconds - 0.3
        while time.monotonic() < until:
            time.sleep(rng.random() * 0.03)
            writers.signal(signal.SIGINT)
        result = next(answer for answer in writers.lines() if "acknowledged" in answer)
    assert result["wrong"] == []
    assert result["interrupted"] > 10
    _check_acknowledged(result["acknowledged"])


def test_an_interrupted_leader_reports_the_truth_to_its_followers(home: Path) -> None:
    path = home / "state.db"
    SessionDB(path).close()
    with Worker() as worker, Worker() as holder:
        worker.start("interrupted_leader", path=str(path), followers=8)
        worker.wait_for("queued")
        holder.start("hold_write_lock", path=str(path), seconds=1.0)
        holder.wait_for("held")
        worker.start("go on")
        result = worker.result()
    assert result["wrong"] == []
    assert len(result["acknowledged"]) >= 8
    _check_once(result["acknowledged"])


def test_an_interrupt_at_any_line_of_the_write_path_affects_no_other_thread(home: Path) -> None:
    with Worker() as worker:
        result = worker.ask("interrupted_everywhere", path=str(home / "state.db"), last=400, crowd=False)
    assert result["bad"] == {}
    assert result["lines"] > 20  # the write path was covered
    _check_once(result["acknowledged"])


def test_an_interrupt_among_competing_threads_affects_no_other_thread(home: Path) -> None:
    with Worker() as worker:
        result = worker.ask("interrupted_everywhere", path=str(home / "state.db"), last=60, crowd=True)
    assert result["bad"] == {}
    _check_once(result["acknowledged"])


def test_an_interrupt_at_any_line_of_a_read_affects_no_later_read(home: Path) -> None:
    with Worker() as worker:
        result = worker.ask("interrupted_reads", path=str(home / "state.db"), last=200)
    assert result["bad"] == {}


def test_a_forked_child_is_refused_and_does_no_harm(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        result = worker.ask("fork_with_open_store", path=str(path))
        worker.kill()
    assert result.get("failed") is None
    assert {result[name] for name in ("append", "read", "search")} == {"StoreClosed"}
    assert result["warned"] == []  # no warning, because the child opened its own store
    with SessionDB(path) as db:
        assert [row["content"] for row in db.get_messages("parent")] == ["before", "meanwhile", "afterwards"]
        assert [row["content"] for row in db.get_messages("child")] == ["by the child"]
        assert db.verify().ok


def _check_acknowledged(acknowledged: list[list[Any]]) -> None:
    """Check that every append that returned is stored once, in the order in which its writer made it. An
    append is [writer, number, id]."""
    assert all(isinstance(number, int) for _who, _n, number in acknowledged)
    with SessionDB() as db:
        rows = db.get_messages("shared")
        assert db.verify().ok
    times = Counter(row["content"] for row in rows)
    assert {text: n for text, n in times.items() if n > 1} == {}
    stored = {row["id"]: row["content"] for row in rows}
    assert [entry for entry in acknowledged if stored.get(entry[2]) != f"{entry[0]}n{entry[1]}"] == []
    for who in {who for who, _n, _id in acknowledged}:
        numbers = [
            int(row["content"].rpartition("n")[2]) for row in rows if row["content"].startswith(f"{who}n")
        ]
        assert numbers == sorted(numbers)


def _check_once(acknowledged: list[list[Any]]) -> None:
    with SessionDB() as db:
        rows = db.get_messages("shared")
        report = db.verify()
        assert report.ok, report.lines()
        session = db.get_session("shared")
        assert session is not None
        assert session["message_count"] == len(rows)
    assert max(Counter(row["content"] for row in rows).values()) == 1
    stored = {row["id"]: row["content"] for row in rows}
    assert [entry for entry in acknowledged if stored.get(entry[1]) != entry[0]] == []


def test_without_new_threads_every_committed_write_is_acknowledged(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can be started, checkpoints are delayed. Committed writes are still acknowledged."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with SessionDB() as db:
        db.create_session("s", "cli")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for number in range(120):
            db.append_message("s", "user", str(number))
        assert len(db.get_messages("s")) == 120
        monkeypatch.undo()
        for number in range(120):
            db.append_message("s", "user", str(number))
