"""Putting a backup back.

The restored pages are written into the live file, through SQLite, rather than moving another file over it: a program
that has the old file open, or opens it at that very moment, would go on in a file without a name, and its log would
be replayed into the new one. In place, SQLite's locks keep everybody out until the restored rows are there, and a
crash half-way is rolled back by whoever opens the file next. Only where there is no database to write into (the file
is missing, or is none) does the verified copy take its name.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from hermes import errors, home
from hermes.atomic_files import clear_partials, open_partial_file, sync_folder
from hermes.store.sqlite import lock_file
from hermes.store.sqlite.connection import Patience, connect, pragma, run
from hermes.store.sqlite.copies import backup as backups
from hermes.store.sqlite.copies.page_copy import copy_into, count_rows, find_damage
from hermes.store.sqlite.damage_mark import clear_damage_mark
from hermes.store.sqlite.encryption import encryption, recognition
from hermes.store.sqlite.migrations import check_version
from hermes.store.sqlite.wal.sidecars import BESIDE_COPY

WAIT_S = 2.0
"""How long to wait for others to close the store before the restore is refused."""
REASON = "before-restore"

_SMALLEST_PAGE = 512
_PENDING_BYTE, _LOCK_BYTES = 0x40000000, 512


def restore(path: Path, source: Path) -> None:
    """Replace what is in the store by a backup, which is verified first. What was there is kept among the backups.

    Refused while anybody has the store open. The caller must not hold the lock beside the store.
    """
    if not source.is_file():
        raise errors.make_error(errors.BackupFailed, f"{source} is no file; {path} was left as it is")
    if path.exists() and path.samefile(source):
        raise errors.make_error(errors.BackupFailed, f"{source} is the store itself; it was left as it is")
    home.make_private_folder(path.parent)
    try:
        with (
            lock_file.exclusive(path),
            _open_checked(source, path) as checked,
            _open_as_store(checked, path) as backup,
        ):
            clear_partials(path.parent)
            if not (_is_database(path) and _restore_in_place(path, backup)):
                _restore_by_name(path, backup)
            backups.trim_backups(path, spare=source)
            clear_damage_mark(path)
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise in_use_error(path) from problem
    except (apsw.Error, OSError) as problem:
        raise backups.backup_error(path, problem) from problem


def in_use_error(path: Path) -> errors.HermesError:
    return errors.make_error(
        errors.StoreBusy, f"{path} is open in another program; close it and try again. It was left as it is"
    )


@contextmanager
def _open_checked(source: Path, path: Path) -> Iterator[apsw.Connection]:
    """The backup, opened, in one snapshot in which it was found to be whole and a store that we can read."""
    connection = _open_backup(source, path)
    try:
        run(connection, "BEGIN")
        if wrong := find_damage(connection):
            raise errors.make_error(
                errors.BackupFailed, f"{source} is damaged ({wrong}); {path} was left as it is"
            )
        if check_version(connection, source) == "empty":
            raise errors.make_error(
                errors.BackupFailed, f"{source} is not a session store; {path} was left as it is"
            )
        yield connection
    finally:
        connection.close()


@contextmanager
def _open_as_store(backup: apsw.Connection, path: Path) -> Iterator[apsw.Connection]:
    """The backup, encrypted as the store is. SQLite copies no pages between a plain and an encrypted database."""
    source, note = Path(backup.filename), encryption.read_note(path)
    encrypted = encryption.find_key(source) is not None
    if encrypted and note is None and path.exists() and path.stat().st_size:
        raise errors.make_error(
            errors.BackupFailed,
            f"{source} is encrypted and {path} is not: encrypt the store first (`hermes store encrypt`), or move it"
            " away. It was left as it is",
        )
    if encrypted or note is None:
        yield backup
        return
    from hermes.store.sqlite.upkeep.conversion import open_encrypted_copy

    with open_encrypted_copy(source, path, note) as copy:
        connection = connect(copy, read_only=True)
        try:
            yield connection
        finally:
            connection.close()


def _open_backup(source: Path, path: Path) -> apsw.Connection:
    connection = connect(source, read_only=True)
    try:
        pragma(connection, "PRAGMA schema_version")
        return connection
    except apsw.NotADBError:
        connection.close()
        if recognition.adopt_encrypted(source):
            return connect(source, read_only=True)
        raise errors.make_error(
            errors.BackupFailed, f"{source} is not a SQLite database; {path} was left as it is"
        ) from None
    except apsw.CantOpenError:
        # A folder we may not write to: the file can be read as it stands if no log belongs to it.
        connection.close()
        if os.path.exists(f"{source}-wal"):
            raise
        return connect(source, read_only=True, immutable=True)


def _is_database(path: Path) -> bool:
    """Whether there is a database to write into. SQLite must not open what it takes for new: it deletes the log."""
    if not path.exists() or path.stat().st_size < _SMALLEST_PAGE:
        return False
    connection = connect(path, read_only=True)
    try:
        return bool(pragma(connection, "PRAGMA page_count"))
    except (apsw.CorruptError, apsw.CantOpenError):
        return False
    except apsw.NotADBError:
        connection.close()
        return recognition.adopt_encrypted(path)  # StoreLocked if it is one, and nobody has its key
    finally:
        connection.close()


def _restore_in_place(path: Path, backup: apsw.Connection) -> bool:
    """Write the backup's pages into the live database, in one transaction; False if the file is no database."""
    live = connect(path)
    try:
        if not is_alone(live):
            return False
        _set_aside(live, path)
        with live.backup("main", backup, "main") as work:
            while not work.done:
                work.step(-1)
        if count_rows(live) != count_rows(backup):
            raise OSError("the restored store does not hold what the backup holds")
        return True
    finally:
        live.close()


