"""A lock between processes. It controls which process may create or open a write-ahead log.

SQLite keeps its locks between processes in the log's index (`-shm`). If that file is removed, the next opener
creates a new one. Two processes could then write at the same time, each with its own index, and damage the
file. To prevent this, every Hermes process also locks one byte of the database file that SQLite does not use:

- shared, while it commits or checkpoints. Several processes may do this at once; SQLite's own locks order
  them.
- exclusively, while it opens the store or saves a removed log. Only these operations can create a new index.

After a process has acquired the lock, it checks that the log and the index are still the files it uses. Until
it releases the lock, no other Hermes process can use different files. The lock belongs to the open file
description. So it ends with the process, and each store of a process has its own lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable

import apsw

from hermes import errors
from hermes.store.sqlite.wal import file_guard
from hermes.store.sqlite.wal.byte_locks import (
    F_OFD_SETLK,
    IN_USE_BYTE,
    SHARED_FIRST,
    SHARED_SIZE,
    is_locked,
    pack_lock,
)
from hermes.store.sqlite.wal.file_guard import Guard, keep_lock_file
from hermes.store.sqlite.wal.file_identity import Identity, identify, identity_of
from hermes.store.sqlite.wal.log_index import is_cut, read_index

_BYTE = 0x40000200  # the first byte after SQLite's lock bytes, on a page that SQLite does not use
_SHARED, _EXCLUSIVE, _NONE = (
    pack_lock(kind, _BYTE, 1) for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK)
)
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)
NAP_S = 0.0005
_ENTRY_NAP_S = 0.01
OPEN_S = 3.0
"""How long opening waits for another program that is opening or closing the store, or recovering its log."""
_IS_WAL, _JOURNAL_AT = b"\2\2", 18
FoundFiles = tuple[Identity | None, Identity | None]
"""The identities of the log's index and of the log."""


class LogLock:
    """The log lock of one store.

    The lock state is kept only in the kernel, so any thread can release the lock at any time, more than once.
    Every request is granted if the store has no write-ahead log, if the platform is not Linux, or if the file
    is not writable.
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
        """Try once to acquire the log lock exclusively, and return whether this succeeded. If it failed, a shared
        lock that this store held before is kept.
        """
        return self._set(_EXCLUSIVE)

    def claim_before(self, until: float) -> bool:
        return wait_for(self.claim, until)

    def release(self) -> None:
        self._set(_NONE)

    def outlive_guard(self) -> None:
        """Keep the log lock even while all connections of this process to the file are closed and opened again, with
        a new guard.
        """
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


# ---------------------------------------------------------------- entering the log


def enter_log(guard: file_guard.Guard, lock: LogLock, *, joins: bool) -> FoundFiles | None:
    """Lock out other writers and openers before the first store of this process opens the file.

    Return the index and the log that other processes use now, so that the caller can check that SQLite opened
    the same files. Return None if no other process uses any. With `joins`, a shared lock is accepted if the
    exclusive one is not available. Other processes can then continue to write.

    Raise `StoreBusy` if other processes have the file open with a log that is no longer beside it. SQLite
    would otherwise create a new log without the content of the removed one. If the index is still in place,
    SQLite would even look for the old frames in the new log.
    """
    if guard.is_held or guard.stores:
        return None
    if guard.entered_by == threading.get_ident():
        raise errors.make_error(
            errors.StoreBusy,
            f"{guard.path} is being opened by the call that a signal handler interrupted. Open it after the handler has"
            " returned",
        )
    descriptors: dict[Identity, int] = {}
    until = time.monotonic() + OPEN_S
    while True:
        is_alone = lock.claim()
        if not is_alone and not (joins and lock.share()):
            raise apsw.BusyError("another program is writing")
        guard.entered_by = threading.get_ident()
        if not sys.platform.startswith("linux"):
            return None
        if not _is_in_use(guard) or not guard.is_in_place():
            if is_alone:
                return None
            raise apsw.BusyError("another program is opening or closing the store")
        found = _find_files(guard, descriptors)
        if found is not None:
            return found
        lock.release()  # so that the process with the removed log open can save it
        if time.monotonic() > until:
            raise errors.make_error(
                errors.StoreBusy,
                f"the write-ahead log of {guard.path} was removed while another program has the store open. End that"
                " program, which saves the content of the log, and try again; `hermes doctor` names it",
            )
        time.sleep(_ENTRY_NAP_S)


def end_entry(guard: file_guard.Guard, lock: LogLock) -> None:
    lock.close()
    if guard.entered_by == threading.get_ident():
        guard.entered_by = 0


def claim_lock(lock: LogLock, seconds: float) -> None:
    if not lock.claim_before(time.monotonic() + seconds):
        raise apsw.BusyError("another program is writing")


def _is_in_use(guard: file_guard.Guard) -> bool:
    """Return whether other processes have the file open with a write-ahead log."""
    store = guard.hold_file()
    return is_locked(store, SHARED_FIRST, SHARED_SIZE) and os.pread(store, 2, _JOURNAL_AT) == _IS_WAL


def _hold_open(guard: file_guard.Guard, name: str, descriptors: dict[Identity, int]) -> int | None:
    """Return a descriptor of the file `name`, or None if the file does not exist.

    `descriptors` contains the files that were opened before, by identity, so that each file is opened only once.
    `guard` keeps the descriptor open, because closing it could drop SQLite's locks.
    """
    identity = identity_of(name)
    try:
        if identity is not None and identity not in descriptors:
            descriptors[identity] = guard.hold_descriptor(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    return None if identity is None else descriptors[identity]


def _find_files(guard: file_guard.Guard, descriptors: dict[Identity, int]) -> FoundFiles | None:
    """Return the identities of the index and the log if both exist, belong together and are in use.

    Otherwise return None. The log may be missing if the index names no frames.
    """
    try:
        index_file, log_file = (
            _hold_open(guard, name, descriptors) for name in (guard.index_name, guard.log_name)
        )
    except PermissionError:  # SQLite cannot use the file either, and reports the error
        return None, None
    if index_file is None or not is_locked(index_file, IN_USE_BYTE, 1):
        return None
    index = read_index(index_file)
    is_empty = index is None or not index.frames
    if not is_empty and (log_file is None or is_cut(index_file, log_file)):
        return None
    return identify(index_file), identify(log_file)
