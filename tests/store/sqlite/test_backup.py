"""A backup is either complete or absent. Backups are private, and their number is limited. A restore either
completes or changes nothing.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes import errors
from hermes.atomic_files import open_partial_file
from hermes.store.sqlite import creation, damage_mark
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.copies.backup import backup_folder, list_backups, make_backup, trim_backups
from hermes.store.sqlite.copies.store_files import StoreFiles
from hermes.store.sqlite.migrations import APPLICATION_ID, LAYOUT
from hermes.store.sqlite.upkeep.restore import is_alone
from hermes.store.sqlite.upkeep.restore import restore as restore_backup
from hermes.store.values import Backup
from tests.store.sqlite.reference_databases import build, build_marked, build_newer

ADD_SESSION = "INSERT INTO sessions (id, source, started_at, root_id, listed) VALUES (?, 'cli', 1, ?, 1)"
ADD_MESSAGE = (
    "INSERT INTO messages (session_id, role, content, timestamp, uid) VALUES (?, 'user', ?, 1, x'00')"
)
COUNTS = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a store in WAL mode with three sessions of two messages each, and close it."""
    path = tmp_path / "store" / "state.db"
    path.parent.mkdir(mode=0o700)
    return new_store(path)


def new_store(path: Path) -> Path:
    path.touch(0o600)
    creation.build_store(path)
    with opened(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        fill(connection, "first", 3)
    return path


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path)
    try:
        yield connection
    finally:
        connection.close()


def fill(connection: apsw.Connection, name: str, sessions: int, length: int = 10) -> None:
    with connection:
        for n in range(sessions):
            connection.execute(ADD_SESSION, (f"{name} {n}", f"{name} {n}"))
            connection.execute(ADD_MESSAGE, (f"{name} {n}", "x" * length))
            connection.execute(ADD_MESSAGE, (f"{name} {n}", "y" * length))


def counts(path: Path) -> tuple[int, int]:
    return rows(path, COUNTS)[0]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with opened(path) as connection:
        return connection.execute(sql).fetchall()


def back_up(path: Path, target: Path | None = None, reason: str = "backup") -> Backup:
    with opened(path) as connection:
        return make_backup(connection, path, target, reason=reason)


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def zero_messages(path: Path) -> None:
    """Overwrite pages in the middle of the table `messages` with zeros."""
    rows(path, "PRAGMA journal_mode=DELETE")
    [(size,)] = rows(path, "PRAGMA page_size")
    pages = rows(path, "SELECT pageno FROM dbstat WHERE name = 'messages' ORDER BY pageno")
    with path.open("r+b") as file:
        for (page,) in pages[1:] or pages:
            file.seek((page - 1) * size)
            file.write(bytes(size))


