"""The guard of a database file: it keeps SQLite from losing acknowledged commits without an error.

POSIX locks belong to the process, not to the descriptor. Any `open`/`close` of the live file in this process,
or a second SQLite library beside ours, silently drops the locks that show other processes that the file is in
use. When the last of the other processes closes the file, it checkpoints and deletes the write-ahead log,
although this process still writes to it. `integrity_check` finds nothing wrong afterwards. Three measures
prevent this:

- On Linux one descriptor per store and process holds an *open file description* read lock on SQLite's shared
  range. This lock is not dropped by another `close`. While it is held, no other process can delete the log.
- Before every read and write, and between a commit and its acknowledgement, the guard checks the log and its
  index (`-shm`). Both must still be the files that were observed first, and the log must contain the frames
  that the index names. If the check fails, `log_recovery` saves the content of the removed log or raises an
  error.
- An audit hook refuses to open the live file with Python's own `sqlite3` in this process.

The descriptors are closed only after the last SQLite connection of this process to the file is closed.
Closing them earlier would drop SQLite's locks.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from hermes import errors
from hermes.logs import get_logger
from hermes.store.sqlite import fork_safety
from hermes.store.sqlite.wal.byte_locks import F_OFD_SETLK, IN_USE_BYTE, SHARED_FIRST, SHARED_SIZE, pack_lock
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS, identify, identity_in, identity_of
from hermes.store.sqlite.wal.log_index import map_index
from hermes.store.sqlite.wal.observed_log import ObservedLog

if TYPE_CHECKING:
    from hermes.store.sqlite.connection_set import ConnectionSet

log = get_logger(__name__)

_NEAR = 8  # how many descriptors below ours are checked first, before all are listed

_guards: dict[tuple[int, int], Guard] = {}
_inherited: set[tuple[int, int]] = set()  # files that the parent process had open at the fork; unused here
_guards_of_parents: list[Guard] = []  # never freed: closing their descriptors would drop our own locks
_lock_files_on_their_way: set[int] = set()  # descriptors that pass from one guard to the next; see `log_lock`
_lock = threading.RLock()  # reentrant: a signal handler or a finaliser may open or close a store meanwhile
_hooked = False


class Guard:
    """The locks and descriptors of this process for one database file, shared by its stores on the file."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self.path = path
        self.identity = identity
        # If the path is a symbolic link, SQLite puts the log beside the link's target.
        self._beside = os.path.realpath(path) if os.path.islink(path) else str(path)
        self.users = 0
        self.stores: weakref.WeakSet[ConnectionSet] = weakref.WeakSet()
        self.recovery = threading.Condition()  # acquired to begin or end a recovery, see `log_recovery`
        self.recovering: ConnectionSet | None = None
        self.entered_by = 0  # id of the thread that is opening the file as the first of this process
        self.has_unsure_commit = False  # True if a store found after a commit that the log was removed
        self.saved_all = False  # whether the last recovery also saved that commit
        self.log: ObservedLog | None = None
        self.index: int | None = None  # a descriptor of the log's index, `-shm`
        self._index_view: mmap.mmap | None = None  # the header of the index, readable without a system call
        self._views: list[mmap.mmap] = []  # each has a descriptor, so they are closed with the descriptors
        self._file: int | None = None  # a descriptor of the database file
        self._descriptors: list[int] = []
        self._lock_files: list[int] = []  # the descriptors for `LogLock` that are not in use now
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether this guard holds its locks, because a store of this process uses the write-ahead log.

        If so, further connections of this process use the same index (`-shm`) of the log.
        """
        return self._is_held

    def hold(self) -> None:
        """Acquire this guard's locks on the database file and on the index (`-shm`) of its log. Do nothing if they
        are held.

        The database must be in WAL mode, and SQLite must already have created the index.
        """
        if self._is_held:
            return
        self._is_held = True
        if self._file is None:
            self._file = self._take(str(self.path), SHARED_FIRST, SHARED_SIZE)
        elif sys.platform.startswith("linux"):
            self._set(self._file, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
        index = self._take(f"{self._beside}-shm", IN_USE_BYTE, 1)
        if index is not None:
            self.index = index
            self._index_view = map_index(index)
            if self._index_view is not None:
                self._views.append(self._index_view)

    def _take(self, name: str, first: int, size: int) -> int | None:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            if problem.errno in NO_DESCRIPTORS:
                raise
            return None  # no `-shm` yet, or no permission to read: only SQLite's own locks protect the file
        self._descriptors.append(descriptor)
        if sys.platform.startswith("linux"):
            self._set(descriptor, fcntl.F_RDLCK, first, size)
        return descriptor

    @staticmethod
    def _set(descriptor: int, kind: int, first: int, size: int) -> None:
        try:
            fcntl.fcntl(descriptor, F_OFD_SETLK, pack_lock(kind, first, size))
        except OSError:
            pass  # the file system has no OFD locks: the identity check still works

    def loosen(self) -> None:
        """Release the locks of this guard before a close, a restore or a change of the journal mode.

        The descriptors of the database file and of the index stay open, because closing them would drop SQLite's
        locks.
        """
        for descriptor in self._descriptors:
            self._set(descriptor, fcntl.F_UNLCK, 0, 0)
        self._is_held = False
        log, self.log = self.log, None
        if log is not None:
            log.close()

    def observe_log(self) -> None:
        """Record the log that commits must go to from now on. Do nothing if the file has no log."""
        if self.log is None:
            try:
                index = None if self.index is None else identity_in(os.fstat(self.index))
                self.log = ObservedLog(self._beside, self.identity, index)
            except FileNotFoundError:
                pass

    def identify_files(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return the identities (device and inode) of the index (`-shm`) and of the write-ahead log that this process
        uses.

        An identity is None if this process has no such file open.
        """
        descriptors = self.index, None if self.log is None else self.log.descriptor
        index, log_file = map(identify, descriptors)
        return index, log_file

    def has_observed_files(self) -> bool:
        """Return whether SQLite has opened the same log and index that were observed.

        They may have been replaced between the open and the observation. Without /proc this cannot be
        determined, and the result is True.
        """
        if self.log is None:
            return True
        own = {self.log.descriptor, *self._descriptors}
        identities = self.log.identities
        # The kernel assigns the lowest free number, so SQLite's descriptors are mostly just below ours.
        last = self.log.descriptor
        near = [each for each in range(last - 1, max(-1, last - _NEAR), -1) if each not in own]
        if all(any(_is_open_on(each, identity) for each in near) for identity in identities):
            return True
        try:
            others = {int(name) for name in os.listdir("/proc/self/fd")} - own
        except OSError:
            return True
        return all(any(_is_open_on(each, identity) for each in others) for identity in identities)

    def is_log_in_place(self, *, to_begin: bool = False) -> bool:
        """Return whether other processes read the same log that commits go to.

        With `to_begin`, the folder is checked by its open descriptor only, which is faster. The caller must
        check again without `to_begin` before it acknowledges the commit, because only that check resolves the
        path anew.
        """
        try:
            if self.log is None:
                self.observe_log()
            log, index = self.log, self.index
            if log is None or not ((to_begin and log.is_folder_at_rest()) or log.is_in_place()):
                return False
            return index is None or not log.check.is_cut(index, self._index_view) or not self.is_log_cut()
        except OSError as problem:
            if problem.errno in NO_DESCRIPTORS:
                raise
            return False

    def is_log_removed(self) -> bool:
        """Return whether the write-ahead log in use was deleted, replaced, emptied or shortened."""
        return self.is_log_missing() or self.is_log_cut()

    def is_log_missing(self) -> bool:
        """Return whether the write-ahead log in use was deleted or replaced, so that it is no longer the file beside
        the store.
        """
        try:
            return self.log is not None and not self.log.is_in_place()
        except OSError:
            return True

    def examine_log(self) -> None:
        """Make the next check read the log itself, not only its length. Call this before a checkpoint."""
        if self.log is not None:
            self.log.check.forget()

    def is_log_cut(self) -> bool:
        """Return whether the log is in its place, but another program has emptied or shortened it."""
        observed, index = self.log, self.index
        try:
            if observed is None or index is None or not observed.check.is_cut(index):
                return False
            return observed.is_the_same() and observed.is_index_the_same()
        except OSError:  # removed or closed in the meantime
            return False

    @property
    def log_name(self) -> str:
        return f"{self._beside}-wal"

    @property
    def index_name(self) -> str:
        return f"{self._beside}-shm"

    def hold_descriptor(self, name: str, flags: int) -> int:
        """Open one of the store's files and return the descriptor.

        The descriptor stays open until all SQLite connections of this process are closed.
        """
        descriptor = os.open(name, flags | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        return descriptor

    def hold_file(self) -> int:
        """Return a descriptor of the database file, and keep it open. If `hold` is called later, it sets its lock
        through this descriptor.
        """
        if self._file is None:
            self._file = self.hold_descriptor(str(self.path), os.O_RDONLY)
        return self._file

    def holds(self, descriptor: int) -> bool:
        return descriptor in self._descriptors

    def borrow_lock_file(self) -> int:
        """Return a descriptor of the database file for `LogLock`.

        Return -1 if the file is not writable, or if there is another file at its path by now.
        """
        try:
            return self._lock_files.pop()
        except IndexError:
            pass
        try:
            descriptor = self.hold_descriptor(str(self.path), os.O_RDWR)
        except OSError as problem:
            if problem.errno in NO_DESCRIPTORS:
                raise
            return -1
        fork_safety.share(descriptor)
        return descriptor if identity_in(os.fstat(descriptor)) == self.identity else -1

    def give_lock_file_back(self, descriptor: int) -> None:
        if descriptor not in self._descriptors:
            self._descriptors.append(descriptor)
        self._lock_files.append(descriptor)

    def let_lock_file_go(self, descriptor: int) -> None:
        """Remove a lock descriptor from the descriptors that `close_descriptors` closes, so that it outlives this
        guard.

        `keep_lock_file` later passes the descriptor to the next guard of the same file.
        """
        if descriptor in self._descriptors:
            self._descriptors.remove(descriptor)
            _lock_files_on_their_way.add(descriptor)

    def note_own_write(self) -> None:
        """Set the change time of the removed log to now. Call this after a write to the database file.

        Other processes that have the log open compare the two times. If the database file was written after
        the change of the log, they assume that a program without this log wrote it. The new change time
        excludes the write of this process.
        """
        if self.log is not None:
            try:
                os.fchmod(self.log.descriptor, os.fstat(self.log.descriptor).st_mode & 0o7777)
            except OSError as problem:
                log.debug("%s: the change time of the removed log cannot be set: %s", self.path, problem)

    def is_in_place(self) -> bool:
        """Return whether the file at the path of the store is still the file that this guard has open."""
        return identity_of(self._beside) == self.identity

    def is_store_exchanged(self) -> bool:
        """Return whether the database file was deleted, moved or replaced while this guard has it open.

        A replacement counts only if the old write-ahead log is still beside the new file.
        """
        if self.is_in_place():
            return False
        try:
            return not os.path.exists(self._beside) or (self.log is not None and self.log.is_the_same())
        except OSError:
            return False

    def close_descriptors(self) -> None:
        self._index_view = None
        for view in self._views:
            view.close()
        self._views.clear()
        for descriptor in self._descriptors:
            fork_safety.unshare(descriptor)
            os.close(descriptor)
        self._descriptors.clear()
        self._lock_files.clear()
        self.index = self._file = None


def acquire_guard(path: Path) -> Guard:
    _refuse_second_libraries()
    status = os.stat(path)
    identity = identity_in(status)
    with _lock:
        guard = _guards.get(identity)
        if guard is None:
            if identity not in _inherited:
                _warn_about_earlier_openers(path, identity)
            guard = _guards[identity] = Guard(path, identity)
        guard.users += 1
        return guard


def keep_lock_file(identity: tuple[int, int], descriptor: int) -> None:
    """Pass `descriptor`, through which a log lock was set, to the current guard of the file `identity`. If there is
    no guard, close the descriptor.

    While a store of this process has the file open, the descriptor must not be closed, because that would drop
    SQLite's locks.
    """
    with _lock:
        _lock_files_on_their_way.discard(descriptor)
        guard = _guards.get(identity)
        if guard is not None:
            guard.give_lock_file_back(descriptor)
        else:
            fork_safety.unshare(descriptor)
            os.close(descriptor)


def recover_log_of(path: Path) -> None:
    """Recover a removed log before another store of this process opens the file.

    The connections of one process share one view of the index, so they must all use the same log.
    """
    found = identity_of(path) if _guards else None
    guard = None if found is None else _guards.get(found)
    if guard is not None and guard.is_log_removed():
        for store in list(guard.stores):
            store.settle_log()
            return


def is_open(path: Path) -> bool:
    """Return whether a store of this process has the file open."""
    return identity_of(path) in _guards


def list_endangered_stores() -> list[ConnectionSet]:
    """Return the open stores of this process whose write-ahead log was deleted, replaced, emptied or shortened."""
    found = [guard for guard in list(_guards.values()) if guard.is_log_removed()]
    return [store for guard in found for store in list(guard.stores)]


def begin_leaving(guard: Guard) -> bool:
    """Record that one store is about to close its connections to the file of `guard`.

    Return True if it is the last store of this process on the file. The locks of the guard are then released.
    """
    with _lock:
        guard.users -= 1
        if guard.users:
            return False
        guard.loosen()
        return True


def finish_leaving(guard: Guard) -> None:
    """If no store of this process uses the file of `guard` any more, close the descriptors of the guard and forget
    it.

    Call this after the store has closed its connections. By then, SQLite holds no lock that closing a descriptor
    could drop.
    """
    with _lock:
        if not guard.users:
            guard.close_descriptors()
            # Another thread may have completed the leave and opened the file again in the meantime.
            if _guards.get(guard.identity) is guard:
                del _guards[guard.identity]


def forget_all() -> None:
    """Forget every guard in a forked child.

    The guards belong to the parent, and using them would affect the parent.
    """
    global _lock
    _lock = threading.RLock()  # another thread may have held the old lock during the fork
    _inherited.update(_guards)
    _guards_of_parents.extend(_guards.values())
    _guards.clear()
    _lock_files_on_their_way.clear()


def _refuse_second_libraries() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_on_audit)


