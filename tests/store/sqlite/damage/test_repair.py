"""When a repair is possible and when it is refused. A repair that is killed can be repeated."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import (
    PAGE,
    assert_whole,
    crashed,
    folder,
    ids_on_page,
    overwrite,
    pages_of,
    pages_of_quietly,
    repaired,
    stored_messages,
    zero,
)

HOLDER = """import sys, time
from hermes_state import SessionDB
db = SessionDB(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a repair soon. By default, it waits three seconds for other processes."""
    monkeypatch.setattr("hermes.store.sqlite.repair.repair.WAIT_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("damage", ["none", "page", "garbage", "gone"])
def test_repair_is_refused_while_another_process_holds_the_store(store: Path, damage: str) -> None:
    page = pages_of(store, "messages")[2]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(store)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        if damage == "page":
            overwrite(store, page)
        elif damage == "garbage":
            overwrite(store, 1, b"garbage" * 100)
        elif damage == "gone":
            Path(f"{store}-wal").write_bytes(b"x" * 100)
            store.unlink()
        before = folder(store)
        for check_only in (True, False):
            with pytest.raises(errors.StoreBusy):
                SessionDB.repair_file(store, check_only=check_only)
        assert {name: data for name, data in folder(store).items() if not name.endswith("-shm")} == {
            name: data for name, data in before.items() if not name.endswith("-shm")
        }
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.usefixtures("impatient")
def test_repair_is_refused_while_this_process_holds_the_store(store: Path) -> None:
    with SessionDB(store) as db:
        with pytest.raises(errors.StoreBusy):
            SessionDB.repair_file(store)
        db.append_message("s0", "user", "still mine")
        assert db.get_messages("s0")[-1]["content"] == "still mine"


REPAIRER = """import os, sys
from pathlib import Path
from hermes.store.sqlite import damage_mark
from hermes.store.sqlite.repair import repair

name, moment = (*sys.argv[2:], "", "")[:2]

def dying(act):
    def act_and_die(*arguments):
        if moment == "after":
            act(*arguments)
        os.kill(os.getpid(), 9)
    return act_and_die

for place in (repair, damage_mark, os):
    if hasattr(place, name):
        setattr(place, name, dying(getattr(place, name)))
repair.repair_file(Path(sys.argv[1]))
"""


@pytest.fixture
def damaged(store: Path, tmp_path: Path) -> tuple[Path, Path, dict[int, Any]]:
    """Return (store, copy of its folder, remaining messages). One page of the store is lost, and one message
    is only in the log."""
    page = pages_of(store, "messages")[4]
    gone = ids_on_page(store, page)
    before = stored_messages(store)
    crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    overwrite(store, page)
    shutil.copytree(store.parent, tmp_path / "copy")
    return store, tmp_path / "copy", {number: row for number, row in before.items() if number not in gone}


def assert_repaired(store: Path, left: dict[int, Any]) -> None:
    repaired(store)
    after = stored_messages(store)
    newest = after.pop(max(after))
    assert after == left
    assert newest["content"] == "only in the log"
    assert_whole(store)
    assert list(store.parent.glob("*.new-*")) == []


@pytest.mark.full
def test_killed_between_any_two_steps_a_repair_can_be_done_again(
    damaged: tuple[Path, Path, dict[int, Any]],
) -> None:
    store, copy, left = damaged
    steps = ["mark_damaged", "keep_aside", "pwrite", "truncate", "fold_log", "unlink", "replace", "retire"]
    for step in [*steps, "clear_damage_mark"]:
        for moment in ("before", "after"):
            shutil.rmtree(store.parent)
            shutil.copytree(copy, store.parent)
            victim = subprocess.run([sys.executable, "-c", REPAIRER, str(store), step, moment], timeout=60)
            assert victim.returncode == -signal.SIGKILL, (step, moment)
            assert_repaired(store, left)


@pytest.mark.full
def test_killed_at_a_random_moment_a_repair_can_be_done_again(
    damaged: tuple[Path, Path, dict[int, Any]],
) -> None:
    store, copy, left = damaged
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", REPAIRER, str(store)], check=True, timeout=60)
    took = time.monotonic() - started
    chance = random.Random(7)
    for _ in range(8):
        shutil.rmtree(store.parent)
        shutil.copytree(copy, store.parent)
        victim = subprocess.Popen([sys.executable, "-c", REPAIRER, str(store)])
        time.sleep(chance.uniform(0.15, 1.0) * took)
        victim.kill()
        victim.wait()
        assert_repaired(store, left)


@pytest.mark.parametrize("damage", ["none", "index", "page", "garbage", "empty", "log"])
def test_a_check_changes_nothing(store: Path, damage: str) -> None:
    if damage == "index":
        zero(store, "messages_fts_words_data", at=-1)
    elif damage == "page":
        zero(store, "messages", at=2)
    elif damage == "garbage":
        overwrite(store, 1, random.Random(1).randbytes(PAGE))
    elif damage == "empty":
        store.write_bytes(b"")
    elif damage == "log":
        crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    before = folder(store)
    report = SessionDB.repair_file(store, check_only=True)
    assert report.ok == (damage in ("none", "log")), report.lines()
    assert report.kept is None
    assert folder(store) == before
    if damage == "page":
        assert "messages can be read" in report.lines()[0]


def test_without_a_backup_only_the_new_file_is_left(store: Path) -> None:
    zero(store, "messages", at=2)
    report = repaired(store, keep_backup=False)
    assert report.kept is None
    assert sorted(file.name for file in store.parent.iterdir()) == ["state.db", "state.db.lock"]
    assert_whole(store)


def test_a_process_that_waited_for_the_old_file_gets_an_error(store: Path) -> None:
    zero(store, "messages", at=2)
    waiting = os.open(store, os.O_RDONLY)
    try:
        repaired(store)
        assert not os.pread(waiting, 16, 0).startswith(b"SQLite format 3")
    finally:
        os.close(waiting)


def test_everything_a_repair_writes_is_private(store: Path) -> None:
    crashed(store, "db.append_message('s5', 'user', 'only in the log')")
    overwrite(store, pages_of_quietly(store, "messages")[1])
    os.umask(0)
    repaired(store)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.parent.iterdir()}
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}
    with SessionDB(store):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in store.parent.iterdir()}
        assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}
