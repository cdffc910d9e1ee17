"""Access to the bytes of a damaged file and of its log, while SQLite in other processes is locked out.

Each page of an encrypted store has its own authentication code, so damage affects only the pages that it
touched. All other pages are read from a copy of the file, through SQLite's file layer, which decrypts them.
SQLite can checkpoint the log into the copy, while the original is locked and stays unchanged. Nothing is ever
written unencrypted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from hermes import errors, home
from hermes.store.sqlite import creation
from hermes.store.sqlite.connection import connect, pragma
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.repair.pages import PAGE_SIZES, Image, Log
from hermes.store.sqlite.upkeep.file_swap import beside, copy_files, get_size, sync
from hermes.store.sqlite.wal.byte_locks import F_OFD_SETLK, pack_lock

LOCKED_RANGE = (0x40000000, 512)
"""The bytes of the database file that SQLite locks: offset and size."""
SHARED_MEMORY_IN_USE = (128, 1)
"""The byte of `-shm` that every connection locks: offset and size."""
RESERVED = 32
"""The number of bytes at the end of every page that belong to the cipher."""
USUAL_PAGE = 4096


@contextmanager
def lock_out(path: Path, real: Path) -> Iterator[tuple[int | None, Log | None]]:
    """Lock a damaged database against SQLite in other processes during the `with` block.

    `path` is the path of the store, and `real` is the same path without symbolic links. Yield a descriptor of the
    database file, and its write-ahead log. The descriptor is None if the file is missing. The log is None if it is
    missing or empty. Raise `StoreBusy` if another process is using the file.
    """
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
        if sys.platform.startswith("linux"):  # this lock also excludes connections of the same process
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
    """Write the pages of the write-ahead log into the damaged database file `real`, as a checkpoint does, and empty
    the log.

    `descriptor` is an open descriptor of `real`, or None if the file is missing. In this case the file is created.
    """
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


class SealedImage(Image):
    """The pages of an encrypted database. They are read and decrypted through a SQLite connection.

    A page that fails authentication counts as missing.
    """

    def __init__(self, connection: apsw.Connection, folded: int, original: int | None) -> None:
        self._connection = connection
        self._folded = folded
        self._original = original
        size = int.from_bytes(os.pread(folded, 2, 16), "big")
        self.page_size = size if size in PAGE_SIZES else USUAL_PAGE
        super().__init__(folded, None)
        self.usable = self.page_size - RESERVED

    def _page_size(self, header: bytes) -> int:
        return self.page_size

    def _read(self, size: int, at: int) -> bytes:
        try:
            _, page = self._connection.read("main", 0, at - at % self.page_size, self.page_size)
        except apsw.Error:
            return b""
        return page[at % self.page_size :][:size]

    def changed_pages(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, bytes) of each page that differs from the original file, because the log contained a newer
        version. The bytes are encrypted.
        """
        for at in range(0, self._size, self.page_size):
            new = os.pread(self._folded, self.page_size, at)
            old = b"" if self._original is None else os.pread(self._original, self.page_size, at)
            if new != old:
                yield at, new


@contextmanager
def open_unsealed(real: Path, descriptor: int | None) -> Iterator[Image]:
    copy = real.with_name(f"{real.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        encryption.copy_note(real, copy)
        if descriptor is None or not os.fstat(descriptor).st_size:
            # Only the log is left. SQLite deletes the log of an empty file, so the copy is created as an empty store.
            os.close(home.create_private_file(copy))
            creation.build_store(copy)
            copy_files(real, None, copy)
        else:
            copy_files(real, descriptor, copy)
        _fold(copy)
        folded = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
        connection = connect(copy, read_only=True, immutable=True)
        try:
            yield SealedImage(connection, folded, descriptor)
        finally:
            connection.close()
            os.close(folded)
    finally:
        for suffix in ("", "-journal", "-wal", "-shm", encryption.NOTE):
            beside(copy, suffix).unlink(missing_ok=True)


def _fold(copy: Path) -> None:
    """Let SQLite copy the write-ahead log of the database file `copy` into this file.

    Errors are ignored, because SQLite tries again when the connection is closed.
    """
    connection = connect(copy)
    try:
        with suppress(apsw.Error):
            pragma(connection, "PRAGMA journal_mode=DELETE")
    finally:
        with suppress(apsw.Error):
            connection.close(True)
