"""Real signals: timeouts, writes and closes in handlers, and stopped processes. Also contexts in which
opening is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes.store.sqlite import creation, lock_file
from hermes.store.sqlite.checkpoint import Checkpointer
from hermes_state import SessionDB

pytestmark = pytest.mark.full

BEGIN = """
import json, os, signal, sys, threading, time
from pathlib import Path
from hermes import errors
from hermes_state import SessionDB
path = Path(sys.argv[1])
db = SessionDB(path)
db.create_session("s", "cli")
"""

TIMEOUTS = """
class TimeIsUp(Exception): pass

def strike(*_):
    raise TimeIsUp

failed, acknowledged, ended = [], [], threading.Event()

def keep_writing(name):
    number = 0
    while not ended.is_set():
        try:
            db.append_message("s", "user", f"{name} {number}")
            acknowledged.append(f"{name} {number}")
        except BaseException as problem:
            failed.append(repr(problem))
        number += 1

threads = [threading.Thread(target=keep_writing, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, strike)
timeouts, unsure, until = 0, [], time.monotonic() + 4
number = 0
while time.monotonic() < until:
    text = f"main {number}"
    number += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00003 * (number % 60))
        db.append_message("s", "user", text)
        signal.setitimer(signal.ITIMER_REAL, 0)
        acknowledged.append(text)
    except TimeIsUp:
        signal.setitimer(signal.ITIMER_REAL, 0)
        timeouts += 1
        # As a person would do it: look, and write again only what is not there.
        if text not in [row["content"] for row in db.get_messages("s")[-200:]]:
            db.append_message("s", "user", text)
        acknowledged.append(text)
ended.set()
for thread in threads:
    thread.join()
stored = [row["content"] for row in db.get_messages("s")]
db.close()
print(json.dumps({"timeouts": timeouts, "failed": failed, "same": sorted(stored) == sorted(acknowledged)}))
"""

SAVING = """
stored, refused, slowest = [], [], 0.0

def save(*_):
    global slowest
    started = time.monotonic()
    text = f"handler {len(stored) + len(refused)}"
    try:
        db.append_message("s", "user", text)
        stored.append(text)
    except errors.StoreBusy:
        refused.append(text)
    db.search_messages("handler")
    db.get_messages("s")
    slowest = max(slowest, time.monotonic() - started)

ended = threading.Event()

def keep_writing():
    number = 0
    while not ended.is_set():
        db.append_message("s", "user", f"thread {number}")
        stored.append(f"thread {number}")
        number += 1

thread = threading.Thread(target=keep_writing)
thread.start()
signal.signal(signal.SIGALRM, save)
until, number = time.monotonic() + 4, 0
while time.monotonic() < until:
    signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00003 * (number % 60))
    db.append_message("s", "user", f"main {number}")
    stored.append(f"main {number}")
    number += 1
signal.setitimer(signal.ITIMER_REAL, 0)
ended.set()
thread.join()
there = [row["content"] for row in db.get_messages("s")]
ok = db.verify().ok
db.close()
handled = sum(text.startswith("handler") for text in stored)
print(json.dumps({"handled": handled, "refused": len(refused), "same": sorted(there) == sorted(stored), "ok": ok,
                  "slowest": slowest}))
"""

LEAVING = """
def leave(*_):
    db.close()
    sys.exit(7)

signal.signal(signal.SIGTERM, leave)
threading.Timer(0.2 + float(sys.argv[2]) / 1000, os.kill, (os.getpid(), signal.SIGTERM)).start()
number = 0
while True:
    db.append_message("s", "user", f"main {number}")
    print(number, flush=True)
    number += 1
"""


def run(program: str, *args: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, args)], capture_output=True, text=True, timeout=seconds
    )


def answer(program: str, *args: object) -> Any:
    done = run(program, *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_timeouts_in_the_main_thread_affect_no_other_thread_and_duplicate_nothing(tmp_path: Path) -> None:
    result = answer(BEGIN + TIMEOUTS, tmp_path / "state.db")
    assert result["failed"] == []
    assert result["same"]
    assert result["timeouts"] > 10


def test_a_handler_saves_at_any_moment(tmp_path: Path) -> None:
    result = answer(BEGIN + SAVING, tmp_path / "state.db")
    assert result["same"]
    assert result["ok"]
    assert result["handled"] > result["refused"]
    assert result["slowest"] < 10


@pytest.mark.parametrize("moment", range(4))
def test_closing_and_leaving_on_sigterm(tmp_path: Path, moment: int) -> None:
    done = run(BEGIN + LEAVING, tmp_path / "state.db", moment)
    assert (done.returncode, done.stderr) == (7, "")
    with SessionDB(tmp_path / "state.db") as db:
        stored = {row["content"] for row in db.get_messages("s")}
    printed = [line for line in done.stdout.split("\n")[:-1] if line]
    assert {f"main {number}" for number in printed} <= stored
    assert len(stored) <= len(printed) + 1


# ---------------------------------------------------------------- closing


def test_closing_while_checkpoints_begin(home: Path) -> None:
    """Several threads close at the same time as a checkpoint starts."""
    problems: list[BaseException] = []

    def call(verb: Any) -> None:
        try:
            verb()
        except errors.StoreClosed:
            pass
        except BaseException as problem:  # noqa: BLE001 - looked at below
            problems.append(problem)

    for _ in range(30):
        db = SessionDB()
        db.create_session("s", "cli", process=None)
        checkpointer: Checkpointer = db._engine.__dict__["_connections"].checkpointer
        verbs = [
            *(db.close, db.close, checkpointer.ask, checkpointer.ask),
            *(partial(db.get_messages, "s"), partial(db.search_messages, "x")),
            partial(db.append_message, "s", "user", "x"),
        ]
        threads = [threading.Thread(target=call, args=(verb,)) for verb in verbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert open_files(db.db_path) == []
    assert problems == []


def open_files(path: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            leads_to = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if leads_to.startswith(str(path)):
            found.append(leads_to)
    return found


AT_EXIT = """
import atexit
atexit.register(db.close)
left_open = SessionDB(path)
for number in range(120):
    db.append_message("s", "user", str(number))
    left_open.append_message("s", "user", str(number))
