"""No other user can read a file of the store, whatever the umask is. No file contains purged text."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.store.sqlite import reference_databases
from tests.survival.processes import Refused, Worker


@contextmanager
def _watched(home: Path) -> Iterator[dict[str, int]]:
    """While the block runs, record the most permissive mode that each file and folder has."""
    seen: dict[str, int] = {}
    stop = threading.Event()

    def look() -> None:
        if home.exists():
            for entry in (home, *home.rglob("*")):
                try:
                    seen[entry.name] = seen.get(entry.name, 0) | (os.lstat(entry).st_mode & 0o777)
                except FileNotFoundError:
                    continue

    def watch() -> None:
        while not stop.is_set():
            look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
        look()
    finally:
        stop.set()
        thread.join()


def test_every_file_is_private_at_every_moment(home: Path) -> None:
    os.umask(0)
    with _watched(home) as seen, Worker() as worker, SessionDB() as db:
        db.create_session("s", "cli")
        for n in range(120):
            db.append_message("s", "user", f"secret {n}")
        assert db.search_messages("secret")
        db.backup()
        worker.ask("set_umask", mask=0)
        worker.ask("visit", path=str(db.db_path), session="t", texts=["beside"])
        db.vacuum()
        db.optimize()
        assert db.delete_session("s", purge=True)
        backup = db.backup()
        db.restore(backup.path)
        db.append_message("t", "user", "after")
    assert len(seen) >= 6, seen
    folders = {"home", "state.db.backups"}
    assert {name: oct(mode) for name, mode in seen.items() if name in folders and mode != 0o700} == {}
    assert {name: oct(mode) for name, mode in seen.items() if name not in folders and mode & 0o177} == {}
    assert {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"} <= set(seen)


def test_a_migration_is_private_at_every_moment(home: Path) -> None:
    os.umask(0)
    home.mkdir(mode=0o700)
    reference_databases.build(home / "state.db", 7, sessions=30)
    (home / "state.db").chmod(0o600)
    with _watched(home) as seen:
        SessionDB().close()
    folders = {"home", "state.db.backups"}
    assert any("before-migration" in name for name in seen)
    assert {name: oct(mode) for name, mode in seen.items() if name in folders and mode != 0o700} == {}
    assert {name: oct(mode) for name, mode in seen.items() if name not in folders and mode & 0o177} == {}


def test_without_a_log_the_journal_is_private_too(home: Path) -> None:
    home.mkdir(mode=0o700)
    with _watched(home) as seen, Worker() as worker:
        worker.ask("set_umask", mask=0)
        worker.ask("write_ahead_log_unfit", folder=str(home))
        worker.ask("open_store", path=str(home / "state.db"))
        for n in range(40):
            worker.ask("append", session="s", texts=[f"{n} " + "x" * 3000])
    assert {name: oct(mode) for name, mode in seen.items() if name != "home" and mode & 0o177} == {}


def test_created_folders_above_the_home_are_private(home: Path) -> None:
    os.umask(0)
    path = home / "deep" / "er" / "state.db"
    SessionDB(path).close()
    for folder in (home, home / "deep", home / "deep" / "er"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_loose_files_of_an_older_installation_are_tightened_with_one_notice(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Worker() as worker:
        path = home / "state.db"
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["hello"])
        worker.kill()
    home.chmod(0o755)
    for file in home.iterdir():
        file.chmod(0o666)
    with caplog.at_level(logging.WARNING, "hermes"):
        with SessionDB(path) as db:
            for name in ("state.db", "state.db-wal", "state.db-shm"):
                assert (home / name).stat().st_mode & 0o777 == 0o600
            assert home.stat().st_mode & 0o777 == 0o700
            assert [row["content"] for row in db.get_messages("s")] == ["hello"]
        SessionDB(path).close()
    notices = [record.getMessage() for record in caplog.records]
    assert len(notices) == 1
    assert "state.db" in notices[0]
    assert [file.name for file in home.iterdir() if file.stat().st_mode & 0o077] == []


# --- purged

TOKENS = ("Quetzalcoatlus", "Zephyrhöhe", "端午節龍舟賽", "xylophonkonzert42")


def _traces(home: Path, tokens: tuple[str, ...]) -> list[str]:
    """Return the places in the files of the home that contain a token in any encoding."""
    found = []
    for token in tokens:
        folded = token.casefold()
        spellings = {
            token,
            folded,
            folded.replace("ö", "o"),
            json.dumps(token)[1:-1],
            json.dumps(folded)[1:-1],
        }
        needles = {spelling.encode() for spelling in spellings} | {token.encode("utf-16-le")}
        for file in home.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                found += [f"{token} in {file.name}" for needle in needles if needle in content]
    return found


def _confide(db: SessionDB, session: str) -> None:
    db.create_session(session, "telegram", system_prompt=f"system {TOKENS[0]}", model_config={"a": TOKENS[1]})
    db.set_session_title(session, f"about {TOKENS[0]}")
    for n in range(60):
        db.append_message(session, "user", f"{n} {TOKENS[0]} {TOKENS[1]} " + "padding " * 50)
        call = {"id": "c", "function": {"name": "f", "arguments": json.dumps({"q": TOKENS[2]})}}
        db.append_message(session, "assistant", [{"type": "text", "text": TOKENS[2]}], tool_calls=[call])
        db.append_message(
            session, "tool", f"large {TOKENS[3]} " * 300, tool_name=TOKENS[3], reasoning=TOKENS[1]
        )


def _written_beside(home: Path, session: str) -> None:
    folder = home / "sessions"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in (
        f"{session}.jsonl",
        f"{session}.json",
        f"session_{session}.json",
        f"request_dump_{session}_1.json",
    ):
        (folder / name).write_text(json.dumps({"content": " ".join(TOKENS)}), encoding="utf-8")


def test_a_purged_session_leaves_no_byte_behind(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("stays", "cli")
        db.append_message("stays", "user", "this stays staysword")
        _confide(db, "goes")
        _written_beside(home, "goes")
        (home / "sessions" / "stays.jsonl").write_text("kept", encoding="utf-8")
        assert len(db.search_messages(TOKENS[0], limit=1000)) == 60
        db.backup()
        db.replace_messages(
            "goes", [*db.get_messages_as_conversation("goes")[:30], {"role": "user", "content": TOKENS[3]}]
        )
        db.backup()
        assert _traces(home, TOKENS)  # it can be found before the purge
        assert db.delete_session("goes", purge=True)
        assert _traces(home, TOKENS) == []  # immediately, before anything is closed
        assert [row["content"] for row in db.get_messages("stays")] == ["this stays staysword"]
        assert len(db.search_messages("staysword")) == 1
        assert (home / "sessions" / "stays.jsonl").read_text(encoding="utf-8") == "kept"
        assert db.verify().ok
    assert _traces(home, TOKENS) == []
    SessionDB().close()
    assert _traces(home, TOKENS) == []


def test_a_purge_is_complete_after_a_kill_and_beside_other_processes(home: Path) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        _confide(db, "goes")
    with Worker() as killed, Worker() as beside:
        killed.ask("open_store", path=str(path))
        killed.ask("append", session="goes", texts=[f"left in the log {TOKENS[0]}"])
        killed.kill()
        beside.ask("open_store", path=str(path))
        beside.ask("found", query=TOKENS[0])
        with SessionDB(path) as db:
            assert db.delete_session("goes", purge=True)
            assert _traces(home, TOKENS) == []
        assert beside.ask("found", query=TOKENS[0]) == []
        beside.ask("close")
    assert _traces(home, TOKENS) == []


STEPS = (
    "Retention.remove_files_of",  # only the rows are deleted
    "remove_saved",
    "Spool.erase",
    "CopyEraser.erase",
    "copy_into",
    "_forget_sessions",
    "replace",  # the first copy without the session is renamed to its final name
    "retire",
    "SqliteEngine._rewrite_file",
    "Purge.finish.<locals>.<lambda>",  # everything is done except marking the purge as finished
)


@pytest.mark.parametrize(
    "step",
    [STEPS[0], *(pytest.param(step, marks=pytest.mark.full) for step in STEPS[1:-1]), STEPS[-1]],
)
def test_a_purge_that_is_killed_is_finished_by_the_next(home: Path, step: str) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        db.create_session("stays", "cli")
        db.append_message("stays", "user", "this stays staysword")
        _confide(db, "goes")
        _written_beside(home, "goes")
        (home / "sessions" / "saved").mkdir()
        saved = home / "sessions" / "saved" / "hermes_conversation_1.json"
        values = {"session_id": "goes", "messages": db.get_messages_as_conversation("goes")}
        saved.write_text(json.dumps(values), encoding="utf-8")
        (home / "kept").mkdir()
        copies = [db.backup().path, db.backup(home / "kept" / "copy").path]
    with Worker() as killed:
        killed.ask("open_store", path=str(path))
        killed.start("purge_until", session="goes", step=step)
        assert list(killed.lines()) == []
    with SessionDB(path) as db:
        assert db.get_session("goes") is None
        if STEPS.index(step) % 2:
            db.optimize()
        else:
            assert db.delete_session("goes", purge=True) is False
        assert _traces(home, TOKENS) == []
    assert not [
        file.name for file in home.rglob("*") if "partial" in file.name or file.name.endswith("-journal")
    ]
    for store in (path, *copies):
        with SessionDB(store) as kept:
            assert [row["content"] for row in kept.get_messages("stays")] == ["this stays staysword"]
            assert kept.verify().ok


def test_a_purge_delayed_by_a_reader_does_not_report_success(home: Path) -> None:
    """The snapshot of a reader keeps old pages in the file. The purge then fails or waits. It never reports
    success too early."""
    path = home / "state.db"
    with SessionDB(path) as db:
        _confide(db, "goes")
    with Worker() as reading, Worker() as ours:
        ours.ask("open_store", path=str(path))
        ours.ask("be_impatient", seconds=0.5)
        reading.ask("hold_snapshot", path=str(path))
        try:
            ours.ask("purge", session="goes")
            left = _traces(home, TOKENS)
        except Refused as refused:
            left = [] if "StoreError" in refused.kinds else [refused.message]
        assert left == []
        ours.kill()


def test_deleted_messages_are_found_by_no_search(home: Path) -> None:
    with SessionDB() as db:
        _confide(db, "goes")
        assert len(db.search_messages(TOKENS[0], limit=1000)) == 60
        assert db.delete_session("goes")
        for token in TOKENS:
            assert db.search_messages(token) == []
            assert db.search_messages(token[:5] + "*") == []
        assert db.list_sessions_rich() == []
        assert list(db.export_all()) == []
        assert db.get_session_by_title(f"about {TOKENS[0]}") is None
        with Worker() as worker:
            worker.ask("open_store", path=str(db.db_path))
            assert worker.ask("found", query=TOKENS[0]) == []
    with SessionDB(read_only=True) as db:
        for token in TOKENS:
            assert db.search_messages(token) == []
