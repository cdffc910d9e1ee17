"""The file has one opener: what keeps an acknowledged commit from being lost behind SQLite's back.

POSIX locks belong to the process, not to the descriptor. Any `open`/`close` of the live file in this process, or a
second SQLite library beside ours, silently drops the locks by which other processes know that we are here. The last
of *them* to close then checkpoints and deletes the write-ahead log that we still write to, and `integrity_check`
finds nothing wrong. Three things prevent that:

- On Linux one descriptor per store and process holds an *open file description* read lock on SQLite's shared range.
  Such a lock survives the accidents above, and no other process can take the log away while it is held.
- Before every read and write, and after every commit before it is acknowledged, the log and its index (`-shm`) must
  still be the ones first seen, and the log must hold the frames that the index names. Otherwise `log_recovery` saves
  what the removed log holds, or refuses to go on.
- Opening the live file with Python's own `sqlite3` in this process is refused, by an audit hook.

The descriptors are closed only after the last SQLite connection of this process to the file is closed, because
closing them earlier would be the very accident they guard against.
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

_NEAR = 8  # how many descriptors below ours are tried before all of them are listed

_guards: dict[tuple[int, int], Guard] = {}
_inherited: set[tuple[int, int]] = set()  # files that our parent process has open, and so have we, unused
_guards_of_parents: list[Guard] = []  # never freed: that would close a descriptor, and drop locks of our own
_lock_files_on_their_way: set[int] = set()  # from one guard to the next, see `log_lock`
_lock = threading.RLock()  # a signal handler, or a collected store, may open or close one while it is held
_hooked = False


class Guard:
    """What this process holds on one database file, shared by all its stores on that file."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self.path = path
        self.identity = identity
        # If the file itself is a link, SQLite puts its log beside what that leads to.
        self._beside = os.path.realpath(path) if os.path.islink(path) else str(path)
        self.users = 0
        self.stores: weakref.WeakSet[ConnectionSet] = weakref.WeakSet()
        self.recovery = threading.Condition()  # held to begin or end a recovery, see `log_recovery`
        self.recovering: ConnectionSet | None = None
        self.entered_by = 0  # the thread that opens the file as the first of this process
        self.has_unsure_commit = False  # a store has committed and then found that the log was removed
        self.saved_all = False  # whether the last recovery has saved that, too
        self.log: ObservedLog | None = None
        self.index: int | None = None  # a descriptor of the log's index, `-shm`
        self._index_view: mmap.mmap | None = None  # what the index says, without a system call
        self._views: list[mmap.mmap] = []  # each has a descriptor, so they are kept as long as those
        self._file: int | None = None  # a descriptor of the database file
        self._descriptors: list[int] = []
        self._lock_files: list[int] = []  # those of them that no `LogLock` uses now
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether a store of this process uses the log: further connections of this process use the same index."""
        return self._is_held

    def hold(self) -> None:
        """Take the locks; call once the file is in WAL mode and its shared memory exists."""
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
            return None  # no shared memory yet, or no right to read: SQLite's own locks are then all there is
        self._descriptors.append(descriptor)
        if sys.platform.startswith("linux"):
            self._set(descriptor, fcntl.F_RDLCK, first, size)
        return descriptor

    @staticmethod
    def _set(descriptor: int, kind: int, first: int, size: int) -> None:
        try:
            fcntl.fcntl(descriptor, F_OFD_SETLK, pack_lock(kind, first, size))
        except OSError:
            pass  # a file system without OFD locks: the inode check below still stands

    def loosen(self) -> None:
        """Let go of the locks before a close, restore or change of journal; the descriptors stay open."""
        for descriptor in self._descriptors:
            self._set(descriptor, fcntl.F_UNLCK, 0, 0)
        self._is_held = False
        log, self.log = self.log, None
        if log is not None:
            log.close()

    def observe_log(self) -> None:
        """Note which log commits must go to from now on. Without a log beside the file there is nothing to note."""
        if self.log is None:
            try:
                index = None if self.index is None else identity_in(os.fstat(self.index))
                self.log = ObservedLog(self._beside, self.identity, index)
            except FileNotFoundError:
                pass

    def identify_files(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The log's index and the log that are in use here."""
        descriptors = self.index, None if self.log is None else self.log.descriptor
        index, log_file = map(identify, descriptors)
        return index, log_file

    def has_observed_files(self) -> bool:
        """Whether SQLite has the very log and index open that were observed: they may have been replaced in between.
        Where there is no /proc, that cannot be told."""
        if self.log is None:
            return True
        own = {self.log.descriptor, *self._descriptors}
        identities = self.log.identities
        # The kernel gives the lowest free number: those of SQLite are mostly just below ours.
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
        """Whether the log that commits go to is still the one other processes will read.

        `to_begin`: another check follows before anything is acknowledged. That one also looks up what leads to the
        folder.
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
        """Whether a log was in use here that is no longer in its place, or no longer whole."""
        return self.is_log_missing() or self.is_log_cut()

    def is_log_missing(self) -> bool:
        """Whether a log was in use here that is no longer in its place."""
        try:
            return self.log is not None and not self.log.is_in_place()
        except OSError:
            return True

    def examine_log(self) -> None:
        """Let the next check look into the log, before something in it is put into the file."""
        if self.log is not None:
            self.log.check.forget()

    def is_log_cut(self) -> bool:
        """Whether the log is in its place, but another program has emptied or shortened it."""
        observed, index = self.log, self.index
        try:
            if observed is None or index is None or not observed.check.is_cut(index):
                return False
            return observed.is_the_same() and observed.is_index_the_same()
        except OSError:  # removed or closed meanwhile
            return False

    @property
    def log_name(self) -> str:
        return f"{self._beside}-wal"

    @property
    def index_name(self) -> str:
        return f"{self._beside}-shm"

    def hold_descriptor(self, name: str, flags: int) -> int:
        """Open one of the store's files. It stays open until SQLite has closed all of them here."""
        descriptor = os.open(name, flags | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        return descriptor

    def hold_file(self) -> int:
        """A descriptor of the database file, the one that the lock is taken on later."""
        if self._file is None:
            self._file = self.hold_descriptor(str(self.path), os.O_RDONLY)
        return self._file

    def holds(self, descriptor: int) -> bool:
        return descriptor in self._descriptors

    def borrow_lock_file(self) -> int:
        """For `LogLock`: the database file, opened anew. -1 if it may not be written, or is another one by now."""
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
        """It is not closed with the others. `keep_lock_file` gives it to the next guard of the file."""
        if descriptor in self._descriptors:
            self._descriptors.remove(descriptor)
            _lock_files_on_their_way.add(descriptor)

    def note_own_write(self) -> None:
        """Whoever writes to the file after the log was removed is taken for somebody who does not know of the log. For
        all processes that have the removed log open, set the time of that to now."""
        if self.log is not None:
            try:
                os.fchmod(self.log.descriptor, os.fstat(self.log.descriptor).st_mode & 0o7777)
            except OSError as problem:
                log.debug("%s: the time of the removed log cannot be set: %s", self.path, problem)

    def is_in_place(self) -> bool:
        """Whether the file that is open here still has its name."""
        return identity_of(self._beside) == self.identity

    def is_store_exchanged(self) -> bool:
        """Whether there is no store where there was one, or another one beside the log of the first."""
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
            guard = _guards[identity] = Guard(path, identity)
            if identity not in _inherited:
                _warn_about_earlier_openers(path, identity)
        guard.users += 1
        return guard


def keep_lock_file(identity: tuple[int, int], descriptor: int) -> None:
    """It may not be closed while this process has the file open."""
    with _lock:
        _lock_files_on_their_way.discard(descriptor)
        guard = _guards.get(identity)
        if guard is not None:
            guard.give_lock_file_back(descriptor)
        else:
            fork_safety.unshare(descriptor)
            os.close(descriptor)


def recover_log_of(path: Path) -> None:
    """Before another store of this process opens the file: its connections must not meet another log than ours."""
    found = identity_of(path) if _guards else None
    guard = None if found is None else _guards.get(found)
    if guard is not None and guard.is_log_removed():
        for store in list(guard.stores):
            store.settle_log()
            return


def is_open(path: Path) -> bool:
    """Whether a store of this process has the file open."""
    return identity_of(path) in _guards


def list_endangered_stores() -> list[ConnectionSet]:
    """The stores of this process whose log was removed or cut."""
    found = [guard for guard in list(_guards.values()) if guard.is_log_removed()]
    return [store for guard in found for store in list(guard.stores)]


def begin_leaving(guard: Guard) -> bool:
    """A store is about to close its connections; True if it is the last on this file, and the locks are loosened."""
    with _lock:
        guard.users -= 1
        if guard.users:
            return False
        guard.loosen()
        return True


def finish_leaving(guard: Guard) -> None:
    """The last store's connections are closed: nothing of SQLite's can be hurt by closing our descriptors."""
    with _lock:
        if not guard.users:
            guard.close_descriptors()
            # It may have been left, and the file opened anew, meanwhile.
            if _guards.get(guard.identity) is guard:
                del _guards[guard.identity]


def forget_all() -> None:
    """In a forked child: nothing here is ours, and touching it would touch the parent's."""
    global _lock
    _lock = threading.RLock()  # another thread may have held it
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
    from urllib.parse import unquote, urlsplit  # only a script that is about to be refused pays for it

    return unquote(urlsplit(uri).path)


def _warn_about_earlier_openers(path: Path, identity: tuple[int, int]) -> None:
    """Say so if something in this process has the file open already: its close will drop SQLite's locks."""
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
    except OSError:  # the one by which the list was read
        return False
    return identity_in(status) == identity


os.register_at_fork(after_in_child=forget_all)
