"""Open file description locks on single bytes of a file: bytes that SQLite locks, and one that only Hermes
locks.

Only Linux has these locks. They belong to a file descriptor, not to the process.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

SHARED_FIRST, SHARED_SIZE = 0x40000002, 510
"""The bytes of the database file that every reader locks: the first one, and their number."""
PENDING_BYTE = 0x40000000
"""The byte of the database file that a process locks briefly while it opens the file."""
IN_USE_BYTE = 128
"""The byte of `-shm` that every connection locks.

SQLite checks this lock to find out whether it is the first to open the file.
"""
F_OFD_SETLK = 37

_F_OFD_GETLK = 36
_FLOCK = struct.Struct("hhqqi")


def pack_lock(kind: int, first: int, size: int) -> bytes:
    """Return the packed `struct flock` that `fcntl` needs to set or query a lock on `size` bytes from the offset
    `first`.

    `kind` is the kind of the lock, such as `F_RDLCK`.
    """
    return _FLOCK.pack(kind, os.SEEK_SET, first, size, 0)


def is_locked(descriptor: int, first: int, size: int) -> bool:
    """Return whether another process, or another descriptor, has locked any of these bytes.

    This can only be determined on Linux. On other platforms the result is False.
    """
    if not sys.platform.startswith("linux"):
        return False
    request = pack_lock(fcntl.F_WRLCK, first, size)
    try:
        kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, request))[0]
    except OSError:
        return False
    return kind != fcntl.F_UNLCK
