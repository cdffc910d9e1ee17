"""The write-ahead log or its index is removed or replaced while a store is open. No acknowledged row is lost.

Connections that were open before still use the removed log. Its rows are nowhere else. The tests compare the
acknowledged rows with the rows that a new process reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hermes.store.engine import Writer
from hermes.store.sqlite.engine import SqliteEngine
from hermes_state import SessionDB
from tests.survival.processes import LONG, Refused, Worker

pytestmark = pytest.mark.full

BEFORE = [f"before{n}" for n in range(45)]
REMOVED = "write-ahead log of .* was removed"

Accident = Callable[[str], None]


def _remove(*endings: str) -> Accident:
    def accident(path: str) -> None:
        for ending in endings:
            os.unlink(path + ending)

    return accident


def _move_away(path: str) -> None:
    os.rename(path + "-wal", path + "-wal.away")


def _put_in_place(content: bytes) -> Accident:
    def accident(path: str) -> None:
        Path(path + ".other").write_bytes(content)
        os.replace(path + ".other", path + "-wal")

    return accident


LOG, INDEX, BOTH, MOVED, EMPTY, OTHER = (
    pytest.param(_remove("-wal"), id="log"),
    pytest.param(_remove("-shm"), id="index"),
    pytest.param(_remove("-wal", "-shm"), id="both"),
    pytest.param(_move_away, id="moved"),
    pytest.param(_put_in_place(b""), id="empty"),
    pytest.param(_put_in_place(bytes(range(256)) * 400), id="other"),
)
ALL_ACCIDENTS = pytest.mark.parametrize("accident", [LOG, INDEX, BOTH, MOVED, EMPTY, OTHER])
ACCIDENTS = pytest.mark.parametrize("accident", [LOG, INDEX, BOTH, OTHER])
FEW_ACCIDENTS = pytest.mark.parametrize("accident", [LOG, BOTH])


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "state.db")


def _start(worker: Worker, path: str, name: str = "main") -> None:
    worker.ask("open_store", path=path, name=name)
    worker.ask("append", session="s", texts=BEFORE, name=name)


def _check(path: str, texts: list[str], session: str = "s") -> None:
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        assert fresh.ask("contents", session=session) == texts
        assert fresh.ask("health") == []
        assert len(fresh.ask("found", query=texts[0])) == 1


@ALL_ACCIDENTS
@pytest.mark.parametrize("end", ["kill", "close"])
def test_rows_from_before_and_after_are_kept(path: str, accident: Accident, end: str) -> None:
    with Worker() as ours:
        _start(ours, path)
        accident(path)
        ours.ask("append", session="s", texts=["after", "and after"])
        assert ours.ask("contents", session="s") == [*BEFORE, "after", "and after"]
        assert len([line for line in ours.ask("logged") if "write-ahead log" in line]) == 1
        if end == "close":
            ours.ask("close")
        ours.kill()
    _check(path, [*BEFORE, "after", "and after"])


@ALL_ACCIDENTS
def test_closing_without_another_write_keeps_the_rows(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        accident(path)
        ours.ask("close")
        ours.kill()
    _check(path, BEFORE)


@ACCIDENTS
def test_a_read_detects_the_removal_and_keeps_the_rows(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        accident(path)
        assert ours.ask("contents", session="s") == BEFORE
        ours.kill()
    _check(path, BEFORE)


@FEW_ACCIDENTS
def test_plain_sql_continues(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        assert ours.ask("execute_raw", sql="SELECT count(*) FROM messages") == [[45]]
        accident(path)
        ours.ask("execute_raw", sql="UPDATE sessions SET title = 'by a script'")
        ours.kill()
    _check(path, BEFORE)
    with SessionDB(path) as db:
        session = db.get_session("s")
        assert session is not None
        assert session["title"] == "by a script"


@FEW_ACCIDENTS
def test_a_scoped_handle_continues(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        ours.ask("append_scoped", person="ann", texts=["mine"])
        accident(path)
        assert ours.ask("contents_scoped", person="ann") == ["mine"]
        ours.ask("append_scoped", person="ann", texts=["mine too"])
        assert ours.ask("contents_scoped", person="ann") == ["mine", "mine too"]
        ours.kill()
    _check(path, BEFORE)
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        assert fresh.ask("contents_scoped", person="ann") == ["mine", "mine too"]


@ACCIDENTS
def test_several_stores_of_one_process_all_continue(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        for name in ("second", "third"):
            ours.ask("open_store", path=path, name=name)
        ours.ask("append", session="s", texts=["by second"], name="second")
        accident(path)
        ours.ask("open_store", path=path, name="late")
        for name in ("late", "third", "main", "second"):
            ours.ask("append", session="s", texts=[f"after by {name}"], name=name)
        ours.ask("close", name="main")
        after = ["after by late", "after by third", "after by main", "after by second"]
        assert ours.ask("contents", session="s", name="third") == [*BEFORE, "by second", *after]
        ours.kill()
    _check(path, [*BEFORE, "by second", *after])


@ACCIDENTS
def test_threads_that_append_lose_nothing(path: str, accident: Accident) -> None:
    with Worker() as ours:
        _start(ours, path)
        ours.start("append_with_threads", session="s", threads=6, count=60)
        stored, wrong = [], None
        for line in ours.lines():
            if "stored" in line:
                stored.append(line["stored"])
                if len(stored) in (40, 200):
                    accident(path)
            wrong = line.get("wrong", wrong)
        assert wrong == []
        assert len(stored) == 360
        ours.kill()
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        found = fresh.ask("contents", session="s")
        assert found[:45] == BEFORE
        assert sorted(found[45:]) == sorted(stored)
        assert fresh.ask("health") == []


@FEW_ACCIDENTS
@pytest.mark.parametrize("second", ["append", "close", "read"])
def test_two_processes_that_both_hold_the_removed_log(path: str, accident: Accident, second: str) -> None:
    """The first process that writes saves the rows of both processes. The other process detects that and
    continues."""
    with Worker() as one, Worker() as two:
        _start(one, path)
        two.ask("open_store", path=path)
        two.ask("append", session="s", texts=["by two"])
        accident(path)
        one.ask("append", session="s", texts=["after by one"])
        expected = [*BEFORE, "by two", "after by one"]
        if second == "append":
            two.ask("append", session="s", texts=["after by two"])
            one.ask("append", session="s", texts=["last by one"])
            expected += ["after by two", "last by one"]
        elif second == "close":
            two.ask("close")
        assert one.ask("contents", session="s") == expected
        if second != "close":
            assert two.ask("contents", session="s") == expected
        for worker in (two, one):
            worker.kill()
    _check(path, expected)


@ACCIDENTS
def test_two_processes_that_both_append_meanwhile(path: str, accident: Accident) -> None:
    with Worker() as one, Worker() as two:
        _start(one, path)
        two.ask("open_store", path=path)
        workers = {"one": one, "two": two}
        for worker in workers.values():
            worker.start("append_with_threads", session="s", threads=2, count=50)
        stored: dict[str, list[str]] = {name: [] for name in workers}
        for name, worker in workers.items():
            for line in worker.lines():
                if "stored" in line:
                    stored[name].append(line["stored"])
                    if name == "one" and len(stored[name]) in (10, 60):
                        accident(path)
                assert line.get("wrong", []) == []
            worker.kill()
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        found = fresh.ask("contents", session="s")
        assert sorted(found[45:]) == sorted(stored["one"] + stored["two"])
        assert len(stored["one"]) == len(stored["two"]) == 100
        assert fresh.ask("health") == []


@ACCIDENTS
def test_a_process_that_only_reads_follows(path: str, accident: Accident) -> None:
    with Worker() as ours, Worker() as reader:
        _start(ours, path)
        reader.ask("open_store", path=path, read_only=True)
        assert reader.ask("contents", session="s") == BEFORE
        accident(path)
        assert reader.ask("contents", session="s") == BEFORE
        for n in range(3):
            ours.ask("append", session="s", texts=[f"after{n}"])
            assert reader.ask("contents", session="s") == [*BEFORE, *(f"after{m}" for m in range(n + 1))]
        reader.ask("close")
        ours.kill()
    _check(path, [*BEFORE, "after0", "after1", "after2"])


@FEW_ACCIDENTS
def test_another_process_cannot_open_the_store_until_the_rows_are_saved(
    path: str, accident: Accident
) -> None:
    """Until the rows of the removed log are saved, no other process may open the store. It would not see
    these rows, and its writes would make it impossible to save them."""
    with Worker() as ours, Worker() as late:
        _start(ours, path)
        accident(path)
        with pytest.raises(Refused, match=REMOVED) as refused:
            late.ask("open_store", path=path)
        assert "StoreBusy" in refused.value.kinds
        assert not os.path.exists(f"{path}.damaged")
        ours.ask("append", session="s", texts=["after"])
        late.ask("open_store", path=path)
        assert late.ask("contents", session="s") == [*BEFORE, "after"]
        late.ask("append", session="s", texts=["by late"])
        assert ours.ask("contents", session="s") == [*BEFORE, "after", "by late"]
    _check(path, [*BEFORE, "after", "by late"])


@pytest.mark.parametrize(
    ("accident", "where"), [(_remove("-wal"), "here"), (_remove("-wal", "-shm"), "elsewhere")]
)
def test_a_long_read_is_waited_for_and_nothing_is_acknowledged_before(
    path: str, accident: Accident, where: str
) -> None:
    with Worker() as ours, Worker() as other:
        _start(ours, path)
        reader = ours if where == "here" else other
        if where == "elsewhere":
            other.ask("open_store", path=path)
        assert reader.ask("begin_long_read") == 45
        ours.ask("append", session="s", texts=["during"])
        accident(path)
        with pytest.raises(Refused, match=REMOVED):
            ours.ask("append_only", session="s", texts=["refused"])
        reader.ask("end_long_read")
        ours.ask("append", session="s", texts=["after"])
        ours.kill()
    _check(path, [*BEFORE, "during", "after"])


ROUNDS = 40 if not LONG else 400

AWAY = r"removed the write-ahead log of"


@pytest.mark.parametrize("first", ["append", "read", "close"])
def test_a_new_log_of_another_program_raises_an_error(path: str, first: str) -> None:
    """The other program does not know the removed log. The rows that it writes cannot be merged with that
    log, so an error is raised."""
    with Worker() as ours, Worker() as theirs:
        _start(ours, path)
        _remove("-wal", "-shm")(path)
        theirs.ask("visit_with_old_library", path=path, session="theirs", texts=["visited"])
        for _ in range(2):
            _check_refusals(ours, first, AWAY)
        with pytest.raises(Refused, match=AWAY):
            ours.ask("close")
        ours.ask("open_store", path=path)  # all connections are closed, so the file can be opened again
        assert ours.ask("contents", session="theirs") == ["visited"]
        ours.ask("append", session="s", texts=["again"])
    with SessionDB(path) as db:
        assert [row["content"] for row in db.get_messages("theirs")] == ["visited"]
        assert [row["content"] for row in db.get_messages("s")] == ["again"]
        assert db.verify().ok


# -------------------------------------------------------------------- an index created by another process

FOREIGN_READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("SELECT count(*) FROM messages").fetchall()
print("there", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_is_missing_in_a_new_index_is_repeated(path: str, times: int) -> None:
    """The index is removed during a transaction, and another process creates a new index. The transaction is
    in the log but not in the new index, so the next writer would overwrite it. Therefore it is committed
    again."""
    readers: list[subprocess.Popen[str]] = []

    def work(writer: Writer) -> None:
        writer.run("UPDATE sessions SET title = 'kept' WHERE id = 's'")
        if len(readers) < times:
            os.unlink(f"{path}-shm")
            command = [sys.executable, "-c", FOREIGN_READER, path]
            readers.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            output = readers[-1].stdout
            assert output is not None
            assert output.readline() == "there\n"

    try:
        with SessionDB(path) as db:
            db.create_session("s", source="cli")
            db.append_message("s", "user", "before")
            db._engine.write(work)
            db.append_message("s", "user", "after")
    finally:
        for reader in readers:
            reader.communicate("\n")
    with SessionDB(path) as db:
        session = db.get_session("s")
        assert session is not None
        assert session["title"] == "kept"
        assert [row["content"] for row in db.get_messages("s")] == ["before", "after"]
        assert db.verify().ok


@pytest.mark.parametrize("accident", [INDEX, BOTH])
def test_a_process_that_opens_the_store_then_does_not_write_beside_a_transaction(
    path: str, accident: Accident
) -> None:
    """The locks of the running transaction are in the removed index. A process that opens the store now would
    see a new index without locks."""
    with Worker() as ours, Worker() as late:
        _start(ours, path)
        ours.ask("execute_raw", sql="BEGIN IMMEDIATE")
        ours.ask("execute_raw", sql="UPDATE sessions SET title = 'by a script'")
        late.start("open_store_with_pause", path=path)
        assert late.line() == {"waits": True}
        accident(path)
        late.start("go on")
        with pytest.raises(Refused, match=REMOVED):
            late.result()
        ours.ask("execute_raw", sql="COMMIT")
        late.ask("open_store", path=path)
        late.ask("append", session="s", texts=["by late"])
        assert ours.ask("execute_raw", sql="SELECT title FROM sessions") == [["by a script"]]
        ours.kill()
    _check(path, [*BEFORE, "by late"])


def test_a_checkpoint_that_is_asked_for_during_the_recovery_keeps_no_connection(path: str) -> None:
    """The connections of a process share one index. If a checkpoint kept a connection open, that connection
    would keep the removed index in use."""
    with SessionDB(path) as db:
        db.create_session("s", source="cli")
        db.append_message("s", "user", "before")
        assert isinstance(db._engine, SqliteEngine)
        connections = db._engine._connections
        reading = db._engine.read()
        reading.__enter__()
        os.unlink(f"{path}-shm")
        writing = threading.Thread(target=db.append_message, args=("s", "user", "after"))
        writing.start()
        while not (connections.guard.recovering and connections.readers._stopped_by):
            time.sleep(0.001)
        connections.checkpointer.ask()
        reading.__exit__(None, None, None)
        writing.join()
        db.append_message("s", "user", "last")
        assert [row["content"] for row in db.get_messages("s")] == ["before", "after", "last"]
        assert db.verify().ok


@pytest.mark.parametrize("accident", [INDEX, BOTH])
def test_repeated_removals_under_two_writers_damage_nothing(path: str, accident: Accident) -> None:
    """SQLite's locks between processes are in the index. If it is removed, two processes could write at the
    same time."""
    with Worker() as one, Worker() as two:
        _start(one, path)
        two.ask("open_store", path=path)
        for name, worker in (("one", one), ("two", two)):
            worker.start("append_despite_errors", session="s", threads=4, count=ROUNDS, prefix=name)
        stored, wrong = [], []
        for line in one.lines():
            with suppress(FileNotFoundError):
                accident(path)
            stored.append(line.get("stored"))
            wrong += line.get("wrong", [])
        for line in two.lines():
            stored.append(line.get("stored"))
            wrong += line.get("wrong", [])
        assert wrong == []
        # A removed log is saved only by another write. After a kill, its rows would be lost. A store that
        # refuses this write has saved its rows before.
        for name, worker in (("one", one), ("two", two)):
            with suppress(Refused):
                worker.ask("append", session="s", texts=[f"last of {name}"])
        for worker in (one, two):
            worker.kill()
    with Worker() as fresh:
        fresh.ask("open_store", path=path)
        found = fresh.ask("contents", session="s")
        assert found[:45] == BEFORE
        assert set(filter(None, stored)) <= set(found)
        assert len(set(found)) == len(found)
        assert fresh.ask("health") == []


# -------------------------------------------------------------------- a full disk, a long transaction


def test_a_full_disk_keeps_the_removed_log_until_there_is_room(path: str) -> None:
    with Worker() as ours:
        _start(ours, path)
        _remove("-wal")(path)
        ours.ask("limit_files", size=8192)
        for _ in range(2):
            with pytest.raises(Refused, match="no room left") as refused:
                ours.ask("append_only", session="s", texts=["refused"])
            assert "StoreFull" in refused.value.kinds
        ours.ask("limit_files", size=None)
        ours.ask("append", session="s", texts=["after"])
        ours.kill()
    _check(path, [*BEFORE, "after"])


def test_closing_on_a_full_disk_says_what_is_lost_and_why(path: str) -> None:
    with Worker() as ours:
        _start(ours, path)
        _remove("-wal")(path)
        ours.ask("limit_files", size=8192)
        with pytest.raises(Refused, match=r"cannot be saved to the file: .* are lost"):
            ours.ask("close")


def test_the_log_is_saved_without_free_descriptors(path: str) -> None:
    with Worker() as ours:
        _start(ours, path)
        _remove("-wal", "-shm")(path)
        ours.ask("limit_descriptors", most=ours.ask("count_descriptors") + 4)
        ours.ask("use_up_descriptors")
        ours.ask("append", session="s", texts=["after"])
        ours.kill()
    _check(path, [*BEFORE, "after"])


def test_a_store_can_be_opened_during_a_long_transaction_of_another_process(path: str) -> None:
    with Worker() as ours, Worker() as late:
        _start(ours, path)
        ours.ask("execute_raw", sql="BEGIN IMMEDIATE")
        ours.ask("execute_raw", sql="UPDATE sessions SET title = 'by a script'")
        late.ask("open_store", path=path)
        assert late.ask("contents", session="s") == BEFORE
        ours.ask("execute_raw", sql="COMMIT")
        late.ask("append", session="s", texts=["by late"])
    _check(path, [*BEFORE, "by late"])


# -------------------------------------------------------------------- a truncated log in its place

CUT = r"emptied or shortened the write-ahead log of"


def _check_refusals(worker: Worker, first: str, text: str) -> None:
    orders = {"append": ("append_only", {"texts": ["refused"]}), "read": ("contents", {})}
    for name in sorted(orders, key=lambda name: name != first) if first != "close" else ():
        command, arguments = orders[name]
        with pytest.raises(Refused, match=text):
            worker.ask(command, session="s", **arguments)


def _cut(path: str, left: float) -> None:
    os.truncate(path + "-wal", int(os.path.getsize(path + "-wal") * left))


CUTS = pytest.mark.parametrize("left", [0, 0.4, 0.99])


def _start_with_rows_in_the_file(worker: Worker, path: str) -> None:
    """Put the first rows into the database file, and one further row only into the log."""
    _start(worker, path)
    worker.ask("close")
    worker.ask("open_store", path=path)
    worker.ask("append", session="s", texts=["in the log"])


@pytest.mark.parametrize(
    ("first", "left"),
    [
        *((first, left) for first in ("append", "close") for left in (0, 0.4, 0.99)),
        *(("read", left) for left in (0, 0.4)),  # a read succeeds if it needs no missing page
    ],
)
def test_nothing_is_acknowledged_on_a_log_that_was_cut(path: str, first: str, left: float) -> None:
    with Worker() as ours:
        _start_with_rows_in_the_file(ours, path)
        _cut(path, left)
        for _ in range(2):
            _check_refusals(ours, first, CUT)
        with pytest.raises(Refused, match=CUT):
            ours.ask("close")
        ours.ask("open_store", path=path)
        ours.ask("append", session="s", texts=["after"])
    assert not os.path.exists(f"{path}.damaged")
    _check(path, [*BEFORE, "after"])


@pytest.mark.parametrize("first", ["append", "close"])
def test_the_log_of_another_store_that_was_copied_over_it_does_not_get_into_the_file(
    path: str, tmp_path: Path, first: str
) -> None:
    with Worker() as ours, Worker() as theirs:
        other = str(tmp_path / "other.db")
        _start(theirs, other)
        _start_with_rows_in_the_file(ours, path)
        Path(f"{path}-wal").write_bytes(Path(f"{other}-wal").read_bytes())
        _check_refusals(ours, first, CUT)
        if first == "close":
            with pytest.raises(Refused, match=CUT):
                ours.ask("close")
        ours.kill()
    _check(path, BEFORE)


def test_plain_sql_is_refused_on_a_log_that_was_cut(path: str) -> None:
    with Worker() as ours:
        _start_with_rows_in_the_file(ours, path)
        ours.ask("execute_raw", sql="UPDATE sessions SET title = 'before'")
        _cut(path, 0)
        for _ in range(2):
            with pytest.raises(Refused, match=CUT):
                ours.ask("execute_raw", sql="UPDATE sessions SET title = 'after'")
        with pytest.raises(Refused, match=CUT):
            ours.ask("close")
    _check(path, BEFORE)


def test_two_processes_both_refuse_a_log_that_was_cut(path: str) -> None:
    with Worker() as one, Worker() as two:
        _start_with_rows_in_the_file(one, path)
        two.ask("open_store", path=path)
        two.ask("append", session="s", texts=["by two"])
        _cut(path, 0)
        for worker in (one, two):
            with pytest.raises(Refused, match=CUT):
                worker.ask("append_only", session="s", texts=["refused"])
        for worker in (one, two):
            with pytest.raises(Refused, match=CUT):
                worker.ask("close")
    _check(path, BEFORE)


@CUTS
def test_a_truncated_log_whose_rows_are_all_in_the_file_is_replaced(path: str, left: float) -> None:
    with Worker() as ours, Worker() as other:
        _start(ours, path)
        other.ask("open_store", path=path)
        assert other.ask("contents", session="s") == BEFORE
        ((busy, frames, moved),) = ours.ask("execute_raw", sql="PRAGMA wal_checkpoint(PASSIVE)")
        assert not busy
        assert frames == moved > 0
        _cut(path, left)
        ours.ask("append", session="s", texts=["after"])
        other.ask("append", session="s", texts=["by other"])
        assert ours.ask("contents", session="s") == [*BEFORE, "after", "by other"]
        ours.kill()
        other.kill()
    _check(path, [*BEFORE, "after", "by other"])


FOREIGN_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    connection.execute("UPDATE sessions SET title = ?", (line.strip(),))
    print("done", flush=True)
"""


