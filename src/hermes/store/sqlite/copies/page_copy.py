"""One moment of a live database, page by page into another file, and the proof that what arrived is whole."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hermes.store.sqlite.connection import Patience, connect, damage_error, pragma, run
from hermes.store.sqlite.encryption import encryption

PAGES_AT_ONCE = 2000
"""About 8 MB between two chances for others: threads of this process, and writers where there is no log."""
MOST_RESTARTS = 5

# What must be whole in a copy. Search tables are derived: a copy with a broken one is as good as the store itself. And
# SQLite calls a sound one malformed if an older SQLite split its text differently (seen with trigrams around NUL).
PLAIN_TABLES = """SELECT name FROM sqlite_master
    WHERE type = 'table' AND rootpage > 0 AND name NOT GLOB 'messages_fts*' ORDER BY name"""
CHECK = "SELECT * FROM pragma_integrity_check(?)"
COUNT_SESSIONS = "SELECT count(*) FROM sessions"
COUNT_MESSAGES = "SELECT count(*) FROM messages"


def copy_into(source: apsw.Connection, path: Path, partial: Path) -> tuple[int, int]:
    """Copy one snapshot into the partial file and verify it; (sessions, messages). What is encrypted stays so."""
    # With a log, a snapshot costs writers nothing and is held. Without one it would lock them out, so the copy is
    # taken in steps, and SQLite starts over when somebody has written in between; in the end we do insist.
    hold = pragma(source, "PRAGMA journal_mode") == "wal"
    encryption.copy_note(Path(source.filename), partial)
    copy = connect(partial)
    try:
        run(copy, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        version = pragma(source, "PRAGMA data_version")
        with _snapshot(source, hold):
            _copy_pages(source, copy)
            same = source.in_transaction or pragma(source, "PRAGMA data_version") == version
            expected = count_rows(source) if same else None
        if pragma(copy, "PRAGMA journal_mode=DELETE") != "delete":
            raise OSError(errno.EIO, "the copy could not be made a single file")
    finally:
        copy.close()
    return _verify(partial, expected, path)


@contextmanager
def _snapshot(source: apsw.Connection, hold: bool) -> Iterator[None]:
    inside = source.in_transaction
    try:
        if hold and not inside:
            _hold(source)
        yield
    finally:
        if source.in_transaction and not inside:
            run(source, "COMMIT")


def _hold(source: apsw.Connection) -> None:
    run(source, "BEGIN")
    run(source, "SELECT 1 FROM sqlite_master LIMIT 1")


def _copy_pages(source: apsw.Connection, copy: apsw.Connection) -> None:
    patience, tries, restarts, left = Patience(), 0, 0, None
    with copy.backup("main", source, "main") as work:
        while not work.done:
            try:
                work.step(PAGES_AT_ONCE)
                tries = 0
            except (apsw.BusyError, apsw.LockedError):
                if not patience(tries):
                    raise
                tries += 1
            if left is not None and work.remaining >= left and not work.done:
                restarts += 1
                if restarts == MOST_RESTARTS and not source.in_transaction:
                    _hold(source)
            left = work.remaining


def _verify(file: Path, expected: tuple[int, int] | None, path: Path) -> tuple[int, int]:
    copy = connect(file, read_only=True, immutable=True)
    try:
        if wrong := find_damage(copy):
            # A copy is made page by page: what is wrong in it was wrong before.
            raise damage_error(path, wrong)
        found = count_rows(copy)
    finally:
        copy.close()
    if expected is not None and found != expected:
        raise OSError(errno.EIO, f"the copy holds {found}, the store {expected} sessions and messages")
    return found


def find_damage(connection: apsw.Connection) -> str | None:
    """What is wrong with the tables that hold the truth; None if nothing is."""
    try:
        for (table,) in run(connection, PLAIN_TABLES):
            for (outcome,) in run(connection, CHECK, table):
                if outcome != "ok":
                    return f"{table}: {' '.join(str(outcome).split())}"
    except (apsw.CorruptError, apsw.NotADBError) as problem:
        return str(problem)
    return None


def count_rows(connection: apsw.Connection) -> tuple[int, int]:
    tables = {row[0] for row in run(connection, PLAIN_TABLES)}
    return (
        int(run(connection, COUNT_SESSIONS)[0][0]) if "sessions" in tables else 0,
        int(run(connection, COUNT_MESSAGES)[0][0]) if "messages" in tables else 0,
    )
