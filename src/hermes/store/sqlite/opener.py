"""Opening of a database by path: create, recognise or migrate it, or refuse it with a clear error.

A new store is created under a temporary name and renamed when complete. An empty file at the path is
therefore a damaged store, and is refused instead of being opened as an empty history.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import apsw

from hermes import errors, home
from hermes.atomic_files import BACKUPS
from hermes.logs import get_logger
from hermes.store.sqlite import fork_safety, lock_file
from hermes.store.sqlite.connection import (
    DEADLINE_S,
    READ_SOMETHING,
    WAL_ERRORS,
    SqliteReader,
    connect,
    connect_read_only,
    damage_error,
    descriptor_error,
    has_log,
    pragma,
    refuse_subinterpreter,
    run,
    translate_error,
)
from hermes.store.sqlite.creation import build_store, fill, publish
from hermes.store.sqlite.damage_mark import describe_short_file, read_damage_mark
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.migrations import (
    APPLICATION_ID,
    LAYOUT,
    check_documented_version,
    check_version,
    drop_foreign_search,
    has_former_layout,
    migrate,
)
from hermes.store.sqlite.process_fairness import PATIENCE_S, WriterQueue
from hermes.store.sqlite.schema import find_schema_gaps
from hermes.store.sqlite.wal import file_guard, sidecars
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS, identity_of
from hermes.store.sqlite.wal.journal_choice import Journal, journal_for
from hermes.store.sqlite.wal.log_lock import FoundFiles, LogLock, claim_lock, end_entry, enter_log

log = get_logger(__name__)

RETRY_S = 0.005
JOIN_S = 1.0
"""How long opening waits for a moment in which no other process writes. After that, it opens the store while
others write."""

BACKSTOP_PAGES = 4000
"""The log length, in pages, at which SQLite itself checkpoints if the `Checkpointer` does not run."""


MOST_REPLACEMENTS = 10
"""How many times opening is tried if the file or its log is replaced in the meantime."""

# Selects the search tables of the current form. Tables of an older form, in which even ASCII text had to be
# stored as terms, are not selected and are created again. The query uses only the schema, which is readable
# even if the tables are not.
KEPT_UP = """SELECT name FROM sqlite_master WHERE name IN ('messages_fts_words', 'index_progress',
    'messages_fts_blocks', 'messages_fts_ranges', 'messages_fts_members') AND sql NOT LIKE '%tokenchars%'"""
INDEX_TABLES = {"messages_fts_words", "index_progress"}
SEARCH_TABLES = INDEX_TABLES | {"messages_fts_blocks", "messages_fts_ranges", "messages_fts_members"}

JOURNAL_AT = 18
IS_WAL = b"\2\2"
"""The offset of the journal mode in the file header, and its value for WAL."""

Opened = tuple[apsw.Connection, file_guard.Guard, Journal]


def open_database(
    path: Path, *, read_only: bool = False, deadline: float = DEADLINE_S, lock: LogLock | None = None
) -> Opened:
    """Open the store at `path`, or create it. If other programs block this, try again for `deadline` seconds.

    `lock` is the log lock of the store, already acquired exclusively. The caller passes it when this process has
    saved and emptied a removed write-ahead log, which other processes may still have open.
    """

    def attempt() -> Opened:
        return _attempt_in_turn(path, read_only=read_only, until=time.monotonic() + deadline, lock=lock)

    refuse_subinterpreter(path)
    if fork_safety.was_torn():
        raise errors.make_error(
            errors.StoreFailed,
            f"{path} cannot be opened: this process was forked while another thread of its parent used a store."
            " Start a new process instead (with multiprocessing, use the `spawn` method)",
        )
    try:
        for _ in range(MOST_REPLACEMENTS):
            before = identity_of(path)
            try:
                return attempt()
            except _Replaced:
                continue
            except (apsw.NotADBError, apsw.CorruptError) as problem:
                if identity_of(path) != before:
                    _wait_for_replacement(path, read_only=read_only)
                    continue
                from hermes.store.sqlite.encryption import recognition

                # The file may be an encrypted store that was copied without the note beside it.
                if not isinstance(problem, apsw.NotADBError) or not recognition.adopt_encrypted(
                    path, read_only=read_only
                ):
                    raise
        return attempt()
    except apsw.Error as problem:
        raise translate_error(problem, path) from problem
    except OSError as problem:
        if problem.errno in NO_DESCRIPTORS:
            raise descriptor_error(path) from problem
        raise errors.make_error(
            errors.StoreFailed, f"{path} cannot be opened: {problem.strerror or problem}"
        ) from problem


def _attempt_in_turn(path: Path, *, read_only: bool, until: float, lock: LogLock | None) -> Opened:
    """Try to open the store at `path`. While other programs block this, try again until the time `until`.

    SQLite's busy handler alone is not enough, because SQLite does not call it for some statements, such as `PRAGMA
    journal_mode`.
    """
    line = None
    open_once = _open_read_only if read_only else _open
    joins_from = time.monotonic() + JOIN_S
    try:
        while True:
            try:
                with fork_safety.Inside():
                    return open_once(path, lock, joins=time.monotonic() >= joins_from)
            except apsw.BusyError:
                if time.monotonic() >= until:
                    raise
            # Writers let a process in the queue go first.
            line = line or WriterQueue(path)
            if not read_only and not line.is_occupied():
                line.join(min(until, time.monotonic() + PATIENCE_S))
            time.sleep(RETRY_S)
    finally:
        if line is not None:
            line.leave()
            line.close()


class _Replaced(OSError):
    """Raised if the write-ahead log beside the store was replaced during the open, so that SQLite has opened
    the old log.
    """


def _wait_for_replacement(path: Path, *, read_only: bool) -> None:
    """After an open failed because the database file was replaced, wait until the repair or conversion that replaced
    it has ended.

    A read-only opener does not wait.
    """
    if not read_only:
        with lock_file.exclusive(path):
            pass


def _open(path: Path, claimed: LogLock | None, *, joins: bool) -> Opened:
    home.make_private_folder(path.parent)
    if (damage := read_damage_mark(path)) is not None:
        raise damage
    if not encryption.is_settled(path):
        with lock_file.exclusive(path):
            encryption.settle_note(path)
    if not _has_file(path):
        _create(path)
    sidecars.mend_modes(path)
    found_log = _has_log_to_keep(path)
    guard = file_guard.acquire_guard(path)
    connection, lock, in_use = None, claimed, None
    try:
        if lock is None:
            lock = LogLock(guard)
            in_use = enter_log(guard, lock, joins=joins)
        connection = connect(path)
        _make_current(path, connection, guard, lock)
        _make_private(path)  # only now that it is known to be a store: a mistyped path may be any file
        if encryption.is_expected(path):
            _warn_once(
                path, f"{path} is not encrypted although a key is set; `hermes store encrypt` encrypts it"
            )
        journal = _set_journal(path, connection)
        if journal == "wal":
            _hold(guard, in_use, writes=True)
        return connection, guard, journal
    except BaseException:
        file_guard.begin_leaving(guard)
        if connection is not None:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, found_log)
            connection.close()
        file_guard.finish_leaving(guard)
        raise
    finally:
        if lock is not None and lock is not claimed:
            end_entry(guard, lock)


def _make_current(path: Path, connection: apsw.Connection, guard: file_guard.Guard, lock: LogLock) -> None:
    """Bring the store at `path` to the current version: migrate an older one, and add missing parts to a
    current one.
    """
    application, layout, cookie = _read_marks(connection)
    if (application, layout) != (APPLICATION_ID, LAYOUT):
        lock.release()  # a migration takes long, and has its own lock
        with lock_file.exclusive(path):
            if not is_current(connection):
                _bring_up_to_date(path, connection)
        claim_lock(lock, JOIN_S)
        cookie = pragma(connection, "PRAGMA schema_version")
    if _checked_schemas.get(guard.identity) != cookie:
        _check_schema(path, connection, guard.identity)


def _open_read_only(path: Path, claimed: LogLock | None, *, joins: bool) -> Opened:
    if not _has_file(path):
        raise errors.make_error(errors.StoreFailed, f"{path} does not exist")
    found_log = _has_log_to_keep(path)
    guard = file_guard.acquire_guard(path)
    connection, lock, in_use = None, claimed, None
    try:
        if lock is None:
            lock = LogLock(guard)
            in_use = enter_log(guard, lock, joins=joins)
        connection = connect_read_only(path)
        sidecars.mend_modes(path, always=True)
        check_version(connection, path)
        if not is_current(connection) and not has_former_layout(connection):
            raise errors.make_error(
                errors.StoreTooOld, f"{path} is of an older version; open it once for writing to migrate it"
            )
        if unreadable := find_schema_gaps(SqliteReader(connection, {})).unreadable:
            raise errors.make_error(
                errors.StoreReadOnly,
                f"{path} lacks {', '.join(unreadable)}; open it once for writing to add them",
            )
        journal: Journal = "wal" if _is_wal(connection) else "delete"
        if journal == "wal":
            _hold(guard, in_use, writes=False)
        return connection, guard, journal
    except BaseException:
        file_guard.begin_leaving(guard)
        if connection is not None:
            connection.close()
        file_guard.finish_leaving(guard)
        if not found_log:
            take_log_away(path)
        raise
    finally:
        if lock is not None and lock is not claimed:
            end_entry(guard, lock)


def _has_log_to_keep(path: Path) -> bool:
    """Return whether the file has a log, which must stay unchanged if the store is refused.

    A log that was copied with its file may lack its `-shm` file. The usual way of opening the file would create
    the `-shm` file. If it is missing, this function therefore checks the version of the store first. It does
    so in exclusive locking mode, in which SQLite needs no `-shm` file.
    """
    if not os.path.exists(f"{path}-wal"):
        return False
    if os.path.exists(f"{path}-shm"):
        return True
    connection = connect(path)
    try:
        connection.set_busy_handler(None)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        run(connection, "PRAGMA locking_mode=EXCLUSIVE")
        check_version(connection, path)
    except (apsw.BusyError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError):
        pass  # other processes use the file, or it is not writable; the usual open reports that
    finally:
        connection.close()
    return True


def take_log_away(path: Path) -> None:
    """Remove the log that SQLite created beside a store that was only read.

    A read-only connection leaves the log behind when it is closed. This function opens and closes a writable
    connection, which removes the log.
    """
    with suppress(apsw.Error, OSError, errors.StoreError):
        connection = connect(path)
        try:
            run(connection, "SELECT 1 FROM sqlite_master LIMIT 1")
        finally:
            connection.close()
    sidecars.mend_modes(path, always=True)  # if the store is not writable, the files are still there


def _hold(guard: file_guard.Guard, in_use: FoundFiles | None, *, writes: bool) -> None:
    """Acquire the locks of `guard`, and check that SQLite has opened the right write-ahead log. Raise `_Replaced` if
    it has not.

    `in_use` are the log and the index (`-shm`) that other processes use, or None if they use none. `writes` says
    whether the store is opened for writing. Call this after the first read, because SQLite sets up its shared memory
    with this read. If the guard's locks were acquired earlier, SQLite would regard a `-shm` file left by a crash as
    current.
    """
    guard.hold()
    guard.observe_log()  # from now on commits must go to this log
    opened = guard.identify_files()
    is_other = in_use is not None and any(
        was not in (None, now) for was, now in zip(in_use, opened, strict=True)
    )
    is_gone = writes and None in opened
    if is_other or is_gone or (guard.users == 1 and not guard.has_observed_files()):
        raise _Replaced("the write-ahead log was replaced while it was being opened")


def _create(path: Path) -> None:
    with lock_file.exclusive(path):
        if _has_file(path):
            return
        if has_log(path):
            raise damage_error(path, "the file is missing, but its write-ahead log exists")
        for stale in path.parent.glob(path.name + ".new-*"):
            stale.unlink(missing_ok=True)
        fresh = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
        os.close(home.create_private_file(fresh))
        try:
            encryption.prepare_new_store(path)
            encryption.copy_note(path, fresh)
            build_store(fresh)
            publish(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
            encryption.remove_note(fresh)


_READ_MARKS = "BEGIN; PRAGMA application_id; PRAGMA user_version; PRAGMA schema_version; COMMIT"


def is_current(connection: apsw.Connection) -> bool:
    ours: bool = pragma(connection, "PRAGMA application_id") == APPLICATION_ID
    return ours and bool(pragma(connection, "PRAGMA user_version") == LAYOUT)


def _read_marks(connection: apsw.Connection) -> tuple[int, int, int]:
    """Return the application id, the layout and the schema cookie of the database. SQLite changes the cookie with
    every change of the schema.

    One transaction reads all three, so that SQLite locks the file only once.
    """
    (application,), (layout,), (cookie,) = run(connection, _READ_MARKS)
    return application, layout, cookie


def _bring_up_to_date(path: Path, connection: apsw.Connection) -> None:
    check_version(connection, path)
    if not run(connection, "SELECT 1 FROM sqlite_master LIMIT 1"):
        fill(connection)
        return
    report = migrate(path, connection)
    if report is not None:
        log.warning("%s", report)


def _check_schema(path: Path, connection: apsw.Connection, identity: tuple[int, int]) -> None:
    """Undo changes of other programs to the search tables, and add parts of `schema.sql` that the store
    lacks.

    This also checks the schema version in the table `schema_version`. Call it only if the schema has changed
    since the last check. If it has not, the first read or write checks that version.
    """
    check_documented_version(connection, path)
    for name in drop_foreign_search(connection):
        log.warning(
            "%s: removed %s, which another program created; the built-in index replaces it", path, name
        )
    if any(find_schema_gaps(SqliteReader(connection, {}))):
        _complete(path, connection)
    # Another program may have dropped the index. The next search fills a new one.
    there = {row[0] for row in run(connection, KEPT_UP)}
    if not there >= SEARCH_TABLES:
        from hermes.store.sqlite.search import index

        if not there >= INDEX_TABLES:
            index.rebuild(connection)
        index.add_blocks(connection)
    _checked_schemas[identity] = pragma(connection, "PRAGMA schema_version")


def _complete(path: Path, connection: apsw.Connection) -> None:
    from hermes.store.sqlite.migrations.reconciliation import complete
    from hermes.store.sqlite.migrations.reference_search import transaction

    with transaction(connection):
        added = complete(connection, path).unreadable
    if added:
        log.warning("%s lacked %s; added, with values derived from other rows", path, ", ".join(added))


_checked_schemas: dict[tuple[int, int], int] = {}


def _set_journal(path: Path, connection: apsw.Connection) -> Journal:
    chosen, file_system = journal_for(path)
    have = "wal" if _is_wal(connection) else "delete"
    if chosen == "delete":
        _warn_once(
            path, f"{path} is on {file_system}, where a write-ahead log is not safe: using a rollback journal"
        )
        if have == "wal":
            have = pragma(connection, "PRAGMA journal_mode=DELETE")
    elif have != "wal":
        have = _try_wal(path, connection)
    if sys.platform == "darwin":
        run(connection, "PRAGMA fullfsync=ON")
    if have == "wal":
        connection.wal_autocheckpoint(BACKSTOP_PAGES)
        return "wal"
    return "delete"


def _is_wal(connection: apsw.Connection) -> bool:
    """Return whether the header of the database file names WAL as the journal mode. SQLite must already have read the
    header.

    The header is used, because `PRAGMA journal_mode` would first make SQLite parse the schema.
    """
    return connection.read("main", 0, JOURNAL_AT, len(IS_WAL)) == (True, IS_WAL)


def make_durable(path: Path, connection: apsw.Connection, synchronous: str) -> None:
    """Configure durable commits. Call this before the connection writes."""
    check_documented_version(connection, path)
    run(connection, "PRAGMA synchronous=NORMAL" if synchronous == "NORMAL" else "PRAGMA synchronous=FULL")
    level = pragma(connection, "PRAGMA synchronous")
    if level != (1 if synchronous == "NORMAL" else 2):
        raise errors.make_error(
            errors.StoreFailed, f"{path}: SQLite did not accept synchronous={synchronous}"
        )


def _try_wal(path: Path, connection: apsw.Connection) -> str:
    try:
        mode = str(pragma(connection, "PRAGMA journal_mode=WAL"))
    except apsw.Error as problem:
        if not any(mark in str(problem).lower() for mark in WAL_ERRORS):
            raise
        mode = str(pragma(connection, "PRAGMA journal_mode=DELETE"))
    if mode == "wal":
        run(connection, READ_SOMETHING)
    else:
        _warn_once(path, f"{path}: this file system refuses a write-ahead log; using a rollback journal")
    return mode


_warned: set[str] = set()


def _warn_once(path: Path, sentence: str) -> None:
    if str(path) not in _warned:
        _warned.add(str(path))
        log.warning("%s", sentence)


def _make_private(path: Path) -> None:
    """Remove the access of other users to the files and backups of the store at `path`, which an older installation
    may have granted. If any file was changed, log one warning.
    """
    names = [str(path), f"{path}-wal", f"{path}-shm", f"{path}.lock", f"{path}{encryption.NOTE}"]
    inside, folders = [f"{path}{BACKUPS}"], []
    folder = path.parent
    if folder == home.get_hermes_home():
        inside.append(f"{folder}/sessions")
        folders.append(str(folder))
    for below in filter(home.is_loose, inside):  # in a private folder others cannot reach the files
        names += [entry.path for entry in os.scandir(below) if entry.is_file()]
        folders.append(below)
    made = [name for name in names if home.tighten(name, home.PRIVATE_FILE)]
    made += [name for name in folders if home.tighten(name, home.PRIVATE_FOLDER)]
    if made:
        log.warning("removed the access of other users to: %s", ", ".join(made))


def _has_file(path: Path) -> bool:
    """Return whether there is a file to open. Raise `StoreDamaged` if it is too short.

    SQLite would treat a file of zero or one byte as a new database, and the loss of its content would not be
    noticed.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    if not S_ISREG(status.st_mode):
        raise errors.make_error(errors.StoreFailed, f"{path} is not a file")
    if problem := describe_short_file(status.st_size):
        raise damage_error(path, problem)
    return True
