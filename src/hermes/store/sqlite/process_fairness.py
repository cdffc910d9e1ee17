"""Processes take turns: whoever has waited for the write lock for a while is the next to get it.

SQLite's lock goes to whoever asks first after it is free, and a process in a hot loop asks sooner than one that wakes
from a nap on a busy machine: one of eight writers was seen to get a hundredth of its share. So a process that has
waited too long holds a lock on one byte of `<store>.lock`, and others look at it before they begin, and let it pass.
The lock belongs to the open file, so that it is gone when its holder is. Another byte is held by who is indexing.

A process that is stopped while it stands in line keeps the lock. Whoever stands in line writes a stamp into the file.
By the stamp others recognise a holder that they have waited for in vain, and do not wait for it again.
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
"""How long a process lets another go first that does not go."""
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
    """Without such locks (not on Linux, or a file system that has none) nobody ever stands in line."""

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, f"{path}.lock"
        self._descriptor = -1
        self._usable = sys.platform.startswith("linux")
        self._seen, self._seen_at = b"", 0.0  # the stamp of the holder, and since when it is the same
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
        """Wait while somebody stands in line; whether nobody did any more before the time was up."""
        while self.is_occupied():
            if self._is_stuck():
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(WAIT_IN_LINE_S)
        return True

    def join(self, until: float) -> None:
        """Stand in line until it is our turn, or until the time is up."""
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
        """Whether the holder of the line is one that this process has waited for long enough."""
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
        """Whether no other process is indexing; then it is us, until we stop. Two would do the same work."""
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