def _on_audit(event: str, args: tuple[object, ...]) -> None:
    if event != "sqlite3.connect" or not _guards:
        return
    try:
        name = os.fsdecode(args[0])  # type: ignore[arg-type]
        if name.startswith("file:"):
            name = _path_of_uri(name)
        status = os.stat(name)
    except (OSError, TypeError, ValueError):
        return
    if identity_in(status) in _guards:
        raise errors.make_error(
            errors.SecondLibrary,
            f"{name} is open here as a SessionDB; a second SQLite library in the same process would lose commits."
            " Use SessionDB.raw() for plain SQL, or close the SessionDB first",
        )


def _path_of_uri(uri: str) -> str:
    from urllib.parse import unquote, urlsplit  # imported only when an open is likely to be refused

    return unquote(urlsplit(uri).path)


def _warn_about_earlier_openers(path: Path, identity: tuple[int, int]) -> None:
    """Warn if other code in this process already has the file open.

    When that code closes the file, SQLite's locks are dropped.
    """
    try:
        descriptors = {int(name) for name in os.listdir("/proc/self/fd")} - _lock_files_on_their_way
    except OSError:
        return
    if not any(_is_open_on(descriptor, identity) for descriptor in descriptors):
        return
    warnings.warn(
        f"{path} was already open in this process when SessionDB opened it (another SQLite library?)."
        " Close it: two libraries on one file in one process can lose commits. SessionDB.raw() gives plain SQL",
        RuntimeWarning,
        stacklevel=6,
    )


def _is_open_on(descriptor: int, identity: tuple[int, int]) -> bool:
    try:
        status = os.fstat(descriptor)
    except OSError:  # the descriptor that listed the folder, closed by now
        return False
    return identity_in(status) == identity


os.register_at_fork(after_in_child=forget_all)
