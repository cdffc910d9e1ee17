"""Go on after the write-ahead log, or its index, was removed or replaced under an open store.

Connections that were open before still hold the removed log, and it may be the only place of acknowledged rows. So,
while the database file is in its place:

1. stop every store of this process on the file: no write, no read, no checkpoint;
2. checkpoint through a connection that holds the old log, down to an empty one;
3. close every connection of this process to the file: they share one view of the log's index;
4. open them again, on a new log.

A log that is in its place but was emptied or shortened is not checkpointed: what is missing would be written to the
file as garbage. If all was in the file already, a new log is begun. Otherwise the store fails.

A checkpoint is refused where it would overwrite the changes of somebody else who has begun a new log. If all is in the
file already, nothing is lost by that. Otherwise the store fails, and acknowledges nothing more.

Other processes that hold the old log find out the same way. They see that the index no longer describes their log, and
only open the file again.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import apsw

from hermes import errors
from hermes.logs import log_of
from hermes.store.sqlite import guard as guards
from hermes.store.sqlite.commit import Ticket
from hermes.store.sqlite.log_index import (
    bears_salts,
    count_outstanding_commits,
    describes,
    is_cut,
    read_index,
)

if TYPE_CHECKING:
    from hermes.store.sqlite.connections import SqliteConnections

log = log_of(__name__)

STOP_S = 5.0
"""How long to wait for the reads and writes of this process, and the readers of others, to end."""
STOP_FOR_READ_S = 0.1
"""The same where a read has found out: it can go on with what it has."""

OPEN_S = 3.0
"""How long to wait at opening for a program that just opens, closes or recovers the log itself."""
_NAP_S = 0.01

_IS_WAL, _JOURNAL_AT = b"\2\2", 18
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_PENDING_BYTE = 0x40000000  # who opens the file locks this byte for a moment
_IN_USE_BYTE, _CHECKPOINT_BYTE = 128, 121  # of -shm: held by every connection, and by who checkpoints
_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_FLOCK = struct.Struct("hhqqi")


class Rescue(NamedTuple):
    saved: bool
    """Everything that was committed through the old log is in the database file, or in the log in its place."""
    can_leave: bool
    """Nothing of the old log is needed any more: its connections may be closed."""
    lost: bool = False
    """Something that is only in the old log cannot be saved, and never will be."""
    by_us: bool = False
    """This process has emptied the log: it may begin a new one, though others still hold the old one."""


def restore_log(store: SqliteConnections, *, committed: bool = False, wait: float = STOP_S) -> bool:
    """Save what the removed log holds and open the file anew, for all stores of this process.

    To be called in the store's commit queue, outside a transaction. `committed` says that a transaction was committed
    after the log was last seen in its place. False if that transaction has to be made again.
    """
    guard = store.guard
    with guard.recovery:
        if guard.recovering is not None:
            _wait_while_recovering(guard, store)
            if store.guard is guard and guard.log_was_removed():
                raise _cannot_stop(store)
            return True
        guard.recovering = store
    stores = [store]
    try:
        until = time.monotonic() + wait
        stores = _stop_stores(guard, store, until)
        return _recover(guard, stores, until, committed=committed)
    finally:
        with guard.recovery:
            guard.recovering = None
            guard.recovery.notify_all()
        for each in stores:
            each.readers.release()


def save_before_close(store: SqliteConnections) -> errors.HermesError | None:
    """Save what a removed log holds before the store is closed. The error to raise if that is not possible."""
    guard = store.guard
    if store.read_only or not guard.is_in_place():
        return None
    try:
        rescue = _save(guard, store, time.monotonic() + STOP_S, committed=False)
    except apsw.Error as problem:
        log.error("%s: its write-ahead log was removed, and cannot be saved: %s", store.path, problem)
        return _lost(store)
    if rescue.saved:
        log.error("%s: its write-ahead log was removed; what it held was saved", store.path)
        store.leave_log_alone(not _is_ours(guard))
        return None
    store.leave_log_alone(True)
    return _explain_loss(store) if rescue.lost else _cannot_stop(store)


def note_cut_log(store: SqliteConnections) -> errors.HermesError:
    """A read has failed because the log was emptied or shortened: the error to raise."""
    index = read_index(store.guard.index)
    problem = _cut(store)
    if index is None or index.outstanding:
        store.stop_for_good(problem)
    return problem


def check_before_open(guard: guards.Guard) -> None:
    """Refuse a file that others have open with a log that is no longer beside it.

    SQLite would begin a new log without what is in the removed one. If the index is still there, it would look in the
    new log for what is in the old one.
    """
    if guard.users > 1 or not sys.platform.startswith("linux"):
        return
    held: dict[tuple[int, int], int] = {}
    until = time.monotonic() + OPEN_S
    store = guard.hold_file()
    while is_locked(store, _SHARED_FIRST, _SHARED_SIZE) and os.pread(store, 2, _JOURNAL_AT) == _IS_WAL:
        if _log_is_whole(guard, held) or not guard.is_in_place():
            return
        if time.monotonic() > until:
            raise errors.raised(
                errors.StoreBusy,
                f"the write-ahead log of {guard.path} was removed while another program has the store open. End that"
                " program, which saves what it holds, and try again; `hermes doctor` names it",
            )
        time.sleep(_NAP_S)


def _log_is_whole(guard: guards.Guard, held: dict[tuple[int, int], int]) -> bool:
    """Whether log and index are there and belong together. The files are kept open: see `guard`."""
    found: list[int | None] = []
    for name in (guard.index_name, guard.log_name):
        identity = guards.identity_of(name)
        try:
            if identity is not None and identity not in held:
                held[identity] = guard.hold_descriptor(name, os.O_RDONLY)
        except FileNotFoundError:
            identity = None
        except PermissionError:  # then SQLite cannot use it either, and says so
            return True
        found.append(None if identity is None else held[identity])
    index_file, log_file = found
    if index_file is None:
        return False
    index = read_index(index_file)
    if index is None or not index.frames:
        return True  # nothing is in the log
    return log_file is not None and not is_cut(index_file, log_file)


# -------------------------------------------------------------------- stopping this process


def _wait_while_recovering(guard: guards.Guard, store: SqliteConnections) -> None:
    """Let another store of this process close and open our connections. `guard.recovery` is held."""
    store.is_stopped = True
    guard.recovery.notify_all()
    try:
        while guard.recovering is not None:
            guard.recovery.wait()
    finally:
        store.is_stopped = False


def _stop_stores(guard: guards.Guard, leader: SqliteConnections, until: float) -> list[SqliteConnections]:
    """Keep the other stores of this process from writing. They come to a stop in their own commit queues."""

    def stop(store: SqliteConnections) -> None:
        def wait(_: object) -> None:
            with guard.recovery:
                if guard.recovering is leader and not store.is_closed:
                    _wait_while_recovering(guard, store)

        store.queue.do(Ticket(wait, outside=True))

    others = [store for store in guard.stores if store is not leader and not store.is_closed]
    for store in others:
        threading.Thread(target=stop, args=(store,), name="hermes-log-recovery", daemon=True).start()
    with guard.recovery:
        while any(not store.is_stopped and not store.is_closed for store in others):
            if (left := until - time.monotonic()) <= 0:
                raise _cannot_stop(leader)
            guard.recovery.wait(left)
    return [leader, *(store for store in others if not store.is_closed)]


def _recover(guard: guards.Guard, stores: list[SqliteConnections], until: float, *, committed: bool) -> bool:
    for store in stores:
        store.renew_checkpointer()
    idle = [store.stop_reads(until) for store in stores]  # every one of them, also after one that is not
    is_idle = all(idle)
    in_place = guard.is_in_place()
    writing = next((store for store in stores if not store.read_only), None)
    rescue = Rescue(saved=not committed, can_leave=True)
    if writing is not None and in_place:
        with _newcomers_kept_out(guard):
            rescue = _save(guard, writing, until, committed=committed)
            if is_idle and rescue.can_leave:
                _close(guard, stores, in_place)
    elif is_idle:
        _close(guard, stores, in_place)
    if rescue.lost:
        problem = _explain_loss(stores[0])
        for store in stores:
            store.stop_for_good(problem)
            store.leave_log_alone(True)
        raise problem
    if not (is_idle and rescue.can_leave):
        if rescue.saved and committed:
            return True  # the next write tries again to begin a new log
        raise _cannot_stop(stores[0])
    if writing is not None:
        log.error("%s: another program took its write-ahead log away; what it held was saved", stores[0].path)
    for store in stores:
        store.reopen(recovered=rescue.by_us)
    return rescue.saved


def _close(guard: guards.Guard, stores: list[SqliteConnections], in_place: bool) -> None:
    alone = in_place and _is_ours(guard)
    for store in stores:
        store.leave_log_alone(not alone)
        store.close_connections()


# -------------------------------------------------------------------- saving what the log holds


def _save(guard: guards.Guard, store: SqliteConnections, until: float, *, committed: bool) -> Rescue:
    """Try until it is done, until it turns out that it cannot or need not be done, or until the time is up."""
    while True:
        rescue = _decide(guard, store, committed=committed)
        if rescue is None:
            try:
                # Somebody else may be at it, for which SQLite does not wait.
                busy, frames, moved = store.checkpoint_all(max(0.0, until - time.monotonic()))
                rescue = Rescue(saved=not busy or 0 <= frames == moved, can_leave=not busy, by_us=not busy)
                _note_own_write(guard)
            except apsw.IOError:  # another process has just emptied this log and begun a new one
                if _decide(guard, store, committed=committed) is None:
                    raise
                continue
        if rescue.can_leave or rescue.lost or time.monotonic() >= until:
            return rescue
        time.sleep(_NAP_S)


def _decide(guard: guards.Guard, store: SqliteConnections, *, committed: bool) -> Rescue | None:
    """What is to be done about the old log; None if it is to be checkpointed."""
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None:
        return None
    if guard.log_was_cut():
        # With nothing left to move, a checkpoint only begins the log anew.
        return Rescue(saved=False, can_leave=False, lost=True) if index.outstanding else None
    ours = describes(index, observed.descriptor)
    nothing_to_do = Rescue(saved=True, can_leave=True)
    if _is_same(guard.index_name, guard.index):
        if not ours and bears_salts(index, observed.descriptor):
            # A program that did not notice has written on behind our frames, into a file that lacks them.
            return Rescue(saved=False, can_leave=False, lost=True)
        # Everybody shares this index. If it describes another log, somebody has saved ours and begun a new one.
        return None if ours and index.frames else nothing_to_do
    if not index.outstanding:
        return nothing_to_do
    if _is_same(guard.log_name, observed.descriptor):  # only the index is gone
        if not os.path.exists(guard.index_name):
            return None
        return nothing_to_do if ours else Rescue(saved=False, can_leave=True)
    if not ours:  # somebody had saved it and begun a new log before the index was removed, too
        return nothing_to_do
    if committed and count_outstanding_commits(index, observed.descriptor) == 1:
        return Rescue(saved=False, can_leave=True)  # all but this one was saved by whoever removed the log
    if _has_successor(guard, store, observed.descriptor, committed=committed):
        # Unless that is another process that holds the removed log, too, and is just saving it.
        is_being_saved = guard.index is not None and is_locked(guard.index, _CHECKPOINT_BYTE, 1)
        lost = not is_being_saved and read_index(guard.index) == index
        return Rescue(saved=False, can_leave=False, lost=lost)
    return None


def _has_successor(guard: guards.Guard, store: SqliteConnections, observed: int, *, committed: bool) -> bool:
    """Whether somebody has opened the file since, without the removed log, and may have changed it."""
    try:
        if os.stat(guard.log_name).st_size:
            return True
    except FileNotFoundError:
        pass
    if _index_in_use(guard.index_name):
        return True
    # Whoever wrote to the file after the log had lost its name did not know of the log.
    return not committed and os.stat(store.path).st_mtime_ns > os.fstat(observed).st_ctime_ns


def _note_own_write(guard: guards.Guard) -> None:
    """Set the time that `_has_successor` compares with to now, for all processes that hold the removed log."""
    if guard.log is not None:
        try:
            os.fchmod(guard.log.descriptor, os.fstat(guard.log.descriptor).st_mode & 0o7777)
        except OSError as problem:
            log.debug("%s: the time of the removed log cannot be set: %s", guard.path, problem)


def _index_in_use(name: str) -> bool:
    """Of an index that is not ours: no connection of this process holds a lock on it that closing would drop."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return is_locked(descriptor, _IN_USE_BYTE, 1)
    finally:
        os.close(descriptor)


