"""If a process closes any descriptor of a file, it loses all of its POSIX locks on that file. No acknowledged
write may be lost by that.

A write could be lost in this way: the locks of this process are gone, and another program opens the file,
writes and closes it. That program finds no locks, so it removes the write-ahead log to which this process
still writes. On Linux, a lock of another kind prevents this. On other systems, the inode of the log shows
that it was removed, and the rows are written again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.store.sqlite.wal.file_guard import Guard
from hermes.store.sqlite.wal.observed_log import is_settled
from hermes_state import SessionDB
from tests.survival.processes import Worker

ENDINGS = pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed"])


def _end(worker: Worker, killed: bool) -> None:
    if killed:
        worker.kill()
    else:
        worker.ask("close")
        worker.leave()


def _check(path: Path, **sessions: list[str]) -> None:
    with SessionDB(path) as db:
        for session, texts in sessions.items():
            assert [row["content"] for row in db.get_messages(session)] == texts
            for text in texts:
                assert len(db.search_messages(f'"{text}"')) == 1
        assert db.message_count() == sum(map(len, sessions.values()))
        report = db.verify()
        assert report.ok, report.lines()


def _texts(tag: str, count: int) -> list[str]:
    return [f"{tag}x{n}" for n in range(count)]


@ENDINGS
@pytest.mark.parametrize("before", [3, 120], ids=["few", "checkpointed"])
@pytest.mark.parametrize("visit", ["visit", "visit_with_old_library"])
def test_a_raw_read_in_the_process_loses_nothing(home: Path, killed: bool, before: int, visit: str) -> None:
    path = home / "state.db"
    with Worker() as ours, Worker() as theirs:
        ours.ask("open_store", path=str(path))
        ours.ask("append", session="ours", texts=_texts("first", before))
        log = ours.ask("log_inode", path=str(path))
        ours.ask("read_raw", path=str(path))
        theirs.ask(visit, path=str(path), session="theirs", texts=["visited"])
        assert theirs.ask("log_inode", path=str(path)) == log  # the log was not removed
        ours.ask("append", session="ours", texts=_texts("second", 3))
        theirs.ask(visit, path=str(path), session="theirs", texts=["again"])
        ours.ask("append", session="ours", texts=_texts("third", 3))
        assert ours.ask("logged") == []
        _end(ours, killed)
    _check(
        path,
        ours=_texts("first", before) + _texts("second", 3) + _texts("third", 3),
        theirs=["visited", "again"],
    )


@ENDINGS
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(0, id="none", marks=pytest.mark.full),
        pytest.param(3, id="few", marks=pytest.mark.full),
        pytest.param(120, id="checkpointed"),
    ],
)
@pytest.mark.parametrize("stays", [False, True], ids=["log-gone", "log-replaced"])
def test_without_the_lock_the_inode_of_the_log_saves_the_rows(
    home: Path, killed: bool, before: int, stays: bool
) -> None:
    path = home / "state.db"
    with Worker() as ours, Worker() as theirs:
        SessionDB(path).close()
        ours.ask("without_lock")
        ours.ask("open_store", path=str(path))
        if before:
            ours.ask("append", session="ours", texts=_texts("first", before))
        log = ours.ask("log_inode", path=str(path))
        ours.ask("read_raw", path=str(path))
        theirs.ask("visit_with_old_library", path=str(path), session="theirs", texts=["visited"])
        assert theirs.ask("log_inode", path=str(path)) is None  # the log was removed
        if stays:
            theirs.ask("open_store", path=str(path))
            theirs.ask("append", session="theirs", texts=["stayed"])
            assert theirs.ask("log_inode", path=str(path)) != log
        for n in range(3):
            ours.ask("append", session="ours", texts=[f"secondx{n}"])
            with Worker() as fresh:  # an acknowledged row must be readable by every process
                fresh.ask("open_store", path=str(path))
                result = fresh.ask("contents", session="ours")
                assert result == _texts("first", before) + _texts("second", n + 1)
        assert len([line for line in ours.ask("logged") if "removed its write-ahead log" in line]) == 1
        ours.ask("append", session="ours", texts=_texts("third", 70))
        assert ours.ask("health") == []
        _end(ours, killed)
    theirs_too = ["visited", "stayed"] if stays else ["visited"]
    _check(path, ours=_texts("first", before) + _texts("second", 3) + _texts("third", 70), theirs=theirs_too)


def test_without_the_lock_two_stores_of_one_process_lose_nothing(home: Path) -> None:
    """The rows of a removed log can be written again only if no connection of the process uses that log any
    more. Therefore all connections are reopened."""
    path = home / "state.db"
    with Worker() as ours, Worker() as theirs:
        ours.ask("without_lock")
        for name in ("one", "two"):
            ours.ask("open_store", path=str(path), name=name)
            ours.ask("append", session=name, texts=[f"before{name}"], name=name)
        ours.ask("read_raw", path=str(path))
        theirs.ask("visit_with_old_library", path=str(path), session="theirs", texts=["visited"])
        for text, name in (("first", "one"), ("second", "one"), ("third", "two")):
            ours.ask("append_only", session=name, texts=[text], name=name)
        ours.kill()
    _check(path, one=["beforeone", "first", "second"], two=["beforetwo", "third"], theirs=["visited"])


# --- Python's own sqlite3


def _spellings(path: Path) -> dict[str, tuple[Any, bool]]:
    link = path.with_name("link.db")
    link.symlink_to(path)
    folder = path.parent.with_name("linked home")
    folder.symlink_to(path.parent)
    return {
        "str": (str(path), False),
        "bytes": (os.fsencode(path), False),
        "path": (path, False),
        "relative": (os.path.relpath(path), False),
        "uri": (path.as_uri(), True),
        "uri with a query": (f"file:{path}?mode=ro", True),
        "uri with localhost": (f"file://localhost{path}", True),
        "uri with a fragment": (f"file:{path}#part", True),
        "escaped uri": (f"file:{str(path).replace('state', '%73tate')}", True),
        "link": (link, False),
        "linked folder": (folder / "state.db", False),
    }


def _is_refused(spelling: Any, uri: bool) -> bool:
    try:
        sqlite3.connect(spelling, uri=uri).close()
        return False
    except sqlite3.OperationalError as refusal:
        return isinstance(refusal, errors.SecondLibrary) and "SessionDB.raw()" in str(refusal)


def test_a_second_library_is_refused_while_the_store_is_open(home: Path) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        spellings = _spellings(path)
        accepted = [name for name, (spelling, uri) in spellings.items() if not _is_refused(spelling, uri)]
        assert accepted == []
        sqlite3.connect(":memory:").close()
        sqlite3.connect(home / "another.db").close()
        with SessionDB(path):
            pass
        with pytest.raises(errors.SecondLibrary):  # one of the two stores is still open
            sqlite3.connect(path)
        db.append_message("s", "user", "still here")
    for spelling, uri in spellings.values():
        connection = sqlite3.connect(spelling, uri=uri)
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)
        connection.close()


@ENDINGS
def test_a_library_that_was_loaded_before_causes_a_warning_and_no_loss(home: Path, killed: bool) -> None:
    path = home / "state.db"
    SessionDB(path).close()
    with Worker() as ours, Worker() as theirs:
        ours.ask("second_library", path=str(path))
        ours.ask("open_store", path=str(path))
        warned = ours.ask("logged")
        assert len(warned) == 1
        assert warned[0].startswith("RuntimeWarning: ")
        assert str(path) in warned[0]
        ours.ask("append", session="ours", texts=["one"])
        ours.ask("close_second_library")
        theirs.ask("visit_with_old_library", path=str(path), session="theirs", texts=["visited"])
        ours.ask("append", session="ours", texts=["two", "three"])
        _end(ours, killed)
    _check(path, ours=["one", "two", "three"], theirs=["visited"])


@ENDINGS
def test_a_library_that_comes_in_by_attach_loses_nothing(home: Path, killed: bool) -> None:
    """A second SQLite library in the process opens the store by ATTACH. This raises no audit event, so it
    cannot be refused."""
    path = home / "state.db"
    with Worker() as ours, Worker() as theirs:
        ours.ask("open_store", path=str(path))
        ours.ask("append", session="ours", texts=["one"])
        ours.ask("attach_second_library", path=str(path))
        ours.ask("append", session="ours", texts=["two"])
        ours.ask("close_second_library")
        theirs.ask("visit_with_old_library", path=str(path), session="theirs", texts=["visited"])
        ours.ask("append", session="ours", texts=["three", "four"])
        _end(ours, killed)
    _check(path, ours=["one", "two", "three", "four"], theirs=["visited"])


@pytest.mark.parametrize(
    ("changed_ns", "age", "settled"),
    [
        (1_000_000_000_123_456_789, 0.01, False),
        (1_000_000_000_123_456_789, 0.5, True),
        (1_000_000_000_000_000_000, 0.5, False),  # a file system with timestamps in whole seconds
        (1_000_000_000_000_000_000, 4, True),
        (1_000_000_000_123_456_789, -3600, False),  # the clock was set back
    ],
)
def test_a_modification_time_is_trusted_when_another_change_would_alter_it(
    changed_ns: int, age: float, settled: bool
) -> None:
    assert is_settled(changed_ns, changed_ns / 1e9 + age) is settled


@pytest.mark.parametrize("quiet", [True, False], ids=["long after", "at once"])
def test_a_log_that_was_replaced_is_noticed(tmp_path: Path, quiet: bool) -> None:
    """A replaced log is detected even if the folder had not changed for a long time, and even within one tick
    of the clock."""
    path, log, other = (tmp_path / name for name in ("state.db", "state.db-wal", "other"))
    path.touch()
    status = path.stat()
    for _ in range(3 if quiet else 200):
        log.touch()
        with log.open("rb"):  # as SQLite keeps it open
            guard = Guard(path, (status.st_dev, status.st_ino))
            for _ in range(3):
                assert guard.is_log_in_place()
                time.sleep(0.06 if quiet else 0.0)
            before = tmp_path.stat()
            other.touch()
            other.replace(log)
            # like a program that restores a folder
            os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert not guard.is_log_in_place()
            log.unlink()
            assert not guard.is_log_in_place()


# --- the path leads to another file


def test_a_store_that_is_a_link(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    SessionDB(tmp_path / "real" / "state.db").close()
    (tmp_path / "state.db").symlink_to(tmp_path / "real" / "state.db")
    with SessionDB(tmp_path / "state.db") as db, SessionDB(tmp_path / "state.db") as beside:
        db.create_session("s", "cli")
        db.append_message("s", "user", "one")
        beside.append_message("s", "user", "two")
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two"]
    assert caplog.messages == []


def test_a_folder_that_was_moved_while_the_store_is_open(tmp_path: Path) -> None:
    """The folder was copied. The link through which the store was opened now leads to the copy, which all
    other programs use. The next messages are stored in the copy."""
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "link"
    old.mkdir(mode=0o700)
    link.symlink_to(old)
    with SessionDB(link / "state.db") as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "one")
        shutil.copytree(old, new)
        link.unlink()
        link.symlink_to(new)
        db.append_message("s", "user", "two")
        with Worker() as other:
            other.ask("open_store", path=str(link / "state.db"))
            assert other.ask("contents", session="s") == ["one", "two"]
        db.append_message("s", "user", "three")
    with SessionDB(new / "state.db") as db:
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two", "three"]
        assert db.verify().ok


def test_a_folder_that_has_another_name_and_can_be_reached_by_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    with SessionDB(folder / "state.db") as db, SessionDB(folder / "state.db") as beside:
        db.create_session("s", "cli")
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        db.append_message("s", "user", "one")
        beside.append_message("s", "user", "two")
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two"]


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced", "moved with its folder"])
def test_a_store_that_is_no_longer_where_it_was_acknowledges_nothing(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    path = folder / "state.db"
    with SessionDB(folder / "other.db") as other:
        other.create_session("s", "cli")
    db = SessionDB(path)
    db.create_session("s", "cli")
    db.append_message("s", "user", "one")
    if what == "moved":
        path.rename(folder / "elsewhere.db")
    elif what == "deleted":
        path.unlink()
    elif what == "replaced":
        (folder / "other.db").rename(path)
    else:
        folder.rename(tmp_path / "away")
    before = {file.name for file in tmp_path.rglob("*")}
    for _ in range(3):
        with pytest.raises(errors.StoreFailed, match="moved, deleted or replaced"):
            db.append_message("s", "user", "two")
    assert {file.name for file in tmp_path.rglob("*")} <= before  # no empty store is created
    db.close()


def test_a_store_named_by_a_relative_path_stays_the_same_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    with SessionDB("state.db") as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "one")
        monkeypatch.chdir(tmp_path / "elsewhere")
        db.append_message("s", "user", "two")
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two"]
        assert db.db_path == tmp_path / "state.db"
    assert list((tmp_path / "elsewhere").iterdir()) == []
