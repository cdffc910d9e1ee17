"""Replacement of a store's file by another one, so that no program continues with the old file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from hermes import clock, home
from hermes.store.sqlite.encryption import encryption

RETIRED = b"replaced by a repaired store\x00"
COPIED_AT_ONCE = 1 << 20


def keep_aside(real: Path, descriptor: int | None) -> Path:
    """Copy the damaged database file `real` and its write-ahead log, unchanged, to a new name. Return the path of the
    copy.

    `descriptor` is an open descriptor of `real`, or None if the file is missing. The file is copied and not renamed,
    because `retire` must still overwrite it.
    """
    kept = real.with_name(f"{real.name}.damaged-{clock.format_stamp()}")
    while kept.exists():
        kept = real.with_name(f"{real.name}.damaged-{clock.format_stamp()}-{secrets.token_hex(2)}")
    encryption.copy_note(real, kept)
    copy_files(real, descriptor, kept)
    return kept


def copy_files(real: Path, descriptor: int | None, kept: Path) -> None:
    if descriptor is not None:
        _copy(descriptor, kept)
    for suffix in ("-wal", "-journal"):
        if get_size(beside(real, suffix)):
            source = os.open(beside(real, suffix), os.O_RDONLY | os.O_CLOEXEC)
            try:
                _copy(source, beside(kept, suffix))
            finally:
                os.close(source)


def _copy(source: int, target: Path) -> None:
    with os.fdopen(home.create_private_file(target), "wb") as copy:
        at = 0
        while data := os.pread(source, COPIED_AT_ONCE, at):
            copy.write(data)
            at += len(data)
        copy.flush()
        os.fsync(copy.fileno())


def retire(descriptor: int | None) -> None:
    """Overwrite the header of the replaced file.

    Programs that still have this file open can then no longer write to it.
    """
    if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
        os.pwrite(descriptor, RETIRED, 0)


def beside(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")


def get_size(path: Path) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
