"""The bytes of a damaged file and of its log, read and written while SQLite in other processes is locked out."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes import errors, home
from hermes.store.sqlite.repair.pages import Image, Log
from hermes.store.sqlite.upkeep.file_swap import beside, get_size, sync
from hermes.store.sqlite.wal.byte_locks import F_OFD_SETLK, pack_lock

LOCKED_RANGE = (0x40000000, 512)
"""SQLite's lock bytes in the database file."""
SHARED_MEMORY_IN_USE = (128, 1)
"""The byte of -shm that every connection holds."""


@contextmanager
def lock_out(path: Path, real: Path) -> Iterator[tuple[int | None, Log | None]]:
    """The file and its log, opened for reading as bytes, while SQLite in other processes is locked out."""
    opened: list[int] = []

    def lock_file(name: Path, first: int, size: int) -> int | None:
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        opened.append(descriptor)
        if not _try_lock(descriptor, first, size):
            raise busy_error(path)
        return descriptor

    try:
        descriptor = lock_file(real, *LOCKED_RANGE)
        lock_file(beside(real, "-shm"), *SHARED_MEMORY_IN_USE)
        log = None
        if get_size(beside(real, "-wal")):
            opened.append(os.open(beside(real, "-wal"), os.O_RDONLY | os.O_CLOEXEC))
            log = Log(opened[-1])
        yield descriptor, log
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _try_lock(descriptor: int, first: int, size: int) -> bool:
    try:
        if sys.platform.startswith("linux"):  # also against connections of this very process
            request = pack_lock(fcntl.F_WRLCK, first, size)
            fcntl.fcntl(descriptor, F_OFD_SETLK, request)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, size, first)
        return True
    except OSError as problem:
        if problem.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False


def busy_error(path: Path) -> errors.HermesError:
    return errors.make_error(
        errors.StoreBusy,
        f"{path} is in use by another program; close everything that uses it, then repair it",
    )


def fold_log(real: Path, descriptor: int | None, image: Image) -> None:
    """Write the log's pages into the damaged file, as a checkpoint would, and empty the log."""
    log = beside(real, "-wal")
    if not get_size(log):
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
