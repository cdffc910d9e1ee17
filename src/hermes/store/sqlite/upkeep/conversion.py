"""Encryption and decryption of a store: a verified copy with the other key replaces the old file.

Before the replacement, the encryption note is marked as unreliable, so that the next opener tests whether the
file is encrypted. After it, the note is marked as reliable again. If the conversion is killed at any point,
there is still one intact store, plain or encrypted, and the next opener recognises which. If `encrypt_file`
or `decrypt_file` is then called again, it continues with the backups that are not converted yet.

The files of the home that contain conversations are converted with the store. They are sealed after the store
is encrypted, and opened before it is decrypted. So whenever one of these files is sealed, the note beside the
store names the places of the key.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import errors, home
from hermes.atomic_files import clear_partials, open_partial_file, sync_folder
from hermes.store.meta import GET
from hermes.store.sealing import plain_files, sealed_home
from hermes.store.sealing.sealed_files import SealedFiles, require_cipher, wipe
from hermes.store.sessions.sessions import EXISTS
from hermes.store.sqlite import lock_file
from hermes.store.sqlite.connection import connect, damage_error, run
from hermes.store.sqlite.copies import backup as backups
from hermes.store.sqlite.copies.page_copy import PLAIN_TABLES, find_damage
from hermes.store.sqlite.damage_mark import read_damage_mark
from hermes.store.sqlite.encryption import encryption, recognition
from hermes.store.sqlite.encryption.file_keys import FileKeys
from hermes.store.sqlite.migrations import proof
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.shape import read_columns
from hermes.store.sqlite.upkeep import file_swap
from hermes.store.sqlite.upkeep.restore import WAIT_S, in_use_error, is_alone
from hermes.store.sqlite.wal import file_guard
from hermes.store.sqlite.wal.sidecars import BESIDE_COPY
from hermes.store.values import Converted, PlainFiles
from hermes.text import format_count

VACUUM_INTO = "VACUUM INTO ?"
COUNT = "SELECT count(*) FROM {table}"


class _Kept(NamedTuple):
    """What must be the same in a store before and after its conversion: the checksums of sessions and messages, and
    the number of rows of each table.
    """

    proof: proof.Proof
    rows: dict[str, int]


def encrypt_file(
    path: Path,
    key: bytes,
    *,
    key_file: str | None = None,
    keep_plain_backups: bool = False,
    remove_plain: bool = False,
) -> Converted:
    """Encrypt the store at `path`, its backups, and the files of its home.

    With `remove_plain`, plain files whose content is also in the store are removed. Raise `StoreBusy` if any
    program has the store open.
    """
    if not encryption.can_encrypt():
        raise encryption.missing_cipher_error(f"{path} should be encrypted")
    require_cipher()
    with _hold_store(path):
        already = encryption.find_key(path)
        if already is not None and already != key:
            raise errors.make_error(errors.WrongKey, f"{path} is already encrypted, with another key")
        note = encryption.read_note(path) if already else None
        note = note or encryption.make_note(key, os.path.realpath(path), key_file)
        done = _convert(path, note, done=already is not None, keep_backups=keep_plain_backups)
        if not is_of_home(path):
            return done
        sealed = sealed_home.seal_files(_sealed_files(path))
        removed, kept = _remove_mirrors(path) if remove_plain else ([], [])
        return done._replace(
            files=sealed.files,
            left=(*done.left, *sealed.left, *kept),
            removed=tuple(removed),
            plain=list_plain_files(path),
        )


def decrypt_file(path: Path) -> Converted:
    """Decrypt the store at `path`, its backups and the files of its home.

    Raise `StoreBusy` if any program has the store open.
    """
    with _hold_store(path):
        if not is_of_home(path):
            return _convert(path, None, done=encryption.find_key(path) is None, keep_backups=False)
        sealed = _sealed_files(path)
        before = sealed_home.open_files(sealed)
        done = _convert(path, None, done=encryption.find_key(path) is None, keep_backups=False)
        after = sealed_home.open_files(sealed)  # files that others sealed while the store was still encrypted
        return done._replace(files=(*before.files, *after.files), left=(*done.left, *after.left))


@contextmanager
def _hold_store(path: Path) -> Iterator[None]:
    """Hold the lock file beside the store, so that no other process opens the store in the meantime."""
    if (damage := read_damage_mark(path)) is not None:
        raise damage
    if file_guard.is_open(path):
        raise in_use_error(path)
    try:
        with lock_file.exclusive(path, wait=WAIT_S):
            encryption.settle_note(path)
            recognition.adopt_encrypted(path)
            yield
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise in_use_error(path) from problem
    except apsw.NotADBError:
        raise damage_error(path, "it is not a SQLite database") from None
    except (apsw.Error, OSError) as problem:
        raise backups.backup_error(path, problem) from problem


def _convert(path: Path, note: encryption.Note | None, *, done: bool, keep_backups: bool) -> Converted:
    clear_partials(path.parent)
    left: list[str] = []
    if not done:
        sessions, messages = _replace_file(path, note, left)
    else:
        sessions, messages = _count_rows(path)
    converted = []
    for backup in backups.list_backups(path):
        if _is_plain(backup) != (note is not None):
            continue
        if keep_backups:
            left.append(f"not encrypted: {backup}")
            continue
        try:
            _replace_file(backup, note, left)
            converted.append(backup)
        except (errors.StoreError, apsw.Error, OSError) as problem:
            left.append(f"left unchanged: {backup} ({problem})")
    if note is not None:
        left += [f"not encrypted: {file}" for file in _set_aside(path) if _is_plain(file)]
    return Converted(path, not done, sessions, messages, tuple(converted), tuple(left))


def _is_plain(file: Path) -> bool:
    """Return whether `file` is not encrypted, judged by its first bytes.

    No connection of this process may have `file` open.
    """
    with open(file, "rb") as opened:
        return not recognition.is_probably_encrypted(opened.read(100))


def _set_aside(path: Path) -> list[Path]:
    """Return the copies of the store at `path` that a repair or a restore has kept because they were damaged.

    They cannot be converted, because SQLite cannot read them.
    """
    kept = [
        *path.parent.glob(f"{path.name}.damaged-*"),
        *backups.backup_folder(path).glob(f"*{backups.DAMAGED}*"),
    ]
    return sorted(file for file in kept if not file.name.endswith(encryption.NOTE))


def _count_rows(path: Path) -> tuple[int, int]:
    connection = connect(path, read_only=True)
    try:
        return proof.counts(connection)
    finally:
        connection.close()


# ------------------------------------------------------------------------------------------------ beside the store


def is_of_home(path: Path) -> bool:
    """Return whether this is the store of the current home.

    Files beside any other store are not sealed, because they may belong to other programs.
    """
    return os.path.realpath(path.parent) == os.path.realpath(home.get_hermes_home()) and (
        path.name == home.get_default_db_path().name
    )


def list_plain_files(path: Path, *, copies: bool = False) -> tuple[PlainFiles, ...]:
    """Return the unencrypted files beside an encrypted store of the home.

    With `copies`, include copies of the store.
    """

    def is_plain(file: Path) -> bool:
        try:
            return _is_plain(file)
        except OSError:
            return True

    note = encryption.read_note(path)
    key_file = Path(note.key_file).resolve() if note is not None and note.key_file else None
    found = plain_files.find_plain_files(path.parent, path, is_plain, key_file)
    return tuple(each for each in found if copies or each.what != plain_files.COPIES)


def list_broken_files(path: Path) -> list[str]:
    """Describe each problem with the sealed files beside the store at `path`, in one line of text each."""
    return sealed_home.find_broken_files(_sealed_files(path))


def _sealed_files(path: Path) -> SealedFiles:
    return SealedFiles(path.parent, FileKeys(path))


def _remove_mirrors(path: Path) -> tuple[list[Path], list[str]]:
    connection = connect(path, read_only=True)
    try:
        return plain_files.remove_mirrors(
            path.parent,
            lambda session_id: bool(run(connection, EXISTS, session_id)),
            routing_stored=bool(run(connection, GET, plain_files.ROUTING_TAKEN_OVER)),
        )
    finally:
        connection.close()


# ------------------------------------------------------------------------------------------------ one file


def _replace_file(file: Path, note: encryption.Note | None, left: list[str]) -> tuple[int, int]:
    """Replace the database `file` by a verified copy. The copy is encrypted as `note` says, or plain if `note` is
    None.

    Return the numbers of sessions and messages. If plain content remains in another hard link to the old file, add a
    description of it to `left`.
    """
    real = file.resolve()
    live = connect(real, uris=True)
    old = None
    try:
        if not is_alone(live):
            raise damage_error(file, "it is not a SQLite database")
        with _copy_verified(live, real.parent, real.name, file, note) as (copy, kept):
            old = os.open(real, os.O_RDWR | os.O_CLOEXEC)
            with encryption.unsettle_note(real, note):
                os.replace(copy, real)
                sync_folder(real.parent)
            file_swap.retire(old)
            if note is not None and not wipe(old, start=len(file_swap.RETIRED)):
                left.append(f"not encrypted: another hard link to the former {file}")
        return kept.proof.session_count, kept.proof.message_count
    finally:
        live.close()
        if old is not None:
            os.close(old)


@contextmanager
def open_encrypted_copy(source: Path, path: Path, note: encryption.Note) -> Iterator[Path]:
    """Yield a temporary copy of a plain backup, encrypted like the store at `path`, for a restore."""
    connection = connect(source, read_only=True, uris=True)
    try:
        with _copy_verified(connection, path.parent, path.name, source, note) as (copy, _):
            yield copy
    finally:
        connection.close()


@contextmanager
def _copy_verified(
    source: apsw.Connection, folder: Path, name: str, file: Path, note: encryption.Note | None
) -> Iterator[tuple[Path, _Kept]]:
    """Make a copy of the database `source` in `folder`, encrypted as `note` says, or plain if `note` is None. Yield
    its path and the data that it was compared with.

    The copy is flushed to disk and verified: it is intact, and has every row and every byte of text of `source`.
    `file` is the path of the database, for error messages.
    """
    if wrong := find_damage(source):
        raise damage_error(file, wrong)
    with open_partial_file(folder, name, BESIDE_COPY) as (partial, descriptor):
        key = None
        if note is not None:
            encryption.write_note(partial, note._replace(settled=False))
            key = encryption.find_key(partial)
        _write(source, encryption.target(partial, key))
        kept = _read_kept(source, file)
        copy = connect(partial, read_only=True)
        try:
            if wrong := find_damage(copy):
                raise OSError(errno.EIO, f"the copy is damaged ({wrong})")
            if differing := _list_differences(kept, _read_kept(copy, partial)):
                raise OSError(errno.EIO, f"the copy differs from the file ({differing[0]})")
        finally:
            copy.close()
        os.fsync(descriptor)
        yield partial, kept


def _write(source: apsw.Connection, target: str) -> None:
    try:
        run(source, VACUUM_INTO, target)
    except apsw.CantOpenError:  # its message would contain the key
        raise OSError(errno.EIO, "SQLite could not write to the copy") from None


def _read_kept(connection: apsw.Connection, file: Path) -> _Kept:
    columns = {table: tuple(read_columns(connection, table)) for table in ("sessions", "messages")}
    tables = [row[0] for row in run(connection, PLAIN_TABLES)]
    try:
        rows = proof.take(connection, columns)
    except UnicodeDecodeError:
        raise damage_error(file, "it contains text that is not UTF-8") from None
    return _Kept(rows, {table: run(connection, fill_names(COUNT, table=table))[0][0] for table in tables})


def _list_differences(before: _Kept, after: _Kept) -> list[str]:
    found = [
        f"{table}: {format_count(count, 'row')} became {after.rows.get(table)}"
        for table, count in before.rows.items()
        if after.rows.get(table) != count
    ]
    return found + proof.list_differences(before.proof, after.proof, set())
