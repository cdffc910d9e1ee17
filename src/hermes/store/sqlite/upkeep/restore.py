"""Restoring a backup.

The pages of the backup are written into the live file, through SQLite. SQLite's locks keep other programs out
until the restore is complete, and the next opener rolls back an interrupted restore. The live file is not
replaced by another file: a program that has the old file open, or is opening it, would continue with a file
that no longer has a name, and the log of this file would be replayed into the new file. If the live file is
missing or is not a database, there is nothing to write into. A verified copy is then moved to the path of the
store.
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
"""How long to wait for other programs to close the store. After that the restore is refused."""
REASON = "before-restore"

_SMALLEST_PAGE = 512
_PENDING_BYTE, _LOCK_BYTES = 0x40000000, 512


def restore(path: Path, source: Path) -> None:
    """Verify the backup `source`, and replace the content of the store by it.

    The old content is kept as a backup. Raise `StoreBusy` if another program has the store open. The caller
    must not hold the lock file beside the store.
    """
    if not source.is_file():
        raise errors.make_error(errors.BackupFailed, f"{source} is not a file; {path} was left unchanged")
    if path.exists() and path.samefile(source):
        raise errors.make_error(errors.BackupFailed, f"{source} is the store itself; it was left unchanged")
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
        errors.StoreBusy, f"{path} is open in another program; close it and try again. It was left unchanged"
    )


@contextmanager
def _open_checked(source: Path, path: Path) -> Iterator[apsw.Connection]:
    """Yield a connection to the backup, in a snapshot that was verified to be an intact session store."""
    connection = _open_backup(source, path)
    try:
        run(connection, "BEGIN")
        if wrong := find_damage(connection):
            raise errors.make_error(
                errors.BackupFailed, f"{source} is damaged ({wrong}); {path} was left unchanged"
            )
        if check_version(connection, source) == "empty":
            raise errors.make_error(
                errors.BackupFailed, f"{source} is not a session store; {path} was left unchanged"
            )
        yield connection
    finally:
        connection.close()


@contextmanager
def _open_as_store(backup: apsw.Connection, path: Path) -> Iterator[apsw.Connection]:
    """Yield a connection to the content of `backup` that is encrypted if the store at `path` is encrypted.

    SQLite cannot copy pages between a plain and an encrypted database. So for an encrypted store, a plain backup is
    first copied to a temporary encrypted file. Raise `BackupFailed` if the backup is encrypted and the store is
    plain.
    """
    source, note = Path(backup.filename), encryption.read_note(path)
    encrypted = encryption.find_key(source) is not None
    if encrypted and note is None and path.exists() and path.stat().st_size:
        raise errors.make_error(
            errors.BackupFailed,
            f"{source} is encrypted and {path} is not: encrypt the store first (`hermes store encrypt`), or move it"
            " away. It was left unchanged",
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
            errors.BackupFailed, f"{source} is not a SQLite database; {path} was left unchanged"
        ) from None
    except apsw.CantOpenError:
        # The folder is not writable. The file can be opened as immutable if it has no log.
        connection.close()
        if os.path.exists(f"{source}-wal"):
            raise
        return connect(source, read_only=True, immutable=True)


def _is_database(path: Path) -> bool:
    """Return whether there is a database to write into.

    This is checked before SQLite opens the file. SQLite treats an empty file as a new database, and would
    delete the log beside it.
    """
    if not path.exists() or path.stat().st_size < _SMALLEST_PAGE:
        return False
    connection = connect(path, read_only=True)
    try:
        return bool(pragma(connection, "PRAGMA page_count"))
    except (apsw.CorruptError, apsw.CantOpenError):
        return False
    except apsw.NotADBError:
        connection.close()
        return recognition.adopt_encrypted(path)  # raises StoreLocked if it is encrypted and no key is found
    finally:
        connection.close()


def _restore_in_place(path: Path, backup: apsw.Connection) -> bool:
    """Write the backup's pages into the live database, in one transaction.

    Return False if the file is not a database.
    """
    live = connect(path)
    try:
        if not is_alone(live):
            return False
        _set_aside(live, path)
        with live.backup("main", backup, "main") as work:
            while not work.done:
                work.step(-1)
        if count_rows(live) != count_rows(backup):
            raise OSError("the restored store differs from the backup")
        return True
    finally:
        live.close()


def is_alone(live: apsw.Connection) -> bool:
    """Lock all other programs out of the database of the connection `live`, until `live` is closed, and turn its
    write-ahead log off. Return True if this succeeded, False if the file is not a database.

    The lock is acquired before the journal mode is changed, and is not released in between. Otherwise a program that
    is opening the file could turn the write-ahead log on again. If the file were then replaced, this log would be
    read as the log of the new file. Other programs that have the file open without a log, and are idle, hold no lock.
    They are not affected: they will read the new rows as usual.
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
    """Keep the content of the store at `path`, which a restore is about to replace, in the backup folder.

    It is kept as a verified backup or, if it is damaged, as a copy of its pages. `live` is a connection to the store.
    """
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
    """Write a copy beside the store and rename it to the store's name.

    Use this only if there is no database at this name.
    """
    with open_partial_file(path.parent, path.name, BESIDE_COPY) as (partial, descriptor):
        copy_into(backup, path, partial)
        os.fsync(descriptor)
        with _lock_others_out(path) as there:
            _set_files_aside(path)
            with encryption.unsettle_note(path, encryption.read_note(partial)):
                if there:
                    os.replace(partial, path)
                else:
                    os.link(partial, path)  # does not replace a file that has just been created
    sync_folder(path.parent)


@contextmanager
def _lock_others_out(path: Path) -> Iterator[bool]:
    """Keep SQLite in other processes from opening the file `path`, during the `with` block. This process locks the
    bytes that SQLite locks, because SQLite itself cannot open the file.

    Yield True, or False if there is no file. Raise an error if another program uses the file.
    """
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
    """Move the unusable file and its log to the backup folder, where `repair` may still read them.

    The old log must not stay beside the new file.
    """
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
        os.unlink(f"{path}-shm")  # contains only an index of the log
    for ending in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")
            os.chmod(f"{aside}{ending}", home.PRIVATE_FILE)
    sync_folder(folder)
