"""Giving a store's name to another file, while nobody has it open and so that nobody is left behind in the old one."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes import clock, errors, home
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.repair.pages import Image, Log

LOCKED_RANGE = (0x40000000, 512)
"""SQLite's lock bytes in the database file."""
SHARED_MEMORY_IN_USE = (128, 1)
"""The byte of -shm that every connection holds."""
RETIRED = b"replaced by a repaired store\x00"
COPIED_AT_ONCE = 1 << 20


@contextmanager
def alone(path: Path, real: Path) -> Iterator[tuple[int | None, Log | None]]:
    """The file and its log, opened for reading as bytes, while SQLite in other processes is locked out."""
    opened: list[int] = []

    def held(name: Path, first: int, size: int) -> int | None:
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        opened.append(descriptor)
        if not _locked(descriptor, first, size):
            raise busy(path)
        return descriptor

    try:
        descriptor = held(real, *LOCKED_RANGE)
        held(beside(real, "-shm"), *SHARED_MEMORY_IN_USE)
        log = None
        if size_of(beside(real, "-wal")):
            opened.append(os.open(beside(real, "-wal"), os.O_RDONLY | os.O_CLOEXEC))
            log = Log(opened[-1])
        yield descriptor, log
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _locked(descriptor: int, first: int, size: int) -> bool:
    try:
        if sys.platform.startswith("linux"):  # also against connections of this very process
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, first, size, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, size, first)
        return True
    except OSError as problem:
        if problem.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False


def busy(path: Path) -> errors.HermesError:
    return errors.make_error(
        errors.StoreBusy,
        f"{path} is in use by another program; close everything that uses it, then repair it",
    )


def keep_aside(real: Path, descriptor: int | None) -> Path:
    """A copy of the damaged file and of its log, as they are. A copy, because the file itself is retired afterwards."""
    kept = real.with_name(f"{real.name}.damaged-{clock.format_stamp()}")
    while kept.exists():
        kept = real.with_name(f"{real.name}.damaged-{clock.format_stamp()}-{secrets.token_hex(2)}")
    encryption.carry(real, kept)
    copy_files(real, descriptor, kept)
    return kept


def copy_files(real: Path, descriptor: int | None, kept: Path) -> None:
    if descriptor is not None:
        _copy(descriptor, kept)
    for suffix in ("-wal", "-journal"):
        if size_of(beside(real, suffix)):
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


def fold_log(real: Path, descriptor: int | None, image: Image) -> None:
    """Write the log's pages into the damaged file, as a checkpoint would, and empty the log."""
    log = beside(real, "-wal")
    if not size_of(log):
        return
    target = home.create_private_file(real) if descriptor is None else descriptor
    try:
        for at, data in image.changed_pages():
            os.pwrite(target, data, at)
        os.fsync(target)
        os.truncate(log, 0)
        sync(log)
    finally:
        if target != descriptor:
            os.close(target)


def retire(descriptor: int | None) -> None:
    """Whoever waited for the old file while it was replaced must not go on writing to it under its lost name."""
    if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
        os.pwrite(descriptor, RETIRED, 0)


def beside(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")


def size_of(path: Path) -> int | None:
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