def keep_reading():
    while True:
        db.get_messages("s")
threading.Thread(target=keep_reading, daemon=True).start()
import logging
logging.disable(logging.CRITICAL)
threading.excepthook = lambda *_: None  # the reader finds the store closed
"""


def test_closing_at_the_end_of_the_program(tmp_path: Path) -> None:
    done = run(BEGIN + AT_EXIT, tmp_path / "state.db")
    assert (done.returncode, done.stderr) == (0, "")
    with SessionDB(tmp_path / "state.db") as db:
        assert db.message_count("s") == 240


@pytest.mark.timeout(20)
def test_a_handler_opens_the_store_whose_creation_it_interrupts(home: Path) -> None:
    home.mkdir(mode=0o700)
    collected: list[str] = []

    def open_too(*_: object) -> None:
        try:
            SessionDB().close()
        except errors.StoreBusy as problem:
            collected.append(str(problem))

    before = signal.signal(signal.SIGUSR1, open_too)
    try:
        with lock_file.exclusive(home / "state.db"):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(collected) == 1
    assert "that a signal handler interrupted" in collected[0]
    with SessionDB() as db:
        db.create_session("s", "cli")


# ---------------------------------------------------------------- subinterpreters


SUBINTERPRETER = """
import sys
inner = '''
from pathlib import Path
from hermes import errors
from hermes_state import SessionDB
try:
    SessionDB(Path({path!r}))
except errors.StoreFailed as problem:
    print(problem, flush=True)
'''.format(path=sys.argv[1])
try:
    import _testcapi
    sys.exit(_testcapi.run_in_subinterp(inner))
except ImportError:
    import _xxsubinterpreters as interpreters
    interpreters.run_string(interpreters.create(), inner)
"""


def test_a_subinterpreter_is_refused_at_once(tmp_path: Path) -> None:
    done = run(SUBINTERPRETER, tmp_path / "state.db", seconds=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'state.db'} cannot be opened in a subinterpreter")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- other processes


STANDING = """
engine = db._engine
engine._connections.writer_queue.is_occupied()
engine._connections.writer_queue.join(time.monotonic() + 5)
print("in line", flush=True)
sys.stdin.read()
"""


def test_a_stopped_process_in_the_queue_is_waited_for_once(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("s", "cli")
        with subprocess.Popen(
            [sys.executable, "-c", BEGIN + STANDING, str(db.db_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"in line\n"
            os.kill(other.pid, signal.SIGSTOP)
            try:
                took = []
                for number in range(10):
                    started = time.monotonic()
                    db.append_message("s", "user", str(number))
                    took.append(time.monotonic() - started)
            finally:
                os.kill(other.pid, signal.SIGCONT)
                other.kill()
        assert took[0] > 0.5  # it was delayed until the lock was released
        assert median(took[1:]) < 0.5  # the median, because a disk may stall now and then


def test_opening_waits_for_a_writer_in_the_way_of_the_journal(home: Path) -> None:
    path = home / "state.db"
    home.mkdir(mode=0o700)
    path.touch(mode=0o600)
    creation.build_store(path)  # a store that was never opened has no log
    writer = apsw.Connection(str(path))
    writer.set_busy_timeout(20_000)  # a process that opens the store reads from time to time
    writer.execute("BEGIN IMMEDIATE")
    ended = threading.Event()

    def write_on() -> None:
        ended.wait(1.0)
        writer.execute("COMMIT")
        writer.close()

    thread = threading.Thread(target=write_on)
    thread.start()
    with pytest.warns(RuntimeWarning, match="already open"), SessionDB() as db:
        db.create_session("s", "cli")
    thread.join()
