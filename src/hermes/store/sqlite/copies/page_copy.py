"""A consistent copy of a live database, page by page into another file, and its verification."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hermes.store.sqlite.connection import Patience, connect, damage_error, pragma, run
from hermes.store.sqlite.encryption import encryption

PAGES_AT_ONCE = 2000
"""How many pages are copied in one step, about 8 MB.

Between steps, other threads can run, and other processes can write even if the store has no write-ahead log.
"""
MOST_RESTARTS = 5
"""How often a copy may be restarted because another process wrote. After that, writers are blocked."""

# Tables that must be intact in a copy. Search tables are not checked, because they can be rebuilt. SQLite also
# reports some intact search tables as malformed, if an older SQLite split their text differently (trigrams around
# NUL).
PLAIN_TABLES = """SELECT name FROM sqlite_master
    WHERE type = 'table' AND rootpage > 0 AND name NOT GLOB 'messages_fts*' ORDER BY name"""
CHECK = "SELECT * FROM pragma_integrity_check(?)"
COUNT_SESSIONS = "SELECT count(*) FROM sessions"
COUNT_MESSAGES = "SELECT count(*) FROM messages"


def copy_into(source: apsw.Connection, path: Path, partial: Path) -> tuple[int, int]:
    """Copy one snapshot of the database `source` into the file `partial`, and verify the copy. Return the numbers of
    sessions and messages in it.

    `path` is the store, which error messages name. The copy of an encrypted store is encrypted too.
    """
    # With a write-ahead log a snapshot does not block writers, so it is kept open. Without a log it would block them.
    # So the copy is made in steps, and SQLite restarts it after a write. After several restarts, writers are blocked.
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
            raise OSError(errno.EIO, "the copy could not be converted to a single file")
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
            # A copy is made page by page, so the same damage is in the original.
            raise damage_error(path, wrong)
        found = count_rows(copy)
    finally:
        copy.close()
    if expected is not None and found != expected:
        raise OSError(errno.EIO, f"the copy has {found} sessions and messages, the store has {expected}")
    return found


def find_damage(connection: apsw.Connection) -> str | None:
    """Check the tables of a database for damage, except the tables of the search index. Return a description of the
    first problem, or None if there is none.
    """
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