def is_locked(descriptor: int, first: int, size: int) -> bool:
    """Whether another process, or another descriptor, holds a lock there. Unknown, and so False, but on Linux."""
    if not sys.platform.startswith("linux"):
        return False
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, size, 0)
    try:
        kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, wanted))[0]
    except OSError:
        return False
    return kind != fcntl.F_UNLCK


@contextmanager
def _newcomers_kept_out(guard: guards.Guard) -> Iterator[None]:
    """Nobody opens the file meanwhile: SQLite takes a lock on this byte for that, and waits."""
    descriptor = None
    if sys.platform.startswith("linux"):
        try:
            descriptor = guard.hold_descriptor(str(guard.path), os.O_RDWR)
            lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PENDING_BYTE, 1, 0)
            fcntl.fcntl(descriptor, _F_OFD_SETLK, lock)
        except OSError as problem:
            log.debug("%s: opening it cannot be prevented: %s", guard.path, problem)
    try:
        yield
    finally:
        if descriptor is not None and guard.holds(descriptor):
            unlock = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, _PENDING_BYTE, 1, 0)
            fcntl.fcntl(descriptor, _F_OFD_SETLK, unlock)


def is_readable(guard: guards.Guard) -> bool:
    """Whether connections that hold the removed log still read what everybody else would."""
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None or not guard.is_in_place():
        return False
    if not describes(index, observed.descriptor) or guard.log_was_cut():
        return False
    return (
        _is_same(guard.index_name, guard.index)
        or index.frames > 0  # whoever saves what is in the log empties it
        or not os.path.exists(guard.index_name)
    )


