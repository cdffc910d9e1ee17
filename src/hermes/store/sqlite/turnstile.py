"""Processes take turns: whoever has waited for the write lock for a while is the next to get it.

SQLite's lock goes to whoever asks first after it is free, and a process in a hot loop asks sooner than one that wakes
from a nap on a busy machine: one of eight writers was seen to get a hundredth of its share. So a process that has
waited too long holds a lock on one byte of `<store>.lock`, and others look at it before they begin, and let it pass.
The lock belongs to the open file, so that it is gone when its holder is.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from pathlib import Path

from hermes.home import PRIVATE_FILE

WAIT_IN_LINE_S = 0.0005

_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_FLOCK = struct.Struct("hhqqi")
_BYTE = 1
_MINE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _BYTE, 1, 0)
_NOBODYS = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, _BYTE, 1, 0)


class Turnstile:
    """Without such locks (not on Linux, or a file system that has none) nobody ever stands in line."""

    def __init__(self, path: Path) -> None:
        self._name = f"{path}.lock"
        self._descriptor = -1
        self._usable = sys.platform.startswith("linux")

    def occupied(self) -> bool:
        if self._descriptor < 0 and not self._open():
            return False
        try:
            held: int = _FLOCK.unpack(fcntl.fcntl(self._descriptor, _F_OFD_GETLK, _MINE))[0]
            return held != fcntl.F_UNLCK
        except OSError:
            self._usable = False
            return False

    def clears_before(self, until: float) -> bool:
        """Wait while somebody stands in line; whether nobody did any more before the time was up."""
        while self.occupied():
            if time.monotonic() >= until:
                return False
            time.sleep(WAIT_IN_LINE_S)
        return True

    def enter(self, until: float) -> None:
        """Stand in line until it is our turn, or until the time is up."""
        while self._usable and self._descriptor >= 0 and time.monotonic() < until:
            try:
                fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _MINE)
                return
            except OSError:
                time.sleep(WAIT_IN_LINE_S)

    def leave(self) -> None:
        if self._descriptor >= 0:
            try:
                fcntl.fcntl(self._descriptor, _F_OFD_SETLK, _NOBODYS)
            except OSError:
                self._usable = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> bool:
        if self._usable:
            try:
                self._descriptor = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            except OSError:
                self._usable = False
        return self._usable
