"""Fairness between processes: a process that has waited long for the write lock gets it next.

SQLite's lock goes to the first process that requests it after its release. A process in a busy loop requests
it sooner than a process that wakes from a sleep on a loaded machine: in a test, one of eight writers got a
hundredth of its share. So a process that has waited too long locks one byte of `<store>.lock`, the queue
byte. Other processes check this byte before they begin a write, and let the waiting process go first. The
lock belongs to the open file description, so it ends when its holder ends. The indexing process locks another
byte.

A process that is stopped while it holds the queue byte keeps the lock. For this case, each holder writes a
random stamp into the file. A process that has waited too long for a holder remembers the stamp of this
holder, and does not wait for this holder again.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from hermes import home
from hermes.store.sqlite import fork_safety

WAIT_IN_LINE_S = 0.0005
PATIENCE_S = 1.0
"""How long a process waits for the holder of the queue byte to begin its write.

After that, it ignores this holder.
"""
_STAMP_AT, _STAMP_BYTES = 0, 8

_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_FLOCK = struct.Struct("hhqqi")
_LINE, _INDEXING = 1, 2
_MINE, _NOBODYS, _INDEXER, _NO_INDEXER = (
    _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
    for byte in (_LINE, _INDEXING)
    for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
)


class WriterQueue:
    """The queue of processes that wait for the write lock.

    Where locks on open file descriptions do not exist (on platforms other than Linux, and on some file
    systems), the queue is always empty.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, f"{path}.lock"
        self._descriptor = -1
        self._usable = sys.platform.startswith("linux")
        self._seen, self._seen_at = b"", 0.0  # the stamp of the holder, and when it was first seen
        self._skipped: bytes | None = None

    def is_occupied(self) -> bool:
        if self._descriptor < 0 and not self._open():
            return False
        try:
            kind: int = _FLOCK.unpack(fcntl.fcntl(self._descriptor, _F_OFD_GETLK, _MINE))[0]
            return kind != fcntl.F_UNLCK
        except OSError:
            self._usable = False
            return False

    def wait_until_free(self, until: float) -> bool:
        """Wait until no process is in the queue for the write lock. A process that is stuck in the queue is ignored.

        Return False if the time `until` is reached before.
        """
        while self.is_occupied():
            if self._is_stuck():
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(WAIT_IN_LINE_S)
        return True

    def join(self, until: float) -> None:
        """Wait until this process holds the queue byte. It is then the next process to write.

        Give up at the time `until`, or if the process that holds the queue byte is stuck.
        """
        while self._usable and self._descriptor >= 0 and time.monotonic() < until:
            try:
                fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _MINE)
            except OSError:
                if self._is_stuck():
                    return
                time.sleep(WAIT_IN_LINE_S)
                continue
            with suppress(OSError):
                os.pwrite(self._descriptor, os.urandom(_STAMP_BYTES), _STAMP_AT)
            return

    def _is_stuck(self) -> bool:
        """Return whether the process that holds the queue byte is stuck: this process has already waited `PATIENCE_S`
        seconds for it.
        """
        try:
            stamp = os.pread(self._descriptor, _STAMP_BYTES, _STAMP_AT)
        except OSError:
            return False
        now = time.monotonic()
        if stamp != self._seen:
            self._seen, self._seen_at, self._skipped = stamp, now, None
        elif self._skipped is None and now - self._seen_at >= PATIENCE_S:
            self._skipped = stamp
        return self._skipped is not None

    def leave(self) -> None:
        self._let_go(_NOBODYS)

    def start_indexing(self) -> bool:
        """Try to make this process the only one that indexes, until it calls `stop_indexing`. Return False if another
        process is indexing.

        Two indexing processes would do the same work twice.
        """
        if not self._usable or (self._descriptor < 0 and not self._open()):
            return True
        try:
            fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _INDEXER)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            self._usable = False
        return True

    def stop_indexing(self) -> None:
        self._let_go(_NO_INDEXER)

    def _let_go(self, lock: bytes) -> None:
        if self._descriptor >= 0:
            try:
                fcntl.fcntl(self._descriptor, _F_OFD_SETLK, lock)
            except OSError:
                self._usable = False

    def close(self) -> None:
        if self._descriptor >= 0:
            fork_safety.unshare(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> bool:
        if self._usable:
            try:
                owners = home.get_owners(self._path, self._path.parent)
                self._descriptor = home.open_private_file(self._name, os.O_RDWR | os.O_CREAT, owners)
                fork_safety.share(self._descriptor)
            except OSError:
                self._usable = False
        return self._usable