def test_writes_of_another_program_to_an_emptied_log_are_detected(path: str) -> None:
    """The log is truncated to zero bytes, and another program continues to write at its old position. The log
    is then longer than before, and its beginning contains only zeros."""
    with Worker() as ours:
        _start_with_rows_in_the_file(ours, path)
        command = [sys.executable, "-c", FOREIGN_WRITER, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as foreign:
            assert foreign.stdin is not None
            assert foreign.stdout is not None
            for title in ("first", "second"):
                foreign.stdin.write(f"{title}\n")
                foreign.stdin.flush()
                assert foreign.stdout.readline() == "done\n"
                if title == "first":
                    length = os.path.getsize(path + "-wal")
                    _cut(path, 0)
            foreign.kill()
        assert os.path.getsize(path + "-wal") > length
        with pytest.raises(Refused, match=CUT):
            ours.ask("append_only", session="s", texts=["refused"])
        with pytest.raises(Refused, match=CUT):
            ours.ask("close")
    _check(path, BEFORE)


# -------------------------------------------------------------------- a program that ends without closing the store

LEFT_OPEN = """
import os, subprocess, sys, threading
from pathlib import Path
from hermes_state import SessionDB

path, accident = sys.argv[1:]
db = SessionDB(Path(path))
db.create_session("s", source="cli")
for n in range(45):
    db.append_message("s", "user", f"before{n}")
if accident == "cut":
    os.truncate(path + "-wal", 0)
elif accident != "none":
    os.remove(path + "-wal")
if accident == "thread":
    def write_for_ever():
        while True:
            db.append_message("t", "user", "x")
    db.create_session("t", source="cli")
    threading.Thread(target=write_for_ever, daemon=True).start()
if accident == "foreign":
    os.remove(path + "-shm")
    insert = "INSERT INTO sessions (id, source, started_at) VALUES ('theirs', 'cli', 1.0)"
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    subprocess.run([sys.executable, "-c", code, path, insert], check=True)
if accident == "fork" and not os.fork():
    sys.exit()
"""


@pytest.mark.parametrize(
    ("accident", "line"),
    [
        ("none", ""),
        ("removed", "its content was saved"),
        ("fork", "its content was saved"),
        ("thread", None),
        ("foreign", "and the store was changed without it"),
        ("cut", "emptied or shortened"),
    ],
)
def test_a_program_that_ends_without_closing_reports_the_state_of_the_rows(
    path: str, accident: str, line: str | None
) -> None:
    command = [sys.executable, "-c", LEFT_OPEN, path, accident]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    if line is not None:
        assert line in ended.stderr
        assert len(ended.stderr.splitlines()) == (1 if line else 0)
    if accident not in ("foreign", "cut"):
        _check(path, BEFORE)
