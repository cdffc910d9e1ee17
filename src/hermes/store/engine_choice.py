"""From a place to a store: the only module above the engines that knows which there are."""

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
"""The documented version of the tables that other programs read."""

DURABILITY = {"full": "FULL", "normal": "NORMAL"}
FILE_MARK = b"SQLite format 3\0"
WAL_MARKS = ("locking protocol", "not authorized", "disk i/o error")
WAL_HINT = (
    " (this often means a network or FUSE file system, NFS or SMB for example, on which SQLite's WAL does not work:"
    " https://www.sqlite.org/wal.html)"
)


def open_engine(path: Path, *, read_only: bool = False, durability: str = "full", **figures: Any) -> Engine:
    """`figures` are the documented constants of the write path, passed on to the engine.

    A store of another version is read, and only read, as a copy that is made for that.
    """
    if durability not in DURABILITY:
        raise errors.make_error(
            errors.InvalidArgument, f"durability is 'full' or 'normal', not {durability!r}"
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
    """Which files are the store's own, so that nothing else takes their place."""
    from hermes.store.sqlite.copies.store_files import StoreFiles

    return StoreFiles(store)


def has_store(path: Path) -> bool:
    """Whether there is anything of a store: its file, a link of that name, or only its log."""
    return os.path.lexists(path) or has_log(path)


def has_log(path: Path) -> bool:
    """Whether there is a log beside the place of a store, from which the store can be repaired."""
    return os.path.lexists(f"{path}{sidecars.LOG}")


def list_own_files(path: Path) -> list[Path]:
    """The file of a store and those that its engine makes beside it, whether they are there or not."""
    return [path.with_name(f"{path.name}{ending}") for ending in ("", *sidecars.SIDECARS)]


def is_store(path: Path) -> bool:
    """Whether a file is a store, plain or encrypted."""
    with path.open("rb") as file:
        return file.read(len(FILE_MARK)) == FILE_MARK or is_encrypted(path)


def explain_open_failure(cause: str) -> str:
    """A hint in parentheses, with a space before it, for an error of the engine that has a known reason; else ''."""
    return WAL_HINT if any(mark in cause.lower() for mark in WAL_MARKS) else ""


def is_encrypted(path: Path) -> bool:
    """Whether the store is, or will be once it is made: then nothing is kept in plain text beside it unasked."""
    from hermes.store.sqlite.encryption import encryption

    return encryption.is_encrypted(path)


def sealed_files(root: Path | None = None) -> SealedFiles:
    """How the files of a home are read and written: sealed, if its store is encrypted. Else the home of now."""
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
    """The key to encrypt a store with, made if `generate` says so: see `store_keys.choose_key`."""
    from hermes.store.sqlite.encryption import store_keys

    return store_keys.choose_key(path, key_file=key_file, keyring=keyring, env=env, generate=generate)


def decrypt_file(path: Path) -> Converted:
    from hermes.store.sqlite.upkeep import conversion

    return conversion.decrypt_file(check_database_path(path))
