"""Append-only files of lines, shared by several processes. Each line is written completely and durably, or
not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes import home
from hermes.atomic_files import sync_folder
from hermes.logs import get_logger

log = get_logger(__name__)

TORN = ".torn"
"""Suffix for a file whose last line was truncated by a crash. Its complete lines have been written to the
store. The file is kept for inspection."""


def list_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def read_stamp(file: Path) -> int:
    stamp = file.name.partition("_")[0]
    return int(stamp) if stamp.isdecimal() else 0


def append_line(file: Path, line: bytes) -> bool:
    """Append a line to a file durably and atomically. Return False, and write nothing, if the file does not
    exist or its last line is truncated."""
    with lock_file(file) as descriptor:
        if descriptor is None:
            return False
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            return False
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.pwrite(descriptor, rest, size + len(line) - len(rest)) :]
            os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        return True


@contextmanager
def lock_file(file: Path) -> Iterator[int | None]:
    """Lock a file and yield its descriptor. Yield None if the file does not exist, or if it was removed or
    replaced while this call waited for the lock."""
    try:
        descriptor = home.open_private_file(file, os.O_RDWR)
    except FileNotFoundError:
        yield None
        return
    try:
        lock_descriptor(descriptor, fcntl.LOCK_EX)
        try:
            same = os.fstat(descriptor).st_ino == file.stat().st_ino
        except FileNotFoundError:
            same = False
        yield descriptor if same else None
    finally:
        os.close(descriptor)


def lock_descriptor(descriptor: int, operation: int) -> bool:
    """Lock the file of an open descriptor, and return whether the lock was acquired.

    On a file system without locks, return True: other processes cannot be detected there.
    """
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def read_from(descriptor: int, start: int) -> bytes:
    """Return the bytes of an open file from the offset `start` to its end."""
    parts = []
    while part := os.pread(descriptor, 1 << 20, start):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def finish_file(file: Path, torn: bool) -> None:
    """Remove a file of lines, after all its lines were stored elsewhere. If `torn` is true, its last line is
    incomplete and was not stored; then rename the file instead."""
    if torn:
        aside = file.with_name(file.name + TORN)
        file.rename(aside)
        log.warning(
            "the last line of %s was cut off by a crash and could not be stored; all other lines were stored",
            aside,
        )
    else:
        file.unlink()
    sync_folder(file.parent)