def start(script: str, *args: object) -> subprocess.Popen[str]:
    """Start another process and wait until it prints that it is ready."""
    child = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def end(child: subprocess.Popen[str]) -> str:
    """Wait for the end of the process and return its output after "ready".

    `communicate` would miss lines that `start` has already buffered.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write("\n")
    with child.stdout:
        output = child.stdout.read()
    child.wait()
    return output


# --- creating


def test_a_backup_is_whole_and_a_single_file(path: Path) -> None:
    made = back_up(path)
    assert (made.sessions, made.messages) == (3, 6)
    assert made.path.parent == path.with_name("state.db.backups")
    assert re.fullmatch(r"state-\d{8}_\d{6}-backup\.db", made.path.name)
    assert os.listdir(made.path.parent) == [made.path.name]
    content = made.path.read_bytes()
    assert len(content) == made.size
    assert content[18:20] == b"\x01\x01", "no write-ahead log belongs to it"
    assert counts(made.path) == (3, 6)
    assert os.listdir(made.path.parent) == [made.path.name]


def test_a_backup_contains_rows_that_are_only_in_the_log(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        fill(connection, "second", 2)
        assert os.stat(f"{path}-wal").st_size > 0
        made = back_up(path)
    assert (made.sessions, made.messages) == counts(made.path) == (5, 10)


def test_backups_are_private_whatever_the_umask(path: Path) -> None:
    os.umask(0)
    made = back_up(path)
    assert made.path.parent.stat().st_mode & 0o777 == 0o700
    assert made.path.stat().st_mode & 0o777 == 0o600
    elsewhere = back_up(path, path.parent / "mine.db")
    assert elsewhere.path.stat().st_mode & 0o777 == 0o600


def test_a_looser_folder_of_backups_is_tightened(path: Path) -> None:
    backup_folder(path).mkdir(mode=0o755)
    back_up(path)
    assert backup_folder(path).stat().st_mode & 0o777 == 0o700


def test_a_target_may_be_a_file_or_a_folder(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.db"
    target.write_text("an older one")
    assert back_up(path, target).path == target
    assert counts(target) == (3, 6)
    (tmp_path / "folder").mkdir()
    assert back_up(path, tmp_path / "folder").path.parent == tmp_path / "folder"
    assert list_backups(path) == []


@pytest.mark.parametrize(
    "name",
    [
        *("state.db", "state.db-wal", "../store/state.db", "link.db", "hard.db"),
        *("state.db.lock", "state.db.key.json", "state.db.damaged", "state.db.damaged-20260101_000000"),
        *("spool/1.jsonl", "../home/config.yaml", "../home/.env", "settings"),
    ],
)
def test_the_store_itself_cannot_be_the_target(path: Path, home: Path, name: str) -> None:
    (path.parent / "link.db").symlink_to(path)
    (path.parent / "hard.db").hardlink_to(path)
    (path.parent / "settings").symlink_to(home / "config.yaml")
    before = everything_in(path.parent)
    with pytest.raises(errors.BackupFailed):
        back_up(path, path.parent / name)
    assert everything_in(path.parent) == before


def test_a_store_that_is_a_link_owns_the_files_beside_both_names(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "here.db"
    link.symlink_to(path)
    own = StoreFiles(link)
    for name in (link, path, Path(f"{path}-wal"), Path(f"{link}.lock"), backup_folder(link) / "page.html"):
        assert own.describe_role(name) is not None, name
    assert own.describe_role(backup_folder(link) / "mine.db", is_copy=True) is None
    assert own.describe_role(tmp_path / "here.db.html") is None


def test_a_failed_backup_leaves_the_older_one(path: Path) -> None:
    target = path.parent / "mine.db"
    back_up(path, target)
    before = target.read_bytes()
    with opened(path) as connection:
        fill(connection, "more", 200, 500)
    zero_messages(path)
    with pytest.raises(errors.StoreDamaged, match="hermes sessions repair"):
        back_up(path, target)
    assert target.read_bytes() == before
    with pytest.raises(errors.StoreDamaged):
        back_up(path)
    assert os.listdir(backup_folder(path)) == []


def test_a_broken_search_index_does_not_prevent_a_backup(path: Path) -> None:
    with opened(path) as connection:
        connection.execute("UPDATE messages_fts_words_data SET block = x'00'")
    made = back_up(path)
    assert counts(made.path) == (3, 6)


def test_a_folder_that_cannot_be_written_is_one_clear_error(path: Path) -> None:
    with pytest.raises(errors.BackupFailed, match="No such file or directory"):
        back_up(path, path.parent / "nowhere" / "mine.db")
    with pytest.raises(sqlite3.OperationalError):
        back_up(path, path / "mine.db")


WITHOUT_ROOM = """
import os, resource, sys
from pathlib import Path
from hermes import errors
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.copies.backup import make_backup
print("ready", flush=True)
path = Path(sys.argv[1])
connection = connect(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    make_backup(connection, path)
except errors.BackupFailed as problem:
    print(problem, flush=True)
os._exit(0)
"""


def test_a_full_disk_leaves_nothing_behind(path: Path) -> None:
    with opened(path) as connection:
        fill(connection, "large", 100, 5000)
    assert "no room left" in end(start(WITHOUT_ROOM, path))
    assert os.listdir(backup_folder(path)) == []
    assert counts(path) == (103, 206)


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_backup_is_one_moment_while_others_write(path: Path, mode: str) -> None:
    """Each transaction adds one session and two messages. A backup with another proportion would mix the
    states of two moments."""
    with opened(path) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}").fetchall()
        fill(connection, "large", 500, 20_000)
    stop = threading.Event()
    written: list[float] = []

    def write() -> None:
        with opened(path) as connection:
            while not stop.is_set():
                fill(connection, f"during {len(written)}", 1)
                written.append(time.monotonic())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [back_up(path) for _ in range(3)]
    finally:
        stop.set()
        writer.join()
    for backup in made:
        assert backup.messages == 2 * backup.sessions
        assert counts(backup.path) == (backup.sessions, backup.messages)
    assert len(written) > 3
    assert max(b - a for a, b in pairwise(written)) < 10


INTERRUPTED = """
import sys
from pathlib import Path
from hermes.store.sqlite.connection import connect
from hermes.store.sqlite.copies import backup, page_copy
page_copy.PAGES_AT_ONCE = 1
path = Path(sys.argv[1])
connection = connect(path)
print("ready", flush=True)
sys.stdin.readline()
backup.make_backup(connection, path)
"""


@pytest.mark.full
def test_a_killed_backup_leaves_no_named_file(path: Path) -> None:
    with opened(path) as connection:
        fill(connection, "large", 200, 50_000)
    folder = backup_folder(path)
    for _ in range(8):
        child = start(INTERRUPTED, path)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        while not list(folder.glob(".*-partial")) and child.poll() is None:
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.05))
        child.kill()
        end(child)
        for made in list_backups(path):  # the backup may have been complete before the kill
            assert counts(made) == (203, 406)
    made_now = back_up(path)
    assert counts(made_now.path) == (203, 406)
    assert [name for name in os.listdir(folder) if "partial" in name] == []


def test_the_partial_file_of_a_running_backup_is_not_removed(path: Path) -> None:
    back_up(path)
    with open_partial_file(backup_folder(path), "state") as (partial, _):
        back_up(path)
        assert partial.exists()
    assert not partial.exists()


# --- retention of backups


def stamped(path: Path, *names: str) -> list[Path]:
    """Create complete backups with these names, oldest first."""
    whole = back_up(path, path.parent / "whole.db").path
    backup_folder(path).mkdir(mode=0o700)
    return [Path(shutil.copy(whole, backup_folder(path) / f"state-{name}.db")) for name in names]


def test_backups_are_listed_newest_first(path: Path) -> None:
    oldest_first = stamped(
        path,
        "20250101_000000-backup",
        "20250101_000000-2-aaa",
        "20250101_000000-10-aaa",
        "20250102_000000-backup",
    )
    (backup_folder(path) / "notes.txt").touch()
    (backup_folder(path) / "state-20250103_000000-before-restore.db.damaged").touch()
    assert list_backups(path) == oldest_first[::-1]
    assert list_backups(path.parent / "other.db") == []


def test_the_number_of_backups_is_limited(path: Path) -> None:
    made = [back_up(path).path for _ in range(9)]
    assert len(set(made)) == 9
    assert list_backups(path) == made[:3:-1]


def test_the_size_of_backups_is_limited_but_the_newest_is_kept(path: Path) -> None:
    files = stamped(path, *(f"2025010{n}_000000-backup" for n in range(1, 5)))
    size = files[0].stat().st_size
    assert trim_backups(path, keep=10, most_bytes=3 * size) == [files[0]]
    assert trim_backups(path, keep=10, most_bytes=1) == [files[2], files[1]]
    assert list_backups(path) == [files[3]]
    assert trim_backups(path, keep=0, most_bytes=0) == []


def test_the_copy_from_before_a_migration_outlives_the_others(path: Path) -> None:
    old, *others = stamped(
        path, "20240101_000000-before-migration-v9", *(f"2025010{n}_000000-backup" for n in range(1, 9))
    )
    trim_backups(path, keep=2)
    assert list_backups(path) == [others[-1], others[-2], old]

    [broken] = [Path(shutil.copy(old, backup_folder(path) / "state-20250201_000000-before-migration-v11.db"))]
    zero_messages(broken)
    trim_backups(path, keep=1)
    assert old in list_backups(path), "the newer one is damaged"

    shutil.copy(old, broken)
    trim_backups(path, keep=1)
    assert list_backups(path) == [broken]


def test_a_clock_that_went_back_does_not_confuse_the_order(path: Path) -> None:
    [future] = stamped(path, "20990101_000000-backup")
    made = back_up(path).path
    assert made.name == "state-20990101_000000-2-backup.db"
    assert list_backups(path) == [made, future]


# --- restoring


TURN_THE_LOG_ON = """
import sqlite3, sys
try:
    connection = sqlite3.connect(sys.argv[1], timeout=0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("SELECT count(*) FROM sessions").fetchall()
except sqlite3.OperationalError as problem:
    print(problem)
"""


@pytest.mark.parametrize("statement", range(8))
def test_no_program_can_turn_on_the_log_while_the_file_is_replaced(path: Path, statement: int) -> None:
    """If a program could turn the log on at this moment, its log would lie beside the new file."""
    live, seen = connect(path), 0

    def meanwhile(*_: object) -> bool:
        nonlocal seen
        if seen == statement:
            subprocess.run([sys.executable, "-c", TURN_THE_LOG_ON, str(path)], check=True)
        seen += 1
        return True

    live.exec_trace = meanwhile
    try:
        try:
            assert is_alone(live)
        except apsw.BusyError:
            return  # refused, so the file is not replaced
        live.exec_trace = None
        assert live.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        assert not os.path.exists(f"{path}-wal")
        other = subprocess.run(
            [sys.executable, "-c", TURN_THE_LOG_ON, str(path)], stdout=subprocess.PIPE, text=True, check=True
        )
        assert other.stdout == "database is locked\n"
    finally:
        live.close()


def test_a_restore_recovers_the_contents(path: Path) -> None:
    made = back_up(path).path
    with opened(path) as connection:
        fill(connection, "later", 2)
        connection.execute("DELETE FROM messages WHERE session_id = 'first 0'")
    inode = path.stat().st_ino
    restore_backup(path, made)
    assert counts(path) == (3, 6)
    assert path.stat().st_ino == inode, "whoever opens it at that moment has the right file"
    assert path.stat().st_mode & 0o777 == 0o600
    [kept, _] = list_backups(path)
    assert kept.name.endswith("-before-restore.db")
    assert counts(kept) == (5, 8)
    restore_backup(path, kept)
    assert counts(path) == (5, 8)


def test_the_restored_store_opens_and_verifies(path: Path) -> None:
    from hermes_state import SessionDB

    made = back_up(path).path
    path.write_bytes(b"garbage" * 1000)
    restore_backup(path, made)
    db = SessionDB(db_path=path)
    try:
        assert db.search_messages("x" * 10)
        assert db.verify().damage == ()
    finally:
        db.close()


def test_a_backup_of_an_older_version_can_be_restored(path: Path, tmp_path: Path) -> None:
    from hermes_state import SessionDB

    expected = build(tmp_path / "old.db", 7)
    restore_backup(path, tmp_path / "old.db")
    SessionDB(db_path=path).close()
    with opened(path) as connection:
        expected.check(connection)


def test_the_backup_being_restored_is_never_trimmed_away(path: Path) -> None:
    oldest, *_ = stamped(path, *(f"2025010{n}_000000-backup" for n in range(1, 9)))
    restore_backup(path, oldest)
    assert oldest.exists()
    assert len(list_backups(path)) <= 6


HOLDER = """
import sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
db.append_message("first 0", "user", "still here")
print(len(db.get_messages("first 0")), flush=True)
db.close()
"""
FOREIGN_HOLDER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1])
conn.execute("SELECT count(*) FROM messages").fetchall()
print("ready", flush=True)
sys.stdin.readline()
print(conn.execute("SELECT count(*) + 1 FROM messages WHERE session_id = 'first 0'").fetchall()[0][0], flush=True)
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a restore soon. By default, it waits two seconds for other processes."""
    monkeypatch.setattr("hermes.store.sqlite.upkeep.restore.WAIT_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("holder", [HOLDER, FOREIGN_HOLDER])
def test_a_restore_is_refused_while_another_process_has_the_store(path: Path, holder: str) -> None:
    made = back_up(path).path
    with opened(path) as connection:
        fill(connection, "later", 1)
    child = start(holder, path)
    try:
        with pytest.raises(errors.StoreBusy, match="open in another program"):
            restore_backup(path, made)
    finally:
        output = end(child)
    assert output == "3\n"
    assert counts(path) in {(4, 8), (4, 9)}
    assert len(list_backups(path)) == 1
    restore_backup(path, made)
    assert counts(path) == (3, 6)


@pytest.mark.usefixtures("impatient")
def test_a_restore_is_refused_while_this_process_has_the_store(path: Path) -> None:
    from hermes_state import SessionDB

    made = back_up(path).path
    db = SessionDB(db_path=path)
    try:
        with pytest.raises(errors.StoreBusy):
            restore_backup(path, made)
        db.append_message("first 0", "user", "still here")
    finally:
        db.close()
    assert counts(path) == (3, 7)


def test_a_damaged_store_is_restored_and_set_aside(path: Path) -> None:
    made = back_up(path).path
    with opened(path) as connection:
        fill(connection, "more", 200, 500)
    zero_messages(path)
    damage_mark.mark_damaged(path, "a broken page")
    restore_backup(path, made)
    assert counts(path) == (3, 6)
    assert not Path(f"{path}.damaged").exists()
    [aside] = backup_folder(path).glob("*.damaged")
    assert aside.name.endswith("-before-restore.db.damaged")
    assert aside.stat().st_mode & 0o777 == 0o600
    assert list_backups(path) == [made]


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"x", b""])
def test_a_file_that_is_not_a_database_is_restored_and_set_aside(path: Path, content: bytes) -> None:
    made = back_up(path).path
    path.write_bytes(content)
    log = Path(f"{path}-wal")
    log.write_bytes(b"half a log")
    restore_backup(path, made)
    assert counts(path) == (3, 6)
    aside = sorted(backup_folder(path).glob("*.damaged*"))
    assert [file.read_bytes() for file in aside] == ([content] if content else []) + [b"half a log"]
    assert {file.stat().st_mode & 0o777 for file in [path, *aside]} == {0o600}


def test_a_missing_store_is_restored_without_its_old_sidecars(path: Path) -> None:
    made = back_up(path).path
    with opened(path) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        fill(connection, "later", 3)
        sidecar = Path(f"{path}-wal").read_bytes()
    path.unlink()
    Path(f"{path}-wal").write_bytes(sidecar)
    Path(f"{path}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))
    restore_backup(path, made)
    assert counts(path) == (3, 6)
    assert not Path(f"{path}-journal").exists()
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_store_can_be_restored_into_a_new_home(path: Path, tmp_path: Path) -> None:
    os.umask(0)
    made = back_up(path).path
    moved = tmp_path / "new home" / "state.db"
    restore_backup(moved, made)
    assert counts(moved) == (3, 6)
    assert moved.stat().st_mode & 0o777 == 0o600
    assert moved.parent.stat().st_mode & 0o777 == 0o700


def test_backups_that_cannot_be_used_are_refused_and_not_changed(path: Path, tmp_path: Path) -> None:
    newer, layout, damaged, garbage, other = (tmp_path / f"{n}.db" for n in range(5))
    build_newer(newer)
    build_marked(layout, user_version=LAYOUT + 1, application_id=APPLICATION_ID)
    build(damaged, 11, sessions=60)
    zero_messages(damaged)
    garbage.write_bytes(b"garbage" * 1000)
    with closing(sqlite3.connect(other)) as conn:
        conn.execute("CREATE TABLE bookmarks (url TEXT)")
    with opened(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    before = path.read_bytes()
    for source, kind, sentence in [
        (newer, errors.StoreTooNew, "schema version 12"),
        (layout, errors.StoreTooNew, f"layout {LAYOUT + 1}"),
        (damaged, errors.BackupFailed, "is damaged"),
        (garbage, errors.BackupFailed, "is not a SQLite database"),
        (other, errors.StoreFailed, "is not a session store"),
        (tmp_path / "nowhere.db", errors.BackupFailed, "is not a file"),
        (tmp_path, errors.BackupFailed, "is not a file"),
        (path, errors.BackupFailed, "is the store itself"),
    ]:
        with pytest.raises(kind, match=sentence):
            restore_backup(path, source)
        assert path.read_bytes() == before
    assert list_backups(path) == []


READER = """
import sqlite3, sys, time
path, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
print("ready", flush=True)
seen = set()
while time.monotonic() < until:
    conn = sqlite3.connect(path, timeout=30)
    seen.add(conn.execute(
        "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)").fetchall()[0])
    conn.close()
    time.sleep(0.005)
print(sorted(seen), flush=True)
"""


@pytest.mark.full
def test_programs_that_open_during_a_restore_see_one_store_or_the_other(path: Path) -> None:
    small = back_up(path, path.parent / "small.db").path
    with opened(path) as connection:
        fill(connection, "large", 200, 20_000)
    large = back_up(path, path.parent / "large.db").path
    children = [start(READER, path, 4) for _ in range(2)]
    restored = 0
    until = time.monotonic() + 3.5
    while time.monotonic() < until:
        try:
            restore_backup(path, (small, large)[restored % 2])
            restored += 1
        except errors.StoreBusy:
            pass
    outputs = {end(child) for child in children}
    assert restored > 2
    assert outputs <= {f"{sorted(s)}\n" for s in [{(3, 6)}, {(203, 406)}, {(3, 6), (203, 406)}]}
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


RESTORER = """
import sys
from pathlib import Path
from hermes.store.sqlite.upkeep import restore
print("ready", flush=True)
sys.stdin.readline()
restore.restore(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.full
@pytest.mark.parametrize("live", ["sound", "garbage"])
def test_a_killed_restore_leaves_one_store_or_the_other(path: Path, live: str) -> None:
    with opened(path) as connection:
        fill(connection, "large", 200, 20_000)
    source = back_up(path, path.parent / "source.db").path
    with opened(path) as connection:
        connection.execute("DELETE FROM messages")
        connection.execute("DELETE FROM sessions WHERE id LIKE 'large%'")
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    before = path.read_bytes() if live == "sound" else b"garbage" * 10_000
    outcomes = []
    for n in range(12):
        for ending in ("-wal", "-shm", "-journal"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        path.write_bytes(before)
        child = start(RESTORER, path, source)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        if n == 0:
            child.wait()  # the first restore runs to its end
        else:
            time.sleep(random.uniform(0, 0.25))
        child.send_signal(signal.SIGKILL)
        end(child)
        if live == "garbage" and path.read_bytes() == before:
            outcomes.append("before")
            continue
        found = counts(path)
        assert found in {(203, 406), (3, 0)}
        outcomes.append("after" if found == (203, 406) else "before")
        with opened(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert outcomes[0] == "after"
    restore_backup(path, source)
    assert counts(path) == (203, 406)
