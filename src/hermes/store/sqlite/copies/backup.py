"""Backups of a store: copied with SQLite's backup API, verified before they get their name, and limited in number.

A file with the name of a backup is always a complete, verified, self-contained database. An unfinished copy has a
different name and a lock. The next backup removes unfinished copies of killed processes.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import closing
from pathlib import Path

import apsw

from hermes import clock, errors, home
from hermes.atomic_files import BACKUPS, clear_partials, open_partial_file, sync_folder
from hermes.store.sqlite.connection import connect, connect_read_only, damage_error
from hermes.store.sqlite.copies.page_copy import copy_into, find_damage
from hermes.store.sqlite.copies.store_files import StoreFiles
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.wal.sidecars import BESIDE_COPY
from hermes.store.values import Backup

KEEP = 5
MOST_BYTES = 8 << 30
"""How many backups of a store are kept, and their maximum total size in bytes."""

DAMAGED = ".damaged"
"""The suffix of a damaged store that was set aside.

Such a store is not verified, but may be the only copy of its data.
"""

_NAME = re.compile(r"state-(\d{8}_\d{6})(?:-(\d+))?-[a-z][a-z0-9-]*\.db(?:\.damaged)?")


# ------------------------------------------------------------------------------------------------ making


def backup_file(path: Path, target: Path | None) -> Backup:
    """Back up a store through a new connection. See `make_backup`."""
    with Inside(), closing(connect_read_only(path)) as connection:
        return make_backup(connection, path, target)


def make_backup(
    connection: apsw.Connection, path: Path, target: Path | None = None, *, reason: str = "backup"
) -> Backup:
    """Make a verified copy of the store at `path`, which is read through `connection`.

    `connection` must not be used in the meantime. If `target` is None or a folder, the copy gets a generated
    name. If it is None, the copy goes to the store's own backup folder, and old backups there are removed. An
    existing file at `target` is replaced only after the copy was verified.
    """
    made = write_copy(connection, path, target, reason)
    if target is None:
        trim_backups(path)
    return made


def write_copy(connection: apsw.Connection, path: Path, target: Path | None, reason: str) -> Backup:
    """Make a backup like `make_backup`, but remove no other backups."""
    folder, name = _choose_place(path, target)
    try:
        prepare_folder(folder, own=target is None)
        with open_partial_file(folder, name or "state", BESIDE_COPY) as (partial, descriptor):
            sessions, messages = copy_into(connection, path, partial)
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
            final = _publish(partial, folder, name, reason)
        sync_folder(folder)
    except (apsw.Error, OSError) as problem:
        raise backup_error(path, problem) from problem
    return Backup(final, size, sessions, messages)


def _choose_place(path: Path, target: Path | None) -> tuple[Path, str | None]:
    if target is None:
        return backup_folder(path), None
    if target.is_dir():
        return target, None
    if (role := StoreFiles(path).describe_role(target, is_copy=True)) is not None:
        raise errors.make_error(errors.BackupFailed, f"{target} is {role}; name another file for the backup")
    if target.is_symlink():
        sentence = f"{target} is a symbolic link; name the file that it leads to"
        raise errors.make_error(errors.BackupFailed, sentence)
    return target.parent, target.name


def prepare_folder(folder: Path, *, own: bool) -> None:
    if own:
        home.make_private_folder(folder)
        if home.is_loose(str(folder)):
            os.chmod(folder, home.PRIVATE_FOLDER)
    clear_partials(folder)


def _publish(partial: Path, folder: Path, name: str | None, reason: str) -> Path:
    """Move the finished copy `partial` into `folder` in one atomic step, and return its final path.

    Its final name is `name`. If `name` is None, a name is generated that contains `reason`, and no existing file is
    replaced.
    """
    if name is not None:
        encryption.copy_note(partial, folder / name)
        os.replace(partial, folder / name)
        return folder / name
    while True:
        final = folder / make_name(folder, reason)
        encryption.copy_note(partial, final)
        try:
            os.link(partial, final)
        except FileExistsError:
            continue
        except OSError:
            os.rename(partial, final)  # no hard links on this file system
        return final


def make_name(folder: Path, reason: str) -> str:
    """Return a file name for a new backup in the backup folder.

    The names of backups sort in the order in which the backups were made, even if the clock was set back in between.
    """
    stamp, number = clock.format_stamp(), 1
    for file in folder.iterdir():
        if (found := _order_key(file)) and found >= (stamp, number):
            stamp, number = found[0], found[1] + 1
    return f"state-{stamp}-{reason}.db" if number == 1 else f"state-{stamp}-{number}-{reason}.db"


# ------------------------------------------------------------------------------------------------ retention


def backup_folder(path: Path) -> Path:
    """Return the folder of the store's backups."""
    return path.with_name(f"{path.name}{BACKUPS}")


