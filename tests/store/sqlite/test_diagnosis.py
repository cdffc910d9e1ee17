"""The diagnosis of a store reports problems with advice. It changes nothing and raises no errors."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import apsw
import pytest

from hermes import errors
from hermes.store.findings import Diagnosis, Finding
from hermes.store.sqlite.upkeep import surroundings_check
from hermes.store.sqlite.wal import journal_choice
from hermes_state import SessionDB
from tests.store.sqlite import reference_databases
from tests.survival.processes import Worker, impatient


@pytest.fixture
def store(home: Path) -> Path:
    """Create and close a store with a backup and one open session that was started today."""
    with SessionDB() as db:
        db.create_session("s", "cli")
        db.set_session_title("s", "Lighthouse")
        for n in range(3):
            db.append_message("s", "user", f"word{n} " + "x" * 500)
        db.backup()
    return home / "state.db"


def sql(path: Path, statement: str, *values: apsw.SQLiteValue) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values).fetchall()
    connection.close()


def about(found: Diagnosis, start: str) -> list[Finding]:
    return [finding for finding in found.findings if finding.what.startswith(start)]


def find_only(found: Diagnosis, start: str) -> Finding:
    (finding,) = about(found, start)
    return finding


def looked_at(path: Path, *, deep: bool = False) -> Diagnosis:
    """Return the diagnosis. Check that making it changed nothing and that every problem has advice."""
    before = _folder(path)
    found = SessionDB.diagnose_file(path, deep=deep)
    assert _folder(path) == before
    for finding in found.findings:
        assert finding.level == "ok" or "`" in finding.advice, finding
        assert "\n" not in finding.what + finding.advice
    assert found.ok == (not {"warning", "error"} & {finding.level for finding in found.findings})
    return found


def _folder(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}


# --- a healthy store


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_store(store: Path, deep: bool) -> None:
    found = looked_at(store, deep=deep)
    assert found.ok
    assert {finding.level for finding in found.findings} == {"ok"}
    assert found.lines()[0] == str(store)
    assert found.lines()[-1] == "Nothing is wrong."
    assert "write-ahead log on" in find_only(found, "Journal").what
    assert "Open in: no program" in find_only(found, "Open in").what
    assert "last stored is message 3 of" in find_only(found, "Session s (Lighthouse)").what
    assert ("intact" if deep else "readable") in find_only(found, "Backups: 1").what
    assert bool(about(found, "Contents: 1 session and 3 messages")) == deep


def test_the_processes_that_have_the_store_open_are_named(store: Path) -> None:
    with SessionDB() as db, Worker() as other:
        other.ask("open_store", path=str(store))
        other.ask("append", session="s", texts=["beside"])
        found = db.diagnose()
        assert found.ok
        text = find_only(found, "Open in").what
        assert f"({os.getpid()}, this process)" in text
        assert f"({other.pid})" in text
        assert "Index: 1 message waiting" in find_only(found, "Index").what
        assert db.append_message("s", "user", "still writable")
    assert found.path == store


def test_a_running_writer_is_named_and_does_not_block_the_diagnosis(store: Path) -> None:
    with SessionDB() as db, Worker() as other:
        other.start("hold_write_lock", path=str(store), seconds=60)
        other.wait_for("held")
        assert f"({other.pid}, writing now)" in find_only(db.diagnose(deep=True), "Open in").what


def test_the_diagnosis_of_a_store_after_a_crash(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["one", "two"])
        worker.kill()
    log = Path(f"{path}-wal").read_bytes()
    found = SessionDB.diagnose_file(path)
    assert found.ok
    assert "last stored is message 2" in find_only(found, "Session s").what
    assert Path(f"{path}-wal").read_bytes() == log
    with SessionDB() as db:
        assert db.message_count("s") == 2


# --- stores that cannot be opened


def test_a_missing_store(home: Path) -> None:
    finding = find_only(SessionDB.diagnose_file(home / "state.db"), "Store")
    assert (finding.level, "there is no file" in finding.what) == ("error", True)
    assert not home.exists()


def test_a_missing_store_with_a_backup_names_the_restore_command(store: Path) -> None:
    (backup,) = (store.parent / "state.db.backups").iterdir()
    store.unlink()
    finding = find_only(looked_at(store), "Store")
    assert f"`hermes sessions restore {backup}`" in finding.advice


def test_a_log_without_its_file(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["one"])
        worker.kill()
    path.unlink()
    finding = find_only(looked_at(path), "Store")
    assert "its write-ahead log exists" in finding.what
    assert "`hermes sessions repair`" in finding.advice


@pytest.mark.parametrize(
    ("data", "told"), [(b"", "the file is empty"), (b"garbage\n" * 600, "not a SQLite database")]
)
def test_no_database(store: Path, data: bytes, told: str) -> None:
    store.write_bytes(data)
    finding = find_only(looked_at(store, deep=True), "Store")
    assert finding.level == "error"
    assert told in finding.what
    assert "`hermes sessions repair`" in finding.advice


def test_a_folder_in_place_of_the_store(home: Path) -> None:
    (home / "state.db").mkdir(parents=True)
    assert not looked_at(home / "state.db").ok


@pytest.mark.parametrize("seed", range(6))
def test_damaged_pages_are_findings(store: Path, seed: int) -> None:
    data = bytearray(store.read_bytes())
    pages = range(seed, len(data) // 4096, 3)
    for page in pages:
        data[max(100, page * 4096) : page * 4096 + 4096] = os.urandom(4096)[: 4096 if page else 3996]
    store.write_bytes(data)
    found = looked_at(store, deep=True)
    assert not found.ok
    assert any("hermes sessions repair" in finding.advice for finding in found.findings)


def test_a_mark_of_damage(store: Path) -> None:
    Path(f"{store}.damaged").write_text("database disk image is malformed\n")
    finding = find_only(looked_at(store), "Damage")
    assert finding.level == "error"
    assert "malformed" in finding.what


def test_a_store_of_a_newer_version(store: Path) -> None:
    sql(store, "PRAGMA user_version=999")
    finding = find_only(looked_at(store), "Store")
    assert (finding.level, "newer version" in finding.what) == ("error", True)


def test_a_store_of_an_older_version_is_a_note(home: Path) -> None:
    home.mkdir(mode=0o700)
    reference_databases.build(home / "state.db", 7, sessions=12)
    (home / "state.db").chmod(0o600)
    found = looked_at(home / "state.db")
    assert found.ok
    assert find_only(found, "Store").level == "note"


def test_a_store_that_is_locked_against_readers(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.execute(
        "PRAGMA journal_mode=DELETE; PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE"
    ).fetchall()
    try:
        finding = find_only(SessionDB.diagnose_file(store), "Store")
        assert finding.level == "warning"
        assert f"`ps -fp {os.getpid()}`" in finding.advice
    finally:
        connection.execute("COMMIT")
        connection.close()


# --- the surroundings of the store


def test_loose_permissions_come_with_the_command(store: Path, home: Path) -> None:
    home.chmod(0o755)
    store.chmod(0o644)
    (home / "spool").mkdir(mode=0o755)
    folders, files = about(looked_at(store), "Permissions")
    assert folders.advice == f"`chmod 700 {home} {home / 'spool'}`"
    assert files.advice == f"`chmod 600 {store}`"
    for finding in (folders, files):  # follow the advice
        subprocess.run(shlex.split(finding.advice.strip("`")), check=True)
    assert looked_at(store).ok


def test_a_network_file_system(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = journal_choice.journal_for(store)[1]
    monkeypatch.setattr(journal_choice, "UNFIT_FOR_WAL", frozenset({kind}))
    found = looked_at(store)
    assert find_only(found, "File system").level == "note"
    assert find_only(found, "Journal").level == "error"
    SessionDB().close()
    assert find_only(looked_at(store), "Journal").level == "ok"


@pytest.mark.parametrize(
    ("version", "level"), [("3.40.1", "warning"), ("3.51.2", "warning"), ("3.51.3", "ok"), ("3.100.0", "ok")]
)
def test_a_sqlite_version_with_a_corruption_bug_is_named(version: str, level: str) -> None:
    assert surroundings_check.check_sqlite_version(version).level == level


@pytest.mark.parametrize(
    ("free", "used", "level"),
    [(5e9, 1e9, "ok"), (9e8, 1e6, "warning"), (5e9, 3e9, "warning"), (6e9, 3e9, "ok")],
)
def test_room_on_the_disk(free: float, used: float, level: str) -> None:
    assert surroundings_check.describe_room(Path("/home/me/state.db"), int(free), int(used)).level == level


def test_spooled_messages(store: Path, home: Path) -> None:
    with SessionDB(spool=True) as db:
        impatient(db, 0.05)
        connection = apsw.Connection(str(store))
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreBusy):
            db.append_message("s", "user", "waits")
        connection.execute("ROLLBACK")
        connection.close()
    (home / "spool" / "1_1_x.jsonl.torn").write_bytes(b"{")
    waiting, torn = about(looked_at(store), "Spool")
    assert "1 write waiting" in waiting.what
    assert "cut off by a crash" in torn.what
    SessionDB().close()  # follow the advice
    assert "waiting" not in find_only(looked_at(store), "Spool").what


def test_a_program_that_holds_a_file_which_was_replaced(store: Path) -> None:
    copy = store.with_name("copy")
    shutil.copy(store, copy)
    with Worker() as other:
        other.ask("open_store", path=str(store))
        copy.replace(store)
        finding = next(
            finding
            for finding in SessionDB.diagnose_file(store).findings
            if "no longer the store" in finding.what
        )
        assert finding.level == "error"
        assert f"`kill {other.pid}`" in finding.advice


# --- the contents of the store


def test_messages_from_the_future(store: Path) -> None:
    with SessionDB() as db:
        db.append_message("s", "user", "tomorrow", timestamp=time.time() + 86400)
    finding = find_only(looked_at(store), "Clock")
    assert finding.level == "warning"
    assert "1 message dated in the future" in finding.what


def test_leases_are_reported_with_their_holder(store: Path) -> None:
    host = os.uname().nodename
    row = "INSERT INTO leases VALUES (?, 1, ?, ?, NULL, 'telegram', 1.0, ?)"
    sql(store, row, "s", host, os.getpid(), time.time() + 60)
    sql(store, row, "dead", host, 2**22 + 1, time.time() + 60)
    sql(store, row, "old", host, os.getpid(), 5.0)
    held, dead = sorted(about(looked_at(store), "Lease"), key=lambda finding: "gone" in finding.what)
    assert f"conversation s is held by telegram ({os.getpid()} on {host})" in held.what
    assert "the next program can take it over" in dead.what
    assert (held.level, dead.level) == ("ok", "ok")


def test_a_session_under_a_lease_is_live_however_old(store: Path) -> None:
    sql(store, "UPDATE sessions SET last_active = 5.0 WHERE id = 's'")
    assert about(looked_at(store), "Sessions: no open session")
    sql(store, "INSERT INTO leases VALUES ('s', 1, 'x', 1, NULL, NULL, 1.0, ?)", time.time() + 60)
    assert about(looked_at(store), "Session s (Lighthouse)")


def test_routes_without_a_session_are_reported(store: Path) -> None:
    row = """INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at)
        VALUES ('k', 'telegram', 'dm', 'gone', 1.0, 1.0)"""
    sql(store, row)
    finding = find_only(looked_at(store), "Routing")
    assert finding.level == "warning"
    assert "`hermes sessions repair`" in finding.advice
    SessionDB.repair_file(store)
    assert find_only(looked_at(store), "Routing").level == "ok"


def test_the_trash_has_a_size(store: Path) -> None:
    sql(store, "UPDATE sessions SET trashed_at = 1.0 WHERE id = 's'")
    assert "1 session, 3 messages" in find_only(looked_at(store), "Trash").what


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_backup_that_cannot_be_restored(store: Path, damage: str) -> None:
    (backup,) = (store.parent / "state.db.backups").iterdir()
    data = backup.read_bytes()
    backup.write_bytes(data[: len(data) // 2] if damage == "cut" else b"x" * 5000)
    finding = find_only(looked_at(store), "Backups")
    assert finding.level == "warning"
    assert "`hermes sessions backup`" in finding.advice


def test_no_backup_and_an_old_one_are_notes(store: Path) -> None:
    (backup,) = (store.parent / "state.db.backups").iterdir()
    os.utime(backup, (1e9, 1e9))
    assert find_only(looked_at(store), "Backups").level == "note"
    backup.unlink()
    assert find_only(looked_at(store), "Backups").level == "note"
    assert looked_at(store).ok


def test_a_deep_diagnosis_finds_more_than_a_quick_one(store: Path) -> None:
    sql(store, "UPDATE sessions SET preview = 'wrong' WHERE id = 's'")
    assert looked_at(store).ok
    found = looked_at(store, deep=True)
    assert about(found, "Inconsistent: activity or preview of session s")
    SessionDB.repair_file(store)  # follow the advice
    assert looked_at(store, deep=True).ok


def test_a_preview_with_attached_files_by_an_earlier_version_is_consistent(store: Path) -> None:
    sql(store, "UPDATE sessions SET preview = preview || '  [file a.txt] ``` milk' WHERE id = 's'")
    assert looked_at(store, deep=True).ok


def test_rows_of_other_programs_are_never_fatal(store: Path) -> None:
    sql(store, "UPDATE sessions SET last_active = 'soon', title = 5, started_at = 'x' WHERE id = 's'")
    sql(store, "UPDATE messages SET timestamp = 'never', content = x'ff'")
    sql(store, "INSERT INTO leases VALUES ('s', 1, 5, 'pid', 1, 1, 'x', 'later')")
    sql(store, "DROP TABLE index_progress")
    looked_at(store, deep=True)
