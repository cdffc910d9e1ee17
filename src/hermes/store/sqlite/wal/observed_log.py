"""The write-ahead log in use, and whether it is still the one in its place."""

from __future__ import annotations

import os

from hermes import clock
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS, identity_in
from hermes.store.sqlite.wal.log_index import LogCheck

_TICK_S, _TICKS_OF_SECONDS_S = 0.05, 3.0  # how far apart two times of a file are at least, with room to spare


class ObservedLog:
    """The write-ahead log as it was first seen. It is kept open, so that no other file can be given its number; nobody
    locks it, so that closing it hurts nobody.

    Nothing can take it away without the kernel noting the time of a change in its folder (`ctime`, which no program can
    set), so that is looked at, and the log itself only if it has changed: since Linux 6.13 asking for the times of a
    file makes the next write to it record a finer one, which cost a seventh of every commit. What leads to the folder
    is looked up anew each time, for others go there by it: a link on the way may lead elsewhere by now.
    """

    def __init__(self, store: str, identity: tuple[int, int], index: tuple[int, int] | None) -> None:
        self._store, self._store_is = store, identity
        self._name, self._folder = f"{store}-wal", os.path.dirname(store) or "."
        self._index_name, self._index_is = f"{store}-shm", index
        self.descriptor = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
        self._is = identity_in(os.fstat(self.descriptor))
        self.check = LogCheck(self.descriptor)
        self._at_rest: tuple[int, int, int] | None = None
        self._folder_descriptor = _open_folder(self._folder)
        self.identities = [self._is] if index is None else [self._is, index]

    def is_in_place(self) -> bool:
        status = os.stat(self._folder)
        folder = status.st_dev, status.st_ino, status.st_ctime_ns
        if folder == self._at_rest:
            return True
        in_place = (
            self.is_the_same()
            and identity_in(os.stat(self._store)) == self._store_is
            and (self._index_is is None or self.is_index_the_same())
        )
        self._at_rest = folder if in_place and is_settled(status.st_ctime_ns, clock.now()) else None
        return in_place

    def is_folder_at_rest(self) -> bool:
        """Whether nothing was changed in the folder since the log was seen in its place there."""
        return (
            self._at_rest is not None
            and self._folder_descriptor is not None
            and os.fstat(self._folder_descriptor).st_ctime_ns == self._at_rest[2]
        )

    def is_the_same(self) -> bool:
        return identity_in(os.stat(self._name)) == self._is

    def is_index_the_same(self) -> bool:
        return identity_in(os.stat(self._index_name)) == self._index_is

    def close(self) -> None:
        os.close(self.descriptor)
        if self._folder_descriptor is not None:
            os.close(self._folder_descriptor)


def _open_folder(name: str) -> int | None:
    try:
        return os.open(name, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in NO_DESCRIPTORS:
            raise
        return None


def is_settled(changed_ns: int, now: float) -> bool:
    """Whether another change, made now, would bear a later time. Some file systems know seconds only, or pairs."""
    return now - changed_ns / 1e9 > (_TICK_S if changed_ns % 1_000_000_000 else _TICKS_OF_SECONDS_S)