def list_backups(path: Path) -> list[Path]:
    """Return the backups in the store's own folder, newest first."""
    try:
        files = [file for file in backup_folder(path).iterdir() if _order_key(file) and file.suffix == ".db"]
    except OSError:
        return []
    return sorted(files, key=lambda file: _order_key(file) or ("", 0), reverse=True)


def _order_key(file: Path) -> tuple[str, int] | None:
    found = _NAME.fullmatch(file.name)
    return None if found is None else (found[1], int(found[2] or 1))


def trim_backups(
    path: Path, keep: int = KEEP, most_bytes: int = MOST_BYTES, *, spare: Path | None = None
) -> list[Path]:
    """Remove the oldest backups of the store at `path`, so that at most `keep` backups with at most `most_bytes`
    bytes are left. Return the paths of the removed backups.

    The newest backup and the backup `spare` are always kept. A backup that was made before a migration is the only
    copy in a format that other programs can read. It is kept until a newer backup that was also made before a
    migration is known to be intact.
    """
    removed: list[Path] = []
    precious: list[Path] = []
    kept, room = 0, most_bytes
    for file in list_backups(path):
        try:
            size = file.stat().st_size
            beyond = kept and file != spare and (kept >= keep or size > room)
            if beyond and ("-before-migration-" not in file.name or any(map(_is_whole, precious))):
                file.unlink()
                encryption.remove_note(file)
                removed.append(file)
                continue
        except OSError:
            continue
        kept, room = kept + 1, room - size
        if "-before-migration-" in file.name:
            precious.append(file)
    return removed


def _is_whole(file: Path) -> bool:
    try:
        copy = connect(file, read_only=True, immutable=True)
    except (apsw.Error, errors.StoreLocked):
        return False
    try:
        return find_damage(copy) is None
    finally:
        copy.close()


def backup_error(path: Path, problem: Exception) -> errors.HermesError:
    if _is_lack_of_room(problem):
        return errors.make_error(
            errors.BackupFailed, f"no room left for a copy of {path}; nothing was changed"
        )
    if isinstance(problem, apsw.BusyError | apsw.LockedError):
        return errors.make_error(
            errors.BackupFailed, f"{path} is locked by another program; nothing was changed"
        )
    if isinstance(problem, apsw.CorruptError | apsw.NotADBError):
        return damage_error(path, str(problem))
    detail, where = str(problem), ""
    if isinstance(problem, OSError) and problem.strerror:
        detail, where = problem.strerror, f" ({problem.filename})" if problem.filename else ""
    elif detail == "not an error":  # the backup API reports a code without a message
        detail = f"SQLite reports {type(problem).__name__}"
    return errors.make_error(
        errors.BackupFailed, f"{path} could not be copied: {detail}{where}; nothing was changed"
    )


def _is_lack_of_room(problem: Exception) -> bool:
    """Return whether `problem` shows that a file could not grow: the disk is full, or a quota or a file-size limit
    was reached.

    SQLite reports a file-size limit as a failed write.
    """
    if isinstance(problem, apsw.IOError):
        return getattr(problem, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
    return isinstance(problem, apsw.FullError) or (
        isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    )
