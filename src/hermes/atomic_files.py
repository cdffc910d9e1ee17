"""Files that are being written: under a name of their own, private and locked, until they are whole.

What a killed process left behind is told by its lock, and cleared away by whoever works in the folder next.
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
"""What stands beside an encrypted file and says with which key, though not the key."""
DAMAGE_MARK = ".damaged"
"""What stands beside a store in which damage was seen: nobody writes to it until it is repaired or restored."""
BACKUPS = ".backups"
"""Ends the name of the folder beside a store that holds its backups."""

LONGEST_NAME = 50
"""Characters of a file's name in that of its partial file: what is added must not make it too long."""


@contextmanager
def open_partial_file(folder: Path, name: str, beside: Sequence[str] = ()) -> Iterator[tuple[Path, int]]:
    """A private file to write to, locked while its writer lives, gone afterwards unless it was published.

    `beside` are the endings of files that its writer makes beside it, which go with it.
    """
    partial = folder / f".{name}.{os.urandom(6).hex()}{PARTIAL}"
    descriptor = -1
    try:  # from the first moment on: an interrupt may come as soon as there is a file
        descriptor = _create_partial(partial)
        with suppress(OSError):  # a file system without such locks: then nothing is ever cleared away there
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
    except OSError as error:  # nobody knows that name: what is wrong is the folder
        raise OSError(error.errno, error.strerror, str(partial.parent)) from None


def replace_file(file: Path, data: bytes, *, unless: Callable[[], bool] = bool) -> bool:
    """Give the file these contents, at once and private; False, and nothing done, if `unless` says so at the end."""
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
    """Only one at a time reads and then replaces a file of this folder, among all processes that ask here."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def write_new_file(file: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A private file that gets its name when it is whole. Without `replace` it never takes the place of another."""
    with write_published_file(file, os.replace if replace else link_or_rename) as fresh:
        yield fresh


@contextmanager
def write_published_file(file: Path, publish: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    """A private file that `publish(partial, file)` puts in its place when it is whole and on the disk."""
    clear_partials(file.parent)
    with open_partial_file(file.parent, file.name[:LONGEST_NAME]) as (partial, descriptor):
        with open(descriptor, "wb", closefd=False) as fresh:
            yield fresh
        os.fsync(descriptor)
        publish(partial, file)
    sync_folder(file.parent)


def link_or_rename(partial: Path, file: Path) -> None:
    """Give a partial file its name, unless the name is taken: then FileExistsError."""
    try:
        os.link(partial, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: then there is a moment in which another may take the name
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from None
        os.replace(partial, file)


def clear_partials(folder: Path) -> None:
    """Remove what killed backups left. The lock tells them from those that are being written."""
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
                if file.name.startswith(stale.name):  # itself, and what its writer made beside it
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
    """Work in a folder of ours, one at a time among all threads and processes; what the system refuses is one line."""
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