def _is_ours(guard: guards.Guard) -> bool:
    """Whether nobody else has begun another log: then the last connection may clean up as usual."""
    index = read_index(guard.index)
    return index is not None and not index.frames and _is_same(guard.index_name, guard.index)


def _is_same(name: str, descriptor: int | None) -> bool:
    if descriptor is None:
        return False
    found = os.fstat(descriptor)
    return guards.identity_of(name) == (found.st_dev, found.st_ino)


# -------------------------------------------------------------------- errors


def _cannot_stop(store: SqliteConnections) -> errors.HermesError:
    return errors.raised(
        errors.StoreFailed,
        f"the write-ahead log of {store.path} was removed while it was open here. To save what it held, every read of"
        " the store has to end, and one has not; nothing was written. Try again when it has",
    )


def _explain_loss(store: SqliteConnections) -> errors.HermesError:
    return _cut(store) if store.guard.log_was_cut() else _lost(store)


def _cut(store: SqliteConnections) -> errors.HermesError:
    return errors.raised(
        errors.StoreFailed,
        f"another program emptied or shortened the write-ahead log of {store.path}: the last changes made here are"
        " lost, and nothing more is written. Close every SessionDB on that file, in every process, and open it again;"
        " `hermes sessions verify` tells whether what was in the file before is whole",
    )


def _lost(store: SqliteConnections) -> errors.HermesError:
    return errors.raised(
        errors.StoreFailed,
        f"another program took the write-ahead log of {store.path} away, and the store was changed without it: the last"
        " changes made here cannot be put into the file. Close every SessionDB of this process on that file and open"
        " it again",
    )