def is_alone(live: apsw.Connection) -> bool:
    """Shut everybody else out until the connection is closed; False if the file is no database.

    The lock is taken before the journal is changed, and is never let go of in between. Otherwise a program that is just
    opening the file could turn the log on again: its log would then lie beside the file that takes this one's name,
    and be read as if it belonged to that. Programs without a log that are idle hold no lock: they will see the new
    rows like any others.
    """
    live.set_busy_handler(Patience(WAIT_S))
    try:
        run(live, "PRAGMA locking_mode=EXCLUSIVE")
        run(live, "BEGIN EXCLUSIVE")
        run(live, "COMMIT")
        if pragma(live, "PRAGMA journal_mode=DELETE") != "delete":
            raise apsw.BusyError("the write-ahead log is in use")
        run(live, "PRAGMA synchronous=EXTRA")
        run(live, "BEGIN EXCLUSIVE")
        run(live, "COMMIT")
    except (apsw.NotADBError, apsw.CorruptError):
        return False
    return True


def _set_aside(live: apsw.Connection, path: Path) -> None:
    """Keep what is about to be replaced: as a verified backup, or, if it is damaged, page by page as it is."""
    try:
        backups.write_copy(live, path, None, REASON)
    except errors.StoreDamaged:
        folder = backups.backup_folder(path)
        with open_partial_file(folder, "state", BESIDE_COPY) as (partial, descriptor):
            encryption.copy_note(path, partial)
            copy = connect(partial)
            try:
                run(copy, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
                with copy.backup("main", live, "main") as work:
                    while not work.done:
                        work.step(-1)
            finally:
                copy.close()
            os.fsync(descriptor)
            aside = folder / (backups.make_name(folder, REASON) + backups.DAMAGED)
            encryption.copy_note(partial, aside)
            os.rename(partial, aside)


def _restore_by_name(path: Path, backup: apsw.Connection) -> None:
    """Write a copy beside the store and give it the store's name. There is no database to be in use."""
    with open_partial_file(path.parent, path.name, BESIDE_COPY) as (partial, descriptor):
        copy_into(backup, path, partial)
        os.fsync(descriptor)
        with _lock_others_out(path) as there:
            _set_files_aside(path)
            with encryption.unsettle_note(path, encryption.read_note(partial)):
                if there:
                    os.replace(partial, path)
                else:
                    os.link(partial, path)  # never over a file that has just appeared
    sync_folder(path.parent)


@contextmanager
def _lock_others_out(path: Path) -> Iterator[bool]:
    """Hold, on a file that SQLite cannot open, the lock that SQLite would ask for; False if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _PENDING_BYTE)
        except (BlockingIOError, PermissionError):
            raise in_use_error(path) from None
        yield True
    finally:
        os.close(descriptor)


def _set_files_aside(path: Path) -> None:
    """Keep the unusable file and its log, which may hold what `repair` can still read; no log may meet a new file."""
    folder = backups.backup_folder(path)
    backups.prepare_folder(folder, own=True)
    aside = folder / (backups.make_name(folder, REASON) + backups.DAMAGED)
    if path.exists() and path.stat().st_size:
        try:
            os.link(path, aside)
        except OSError:
            with os.fdopen(home.create_private_file(aside), "wb") as copy, open(path, "rb") as source:
                shutil.copyfileobj(source, copy)
        os.chmod(aside, home.PRIVATE_FILE)
        encryption.copy_note(path, aside)
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-shm")  # only an index into the log
    for ending in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
            os.chmod(f"{aside}{ending}", home.PRIVATE_FILE)
    sync_folder(folder)
