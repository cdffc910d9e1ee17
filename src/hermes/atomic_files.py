"""Atomic file writes: a file is written under a private, locked, temporary name until it is complete.

The lock shows whether the writer is still running. The next writer in the folder removes the partial files of
killed processes.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO

from hermes import errors, home

PARTIAL = ".hermes-partial"
LOCK = ".lock"
KEY_NOTE = ".key.json"
"""Suffix of a file beside an encrypted file. It names the key of the encrypted file, but does not contain the
key."""
DAMAGE_MARK = ".damaged"
"""Suffix of the file that marks a store as damaged. No process writes to the store until it is repaired or
restored."""
BACKUPS = ".backups"
"""Suffix of the folder beside a store that contains its backups."""

LONGEST_NAME = 50
"""The name of a partial file contains at most this many characters of the final file name, to stay within the
length limit of file names."""


@contextmanager
def open_partial_file(folder: Path, name: str, beside: Sequence[str] = ()) -> Iterator[tuple[Path, int]]:
    """Create a private file with a temporary name in `folder`, and yield (its path, its descriptor). The file
    is locked until the context ends. It is then removed, unless the caller has renamed it to its final name.

    `beside` lists suffixes. A file that has the temporary name and one of these suffixes is removed too.
    """
    partial = folder / f".{name}.{os.urandom(6).hex()}{PARTIAL}"
    descriptor = -1
    try:  # an interrupt may occur as soon as the file exists
        descriptor = _create_partial(partial)
        with suppress(OSError):  # the file system has no locks; partial files there are never cleared
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield partial, descriptor
    finally:
        for ending in ("", *beside):
            with suppress(OSError):
                os.unlink(f"{partial}{ending}")
        if descriptor >= 0:
            os.close(descriptor)


def _create_partial(partial: Path) -> int:
    try:
        return home.create_private_file(partial)
    except OSError as error:  # the random name cannot be the cause, so report the folder
        raise OSError(error.errno, error.strerror, str(partial.parent)) from None


def replace_file(file: Path, data: bytes, *, unless: Callable[[], bool] = bool) -> bool:
    """Replace the content of a file by `data` atomically. The new file is private. `unless` is called directly
    before the replacement; if it returns true, change nothing and return False."""
    with open_partial_file(file.parent, file.name) as (partial, descriptor):
        with open(descriptor, "wb", closefd=False) as fresh:
            fresh.write(data)
        os.fsync(descriptor)
        if unless():
            return False
        os.replace(partial, file)
    sync_folder(file.parent)
    return True


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, so that a file in the folder can be read and then replaced without
    interference."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def write_new_file(file: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Write a private file under a temporary name, and rename it when it is complete. Without `replace`,
    raise FileExistsError if `file` exists."""
    with write_published_file(file, os.replace if replace else link_or_rename) as fresh:
        yield fresh


@contextmanager
def write_published_file(file: Path, publish: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    """Yield a private file with a temporary name for writing. When its content is complete and durable, call
    `publish` with the temporary path and with `file`. `publish` puts the new file in the place of `file`."""
    clear_partials(file.parent)
    with open_partial_file(file.parent, file.name[:LONGEST_NAME]) as (partial, descriptor):
        with open(descriptor, "wb", closefd=False) as fresh:
            yield fresh
        os.fsync(descriptor)
        publish(partial, file)
    sync_folder(file.parent)


def link_or_rename(partial: Path, file: Path) -> None:
    """Give the complete file `partial` its final name `file`. Raise FileExistsError if a file has this name."""
    try:
        os.link(partial, file)
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links; another process may take the name in between
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from None
        os.replace(partial, file)


def clear_partials(folder: Path) -> None:
    """Remove the partial files of killed processes. Files that are being written are locked and kept."""
    found = sorted(folder.glob(f".*{PARTIAL}*"))
    for stale in found:
        if not stale.name.endswith(PARTIAL):
            continue
        try:
            descriptor = os.open(stale, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for file in found:
                if file.name.startswith(stale.name):  # the partial file and the files beside it
                    with suppress(FileNotFoundError):
                        file.unlink()
        except OSError:
            pass
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_private_folder(folder: Path, seconds: float = 10.0) -> Iterator[None]:
    """Hold an exclusive lock on a private folder, against all other threads and processes. Raise HermesError
    if the lock or the folder is not available."""
    try:
        home.make_private_folder(folder)
        descriptor = home.open_private_file(folder / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            _lock(descriptor, folder, monotonic() + seconds)
            yield
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise errors.HermesError(f"{folder} cannot be changed: {problem.strerror or problem}") from problem


def _lock(descriptor: int, folder: Path, until: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > until:
                raise errors.HermesError(f"{folder} is being changed by another process") from None
            sleep(0.005)
