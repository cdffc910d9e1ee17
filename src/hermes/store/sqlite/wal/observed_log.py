"""The write-ahead log in use, and the check that it is still in its place."""

from __future__ import annotations

import os

from hermes import clock
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS, identity_in
from hermes.store.sqlite.wal.log_index import LogCheck

_TICK_S, _TICKS_OF_SECONDS_S = 0.05, 3.0  # resolution of file times, with a margin


class ObservedLog:
    """The write-ahead log as it was first observed.

    The log is kept open, so that the kernel cannot reuse its inode number. No process locks the log, so
    closing its descriptor drops no lock.

    When a log is removed, its folder always gets a new change time (`ctime`), and no program can set that
    time. So the check reads the folder's change time, and looks at the log only if this time has changed. The
    log's own times are not read: since Linux 6.13, reading the times of a file makes the next write record a
    finer time, which would make every commit about 14 % slower. The folder's path is resolved anew at each
    check, because other processes use the path, and a symbolic link in it may have changed.
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
        """Return whether the folder of the write-ahead log has the same change time as when the log was last seen in
        it.

        If so, no file in the folder was created, removed or renamed since.
        """
        return (
            self._at_rest is not None
            and self._folder_descriptor is not None
            and os.fstat(self._folder_descriptor).st_ctime_ns == self._at_rest[2]
        )

    def sync(self) -> None:
        """Wait until all commits in the log are on disk."""
        getattr(os, "fdatasync", os.fsync)(self.descriptor)

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
    """Return whether a change of the folder at the time `now` would be visible, because its change time would
    differ from `changed_ns`.

    Shortly after the time `changed_ns` the result is False, because some file systems store times only in
    steps of one or two seconds.
    """
    return now - changed_ns / 1e9 > (_TICK_S if changed_ns % 1_000_000_000 else _TICKS_OF_SECONDS_S)
