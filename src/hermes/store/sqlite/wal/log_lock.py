"""Which processes may begin a new write-ahead log, and when: a lock that does not depend on the log or its index.

SQLite keeps the locks between processes in the log's index (`-shm`). If that file is removed, whoever opens the store
makes another one. Two processes may then write at once, each by its own index, and damage the file. So every process
also locks one byte of the database file, which SQLite does not use:

- shared, while it commits or checkpoints. Several do so at once; among them SQLite's own locks decide.
- exclusively, while it opens the store, or saves a log that was removed. Only these can make a new index.

Whoever has the lock then checks that log and index are still the ones it uses. From there on, until it lets go of the
lock, no other process of ours uses others. The lock belongs to the open file: it ends with the process, and several
stores of one process do not share it.
"""

from __future__ import annotations

import errno
import fcntl
import sys
import time
from collections.abc import Callable

from hermes.store.sqlite.wal.byte_locks import F_OFD_SETLK, pack_lock
from hermes.store.sqlite.wal.file_guard import Guard, keep_lock_file

_BYTE = 0x40000200  # the first behind those that SQLite locks, on a page that it does not use
_SHARED, _EXCLUSIVE, _NONE = (
    pack_lock(kind, _BYTE, 1) for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK)
)
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)
NAP_S = 0.0005


class LogLock:
    """Kept in the kernel only, so that it can be released at any time, in any thread, more than once.

    It is always granted to a store without a write-ahead log, and where there are no such locks: not on Linux, or on a
    file that may not be written.
    """

    __slots__ = ("_descriptor", "_guard", "_outlives")

    def __init__(self, guard: Guard, *, has_log: bool = True) -> None:
        self._guard = guard
        self._outlives = False
        is_used = has_log and sys.platform.startswith("linux")
        self._descriptor = guard.borrow_lock_file() if is_used else -1

    def share(self) -> bool:
        return self._set(_SHARED)

    def claim(self) -> bool:
        """Exclusively. A lock that is shared until now stays so if that is refused."""
        return self._set(_EXCLUSIVE)

    def claim_before(self, until: float) -> bool:
        return wait_for(self.claim, until)

    def release(self) -> None:
        self._set(_NONE)

    def outlive_guard(self) -> None:
        """Stay locked while every connection of this process is closed and opened anew."""
        self._outlives = True
        self._guard.let_lock_file_go(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0 and (self._outlives or self._guard.holds(self._descriptor)):
            self.release()
            keep_lock_file(self._guard.identity, self._descriptor)
        self._descriptor = -1

    def _set(self, kind: bytes) -> bool:
        if self._descriptor >= 0:
            try:
                fcntl.fcntl(self._descriptor, F_OFD_SETLK, kind)
            except OSError as problem:
                return problem.errno not in _HELD_BY_OTHERS
        return True


def wait_for(granted: Callable[[], bool], until: float) -> bool:
    while not granted():
        if time.monotonic() >= until:
            return False
        time.sleep(NAP_S)
    return True
