"""The folder `cache` of the home, with copies that are made to read stores of other versions.

A copy duplicates conversations, so it is removed as soon as it is no longer needed: when the original is
deleted or changed, when the original was imported, and by every purge, scrub and `optimize`. A copy that a
process is reading is kept until the process closes it.

The file `.origin` beside a copy contains the path of the original. Readers of the copy hold a shared lock on
this file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from hermes import home
from hermes.atomic_files import KEY_NOTE, clear_partials
from hermes.store.sqlite.wal.file_identity import identity_of
from hermes.store.sqlite.wal.sidecars import SIDECARS

FOLDER = "cache"
ORIGIN = ".origin"


class CachedCopy(NamedTuple):
    path: Path
    original: Path | None
    """The store that was copied.

    None if an earlier release made the copy, because it did not record the original.
    """
    is_current: bool
    """Whether the original is the same as when it was copied."""
    size: int


class CopyHold:
    """Keeps a readable copy in the cache from being removed, until `release` is called."""

    def __init__(self, copy: Path, descriptor: int) -> None:
        self._copy = copy
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def find_folder() -> Path:
    return home.get_hermes_home() / FOLDER


def name_copy(store: Path) -> Path:
    """Return the path in the cache for a readable copy of `store` in its current state. After a write to the store,
    the path is a different one.
    """
    return find_folder() / f"{store.stem}{_identify_state(store)}"


def hold_copy(copy: Path) -> CopyHold | None:
    """Keep the readable copy at the path `copy` from being removed. Return None if there is no such copy."""
    with suppress(FileNotFoundError), _lock_origin(copy, fcntl.LOCK_SH) as descriptor:
        if copy.exists():
            return CopyHold(copy, os.dup(descriptor))
    return None


def publish_copy(partial: Path, copy: Path, store: Path) -> CopyHold:
    """Move the complete readable copy `partial` of `store` to its final path in the cache, `copy`. Return a hold that
    keeps it from being removed.
    """
    with _lock_origin(copy, fcntl.LOCK_SH, os.O_CREAT) as descriptor:
        original = os.fsencode(os.path.realpath(store))
        os.pwrite(descriptor, original, 0)
        os.ftruncate(descriptor, len(original))
        os.replace(partial, copy)
        return CopyHold(copy, os.dup(descriptor))


def list_copies() -> list[CachedCopy]:
    return [_describe_copy(copy) for copy in _find_copies()]


def remove_copies(store: Path) -> None:
    """Remove the readable copies of one store from the cache."""
    for copy in find_folder().glob(f"*-{_digest(os.path.realpath(store))}-*.db"):
        _remove(copy)


def remove_outdated() -> None:
    """Remove the readable copies whose original store was deleted or changed since they were made."""
    for copy in list_copies():
        if not copy.is_current:
            _remove(copy.path)


def remove_all() -> list[Path]:
    """Remove all readable copies from the cache, except those that processes are reading. Return the copies
    that were kept.
    """
    return [copy for copy in _find_copies() if not _remove(copy)]


def _find_copies() -> list[Path]:
    """Return all readable copies in the cache, including incomplete ones that a killed process left behind."""
    folder = find_folder()
    clear_partials(folder)
    found = {*folder.glob("*.db")}
    for ending in (*SIDECARS, KEY_NOTE, ORIGIN):
        found |= {file.with_name(file.name.removesuffix(ending)) for file in folder.glob(f"*.db{ending}")}
    return sorted(found)


def _describe_copy(copy: Path) -> CachedCopy:
    size = 0
    for ending in ("", *SIDECARS):
        with suppress(OSError):
            size += os.stat(f"{copy}{ending}").st_size
    try:
        original = Path(os.fsdecode(Path(f"{copy}{ORIGIN}").read_bytes()))
    except OSError:
        return CachedCopy(copy, None, is_current=False, size=size)
    is_current = original.exists() and copy.exists() and copy.name.endswith(_identify_state(original))
    return CachedCopy(copy, original, is_current, size)


def _remove(copy: Path) -> bool:
    """Remove a readable copy and the files beside it. Return False if the copy was kept, because a process is
    reading it.
    """
    try:
        with _lock_origin(copy, fcntl.LOCK_EX | fcntl.LOCK_NB, os.O_CREAT):
            for ending in ("", *SIDECARS, KEY_NOTE, ORIGIN):
                with suppress(FileNotFoundError):
                    os.unlink(f"{copy}{ending}")
    except BlockingIOError:
        return False
    except OSError:
        return not copy.exists()
    return True


@contextmanager
def _lock_origin(copy: Path, lock: int, flags: int = 0) -> Iterator[int]:
    """Yield a locked descriptor of the `.origin` file beside a copy."""
    name = f"{copy}{ORIGIN}"
    while True:
        descriptor = home.open_private_file(name, os.O_RDWR | flags)
        try:
            try:
                fcntl.flock(descriptor, lock)
            except BlockingIOError:
                raise
            except OSError:
                pass  # a file system without these locks: a process can still read a removed file that it has open
            if identity_of(name) == _identify(descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # a duplicate keeps the lock


def _identify(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _identify_state(store: Path) -> str:
    """Return the end of the file name of a readable copy. It identifies the original (`store`) and the current state
    of the original.
    """
    original = os.path.realpath(store)
    return f"-{_digest(original)}-{_digest(_describe_state(original))}.db"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _describe_state(store: str) -> str:
    """Return a text that is different after every write to the store.

    Each write changes the file or its log.
    """
    states = []
    for ending in ("", "-wal"):
        with suppress(FileNotFoundError):
            status = os.stat(store + ending)
            states.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return repr(states)
