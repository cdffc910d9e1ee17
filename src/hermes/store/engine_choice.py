"""Choice of the engine for a path. No other module outside the engines knows which engines exist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import errors, home
from hermes.store.arguments import check_database_path
from hermes.store.engine import Engine
from hermes.store.sqlite.engine import CopyEngine, SqliteEngine
from hermes.store.sqlite.wal import sidecars

if TYPE_CHECKING:
    from hermes.store.findings import Diagnosis
    from hermes.store.sealing.sealed_files import SealedFiles
    from hermes.store.sqlite.copies.store_files import StoreFiles
    from hermes.store.values import Converted, Key, Repair

SCHEMA_VERSION = 11
"""The schema version of the reference that the tables of a store have. Other programs read it from the table
`schema_version`."""

DURABILITY = {"full": "FULL", "normal": "NORMAL"}
FILE_MARK = b"SQLite format 3\0"
WAL_MARKS = ("locking protocol", "not authorized", "disk i/o error")
WAL_HINT = (
    " (this often means a network or FUSE file system, NFS or SMB for example, on which SQLite's WAL does not work:"
    " https://www.sqlite.org/wal.html)"
)


def open_engine(path: Path, *, read_only: bool = False, durability: str = "full", **figures: Any) -> Engine:
    """Open the store at `path`. `figures` are tuning values for writes that `SessionDB` passes, such as the
    number of retries.

    A store of another schema version can be opened only with `read_only`. A converted copy is then opened in
    its place.
    """
    if durability not in DURABILITY:
        raise errors.make_error(
            errors.InvalidArgument, f"durability must be 'full' or 'normal', got {durability!r}"
        )
    figures["synchronous"] = DURABILITY[durability]
    store = check_database_path(path)
    try:
        return SqliteEngine(store, read_only=read_only, **figures)
    except (errors.StoreTooNew, errors.StoreTooOld):
        if not read_only:
            raise
    return CopyEngine(store, **figures)


def remove_readable_copy(path: Path) -> None:
    from hermes.store.sqlite.upkeep import copy_cache

    copy_cache.remove_copies(check_database_path(path))


def repair_file(path: Path, *, check_only: bool = False, keep_backup: bool = True) -> Repair:
    from hermes.store.sqlite.repair import repair

    return repair.repair_file(check_database_path(path), check_only=check_only, keep_backup=keep_backup)


def restore_file(path: Path, source: Path) -> None:
    from hermes.store.sqlite.upkeep.restore import restore

    restore(check_database_path(path), check_database_path(source))


def diagnose_file(path: Path, *, deep: bool = False) -> Diagnosis:
    from hermes.store.sqlite.upkeep.diagnosis import diagnose

    return diagnose(path, deep=deep)


def list_store_files(store: Path) -> StoreFiles:
    """Return the files that belong to the store. Callers use this to refuse an output file that would replace
    one of them."""
    from hermes.store.sqlite.copies.store_files import StoreFiles

    return StoreFiles(store)


def has_store(path: Path) -> bool:
    """Return whether any part of a store exists: its file, a link with its name, or only its log."""
    return os.path.lexists(path) or has_log(path)


def has_log(path: Path) -> bool:
    """Return whether a write-ahead log exists for the store at this path. The store can be repaired from its
    log."""
    return os.path.lexists(f"{path}{sidecars.LOG}")


def list_own_files(path: Path) -> list[Path]:
    """Return the paths of the store file and of the files that its engine creates beside it, whether or not
    they exist."""
    return [path.with_name(f"{path.name}{ending}") for ending in ("", *sidecars.SIDECARS)]


def is_store(path: Path) -> bool:
    """Return whether a file is a store, plain or encrypted."""
    with path.open("rb") as file:
        return file.read(len(FILE_MARK)) == FILE_MARK or is_encrypted(path)


def explain_open_failure(cause: str) -> str:
    """Return a hint for a person whose store could not be opened. `cause` is the error message of the engine.
    The hint is a space and a text in parentheses, to be appended to that message. Return an empty text if the
    reason is not known."""
    return WAL_HINT if any(mark in cause.lower() for mark in WAL_MARKS) else ""


def is_encrypted(path: Path) -> bool:
    """Return whether the store is encrypted, or will be encrypted when it is created.

    Nothing may be stored in plain text beside an encrypted store without the user's consent.
    """
    from hermes.store.sqlite.encryption import encryption

    return encryption.is_encrypted(path)


def sealed_files(root: Path | None = None) -> SealedFiles:
    """Return access to the files of the home directory `root`. The files are sealed if the store of that home
    is encrypted.

    The default is the current home directory.
    """
    from hermes.store.sealing.sealed_files import SealedFiles
    from hermes.store.sqlite.encryption.file_keys import FileKeys

    store = home.get_default_db_path() if root is None else root / home.get_default_db_path().name
    return SealedFiles(store.parent, FileKeys(store))


def encrypt_file(
    path: Path,
    key: bytes,
    *,
    key_file: str | None = None,
    keep_plain_backups: bool = False,
    remove_plain: bool = False,
) -> Converted:
    from hermes.store.sqlite.upkeep import conversion

    return conversion.encrypt_file(
        check_database_path(path),
        key,
        key_file=key_file,
        keep_plain_backups=keep_plain_backups,
        remove_plain=remove_plain,
    )


def choose_encryption_key(
    path: Path,
    *,
    key_file: Path | None = None,
    keyring: bool = False,
    env: bool = False,
    generate: bool = False,
) -> Key:
    """Return the key with which the store at `path` is to be encrypted. With `generate`, a new key is created.
    See `store_keys.choose_key` for the other parameters."""
    from hermes.store.sqlite.encryption import store_keys

    return store_keys.choose_key(path, key_file=key_file, keyring=keyring, env=env, generate=generate)


def decrypt_file(path: Path) -> Converted:
    from hermes.store.sqlite.upkeep import conversion

    return conversion.decrypt_file(check_database_path(path))
