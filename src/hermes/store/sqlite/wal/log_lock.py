"""Which processes may begin or enter a write-ahead log, and when: a lock that does not depend on the log or its index.

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

_BYTE = 0x40000200  # the first behind those that SQLite locks, on a page that it does not use
_SHARED, _EXCLUSIVE, _NONE = (
    pack_lock(kind, _BYTE, 1) for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK)
)
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)
NAP_S = 0.0005
_ENTRY_NAP_S = 0.01
OPEN_S = 3.0
"""How long to wait at opening for a program that just opens, closes or recovers the log itself."""
_IS_WAL, _JOURNAL_AT = b"\2\2", 18
FoundFiles = tuple[Identity | None, Identity | None]
"""The log's index and the log."""


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


# ---------------------------------------------------------------- entering the log


def enter_log(guard: file_guard.Guard, lock: LogLock, *, joins: bool) -> FoundFiles | None:
    """Before the first store of this process opens the file: keep other processes from writing, and from opening it.

    The index and the log that others use now, if any: SQLite has to open these very files. Those who write need not
    stop if it `joins` them. A file that others have open with a log that is no longer beside it is refused: SQLite
    would begin a new log without what is in the removed one. If the index is still there, it would look in the new log
    for what is in the old one.
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
            raise apsw.BusyError("other programs write")
        guard.entered_by = threading.get_ident()
        if not sys.platform.startswith("linux"):
            return None
        if not _is_in_use(guard) or not guard.is_in_place():
            if is_alone:
                return None
            raise apsw.BusyError("another program opens or closes it")
        found = _find_files(guard, descriptors)
        if found is not None:
            return found
        lock.release()  # so that whoever holds the removed log can save it
        if time.monotonic() > until:
            raise errors.make_error(
                errors.StoreBusy,
                f"the write-ahead log of {guard.path} was removed while another program has the store open. End that"
                " program, which saves what it holds, and try again; `hermes doctor` names it",
            )
        time.sleep(_ENTRY_NAP_S)


def end_entry(guard: file_guard.Guard, lock: LogLock) -> None:
    lock.close()
    if guard.entered_by == threading.get_ident():
        guard.entered_by = 0


def claim_lock(lock: LogLock, seconds: float) -> None:
    if not lock.claim_before(time.monotonic() + seconds):
        raise apsw.BusyError("other programs write")


def _is_in_use(guard: file_guard.Guard) -> bool:
    """Whether others have the file open with a write-ahead log."""
    store = guard.hold_file()
    return is_locked(store, SHARED_FIRST, SHARED_SIZE) and os.pread(store, 2, _JOURNAL_AT) == _IS_WAL


def _hold_open(guard: file_guard.Guard, name: str, descriptors: dict[Identity, int]) -> int | None:
    """A descriptor of the file; None if there is none. It is kept open: see `file_guard`."""
    identity = identity_of(name)
    try:
        if identity is not None and identity not in descriptors:
            descriptors[identity] = guard.hold_descriptor(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    return None if identity is None else descriptors[identity]


def _find_files(guard: file_guard.Guard, descriptors: dict[Identity, int]) -> FoundFiles | None:
    """Index and log, if both are there, belong together and are in use. An empty log need not be there."""
    try:
        index_file, log_file = (
            _hold_open(guard, name, descriptors) for name in (guard.index_name, guard.log_name)
        )
    except PermissionError:  # then SQLite cannot use it either, and says so
        return None, None
    if index_file is None or not is_locked(index_file, IN_USE_BYTE, 1):
        return None
    index = read_index(index_file)
    is_empty = index is None or not index.frames
    if not is_empty and (log_file is None or is_cut(index_file, log_file)):
        return None
    return identify(index_file), identify(log_file)
