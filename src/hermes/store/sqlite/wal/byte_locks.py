"""Open file description locks on single bytes of a file: those that SQLite uses, and one of our own.

Linux alone has them. They belong to a descriptor, not to the process.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510
"""Of the database file: locked by everybody who reads it."""
PENDING_BYTE = 0x40000000
"""Of the database file: locked for a moment by whoever opens it."""
IN_USE_BYTE = 128
"""Of `-shm`: locked by every connection. SQLite tells by it whether it is the first to open the file."""
F_OFD_SETLK = 37

_F_OFD_GETLK = 36
_FLOCK = struct.Struct("hhqqi")


def pack_lock(kind: int, first: int, size: int) -> bytes:
    """The argument for `fcntl` with `F_OFD_SETLK`."""
    return _FLOCK.pack(kind, os.SEEK_SET, first, size, 0)


def is_locked(descriptor: int, first: int, size: int) -> bool:
    """Whether another process, or another descriptor, holds a lock there. Unknown, and so False, except on Linux."""
    if not sys.platform.startswith("linux"):
        return False
    request = pack_lock(fcntl.F_WRLCK, first, size)
    try:
        kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, request))[0]
    except OSError:
        return False
    return kind != fcntl.F_UNLCK
