"""A process forks while its threads use a store. The child can open its own store. No process waits for a
lock that nobody holds any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB

BEGIN = """
import json, os, sys, threading, warnings
from pathlib import Path
from hermes import errors
from hermes_state import SessionDB
warnings.simplefilter("ignore")  # newer interpreters warn of a fork beside threads, which is the point here
path = Path(sys.argv[1])

def in_child(work):
    \"\"\"What comes of it in a forked child.\"\"\"
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = work()
        except BaseException as problem:
            told = f"{type(problem).__name__}: {problem}"
        os.write(send, json.dumps(told).encode())
        os._exit(0)
    os.close(send)
    return child, receive

def answer(child, receive):
    with os.fdopen(receive, "rb") as pipe:
        told = json.loads(pipe.read())
    os.waitpid(child, 0)
    return told
"""

CHILDREN_WRITE = """
db = SessionDB(path)
db.create_session("s", "cli")
stopped, acknowledged = threading.Event(), []
for number in range(200):  # what is imported late is imported now: to fork in the midst of that is Python's matter
    db.append_message("s", "user", f"early {number}")
    acknowledged.append(f"early {number}")
db.search_messages("early")

def keep_writing(thread):
    number = 0
    while not stopped.is_set():
        db.append_message("s", "user", f"{thread} {number}")
        db.search_messages("nothing")
        acknowledged.append(f"{thread} {number}")
        number += 1

def write(number):
    with SessionDB(path) as own:
        own.append_message("s", "user", f"child {number}")
        return len(own.search_messages(f"child {number}")) and f"child {number}"

threads = [threading.Thread(target=keep_writing, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
told = [answer(*in_child(lambda: write(number))) for number in range(12)]
stopped.set()
for thread in threads:
    thread.join()
print(json.dumps({"told": told, "acknowledged": acknowledged, "ok": db.verify().ok}))
"""

TORN = """
db = SessionDB(path)
db.create_session("s", "cli")
begun, may_end = threading.Event(), threading.Event()

def hold(writer):
    begun.set()
    may_end.wait()

holder = threading.Thread(target=lambda: db._engine.write(hold))
holder.start()
begun.wait()
child = in_child(lambda: SessionDB(path))
may_end.set()
told = answer(*child)
holder.join()
db.append_message("s", "user", "on we go")
print(json.dumps({"told": told, "rows": len(db.get_messages("s"))}))
"""

LINGERING = """
import time
from hermes.store.sqlite import lock_file
begun, may_end = threading.Event(), threading.Event()

def hold():
    with lock_file.exclusive(path):
        begun.set()
        may_end.wait()

holder = threading.Thread(target=hold)
holder.start()
begun.wait()
receive, send = os.pipe()
child = os.fork()
if not child:
    os.close(send)
    os.read(receive, 1)  # lives on, and does nothing
    os._exit(0)
may_end.set()
holder.join()
with SessionDB(path) as db:  # needs that lock, to be made
    print(json.dumps(db.session_count()))
os.close(send)
os.waitpid(child, 0)
"""

PARENTS_STORE_IS_FREED = """
import gc

def count_descriptors():
    index = os.stat(f"{path}-shm").st_ino
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.fstat(int(name)).st_ino == index
        except OSError:  # that of the list itself
            pass
    return found

db = SessionDB(path)
db.create_session("s", "cli")

def free():
    global db
    own = SessionDB(path)
    own.append_message("s", "user", "from the child")
    before = count_descriptors()
    del db
    gc.collect()
    return [before, count_descriptors()]

print(json.dumps(answer(*in_child(free))))
"""


def told_by(program: str, path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(path)], capture_output=True, encoding="utf-8", timeout=100
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_children_forked_beside_writing_threads_write_as_well(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    answer = told_by(CHILDREN_WRITE, path)
    refused = [one for one in answer["told"] if not one.startswith("child ")]
    assert all("was forked while another thread" in one for one in refused)
    assert len(refused) < len(answer["told"])
    wrote = [one for one in answer["told"] if one.startswith("child ")]
    with SessionDB(path) as db:
        texts = [row["content"] for row in db.get_messages("s")]
    assert sorted(texts) == sorted([*answer["acknowledged"], *wrote])
    assert answer["ok"]


def test_a_child_forked_during_a_commit_is_refused_at_once_and_blocks_nobody(tmp_path: Path) -> None:
    answer = told_by(TORN, tmp_path / "state.db")
    assert answer["told"].startswith("StoreFailed: ")
    assert "was forked while another thread" in answer["told"]
    assert answer["rows"] == 1


def test_a_surviving_child_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    assert told_by(LINGERING, tmp_path / "state.db") == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_child_that_frees_its_parents_store_closes_no_file_of_it(tmp_path: Path) -> None:
    """If the child closed a file of its parent's store, it would drop the POSIX locks of its own store on the
    same file."""
    before, after = told_by(PARENTS_STORE_IS_FREED, tmp_path / "state.db")
    assert before == after > 0
