"""Many processes open, migrate, write, read, prune and delete at the same time. Sometimes one of them holds
the lock.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.store.sqlite.process_fairness import WriterQueue
from hermes_state import SessionDB
from tests.store.sqlite import reference_databases
from tests.survival.processes import LONG, Worker

pytestmark = pytest.mark.full


def _start(stack: ExitStack, count: int) -> list[Worker]:
    """Start `count` workers. Each is ready and waits for a command."""
    workers = [stack.enter_context(Worker()) for _ in range(count)]
    for worker in workers:
        worker.ask("logged")
    return workers


def test_sixteen_open_a_store_that_does_not_exist(home: Path) -> None:
    path = home / "state.db"
    with ExitStack() as stack:
        workers = _start(stack, 16)
        for n, worker in enumerate(workers):
            worker.start("open_store", path=str(path))
            worker.start("append", session=f"s{n}", texts=["hello"])
        for worker in workers:
            worker.result()
            worker.result()
        for worker in workers:
            assert worker.ask("count_all") == [16, 16]
            assert len(worker.ask("found", query="hello")) == 16
            assert worker.ask("logged") == []
        for worker in workers:
            worker.start("close")
        for worker in workers:
            worker.result()
    leftovers = {file.name for file in home.iterdir()} - {"state.db", "state.db.lock"}
    assert leftovers == set()
    with SessionDB(path) as db:
        assert db.verify().ok


def test_sixteen_open_a_store_that_is_a_version_behind(home: Path) -> None:
    home.mkdir(mode=0o700)
    path = home / "state.db"
    expected = reference_databases.build(path, 10, sessions=40)
    path.chmod(0o600)
    with ExitStack() as stack:
        workers = _start(stack, 16)
        for worker in workers:
            worker.start("open_store", path=str(path))
        for worker in workers:
            worker.result()
        counts = [worker.ask("count_all") for worker in workers]
        assert counts == [[expected.total_sessions, expected.total_messages]] * 16
        planted = [worker.ask("found", query=reference_databases.PLANTED_WORD) for worker in workers]
        assert len(planted[0]) == 1
        assert planted == [planted[0]] * 16
        lines = [line for worker in workers for line in worker.ask("logged")]
        assert len([line for line in lines if "migrated from version 10" in line]) == 1
        for n, worker in enumerate(workers):
            worker.ask("append", session=f"new{n}", texts=["after the migration"])
    backups = [file.name for file in (home / "state.db.backups").iterdir()]
    assert len([name for name in backups if "before-migration" in name]) == len(backups) == 1
    with SessionDB(path) as db:
        assert len(db.search_messages("migration", limit=100)) >= 16
        for n in range(16):
            db.delete_session(f"new{n}")
        expected.check(db.raw(), ignore=("schema_version",))
        report = db.verify()
        assert report.ok, report.lines()


def test_writers_readers_a_pruner_and_a_deleter(home: Path) -> None:
    path, seconds = home / "state.db", 30.0 if LONG else 3.0
    names = [f"w{n}" for n in range(8)]
    with ExitStack() as stack:
        workers = _start(stack, 12)
        writers, readers, pruner, deleter = workers[:8], workers[8:10], workers[10], workers[11]
        for me, writer in zip(names, writers, strict=True):
            writer.start("write_for", path=str(path), me=me, seconds=seconds)
        for writer in writers:
            writer.wait_for("open")
        for reader in readers:
            reader.start("read_for", path=str(path), seconds=seconds - 0.5, writers=names)
        pruner.start("prune_for", path=str(path), seconds=seconds)
        deleter.start("delete_for", path=str(path), victims=[f"victim-{me}" for me in names])
        deleted = [said["deleted"] for said in deleter.lines() if "deleted" in said]
        wrote = [next(said for said in writer.lines() if "count" in said) for writer in writers]
        looked = [reader.wait_for("looks") for reader in readers]
        pruned = pruner.wait_for("pruned")

    assert sorted(deleted) == [f"victim-{me}" for me in names]
    assert min(looked) >= 1
    assert pruned >= 1
    assert all(said["deleted"] for said in wrote)  # each writer got an error for its deleted session
    assert max(said["worst"] for said in wrote) < 20  # no writer starved: far below the time limit of a write
    with SessionDB(path) as db:
        for me, totals in zip(names, wrote, strict=True):
            texts = [row["content"] for row in db.get_messages(f"keep-{me}")]
            assert texts == [f"kept{me}n{n} word" for n in range(totals["count"])]
            assert db.get_session(f"victim-{me}") is None
            assert db.search_messages(f"doomed{me}*", limit=1000) == []
        left = {said for one in wrote for said in one["ended"] if db.get_session(said) is not None}
        for session in left:  # sessions that are not yet pruned are complete
            assert db.message_count(session) == 1
        assert pruned + len(left) == sum(len(said["ended"]) for said in wrote)
        assert len(db.search_messages("word", limit=100_000)) == sum(said["count"] for said in wrote)
        report = db.verify()
        assert report.ok, report.lines()


@pytest.mark.timeout(180)
def test_all_processes_wait_for_one_that_holds_the_lock(home: Path) -> None:
    path, seconds = home / "state.db", 20.0 if LONG else 4.0
    SessionDB(path).close()
    with ExitStack() as stack:
        holder, *writers = _start(stack, 4)
        for n, writer in enumerate(writers):
            writer.start("keep_appending", path=str(path), session=f"s{n}", tag=f"w{n}")
            writer.wait_for("n")
        holder.start("hold_write_lock", path=str(path), seconds=seconds)
        holder.wait_for("held")
        began = time.monotonic()
        with SessionDB(path) as db:  # opening and reading do not wait
            assert db.session_count() == 3
            assert [row["content"].split()[0] for row in db.get_messages("s0")][:1] == ["w0n0"]
            assert len(db.search_messages("fox", limit=100_000)) == db.message_count()
            assert len(db.list_sessions_rich(limit=10)) == 3
            looked = time.monotonic() - began
            before = db.message_count()
            db.append_message("s0", "tool", "somebody who waits")
            waited = time.monotonic() - began
            holder.result()
        assert looked < min(2.0, seconds / 2)
        assert seconds * 0.8 < waited < seconds + 5
        acknowledged: list[dict[int, int]] = [{0: 0} for _ in writers]
        for n, writer in enumerate(writers):
            acknowledged[n] = {}
            for _ in range(before):  # more than before the lock, so each writer continues
                line = writer.line()
                acknowledged[n][line["n"]] = line["id"]
            writer.kill()
            for line in writer.lines():
                acknowledged[n][line["n"]] = line["id"]
    with SessionDB(path) as db:
        for n, known in enumerate(acknowledged):
            rows = [row for row in db.get_messages(f"s{n}") if row["role"] != "tool"]
            assert [row["content"].split()[0] for row in rows] == [
                f"w{n}n{number}" for number in range(len(rows))
            ]
            assert {number: rows[number]["id"] for number in known} == known
        assert len(db.search_messages("waits")) == 1
        assert db.verify().ok


def test_a_stopped_process_in_the_queue_does_not_block_the_others(home: Path) -> None:
    """A stopped process holds no lock of SQLite, only its place in the queue. It continues when it is
    resumed."""
    path = home / "state.db"
    with SessionDB(path) as db, ExitStack() as stack:
        db.create_session("s", "cli")
        stopped, other = _start(stack, 2)
        for worker in (stopped, other):
            worker.ask("open_store", path=str(path))
        holder, line = db.raw(), WriterQueue(path)
        holder.execute("BEGIN IMMEDIATE")
        stopped.start("append_only", session="s", texts=["of the stopped one"])
        while not line.is_occupied():
            time.sleep(0.005)
        stopped.signal(signal.SIGSTOP)
        holder.rollback()
        began = time.monotonic()
        for number in range(3):
            other.ask("append_only", session="s", texts=[f"other {number}"])
        assert time.monotonic() - began < 30  # otherwise each write would wait for its whole time limit
        stopped.signal(signal.SIGCONT)
        stopped.result()
        line.close()
        texts = [row["content"] for row in db.get_messages("s")]
    assert texts == ["other 0", "other 1", "other 2", "of the stopped one"]
