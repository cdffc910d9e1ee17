"""Go on after the write-ahead log, or its index, was removed or replaced under an open store.

Connections that were open before still hold the removed log, and it may be the only place of acknowledged rows. So,
while the database file is in its place:

1. stop every store of this process on the file: no write, no read, no checkpoint;
2. keep other processes from writing, and from opening the file, by `log_lock`;
3. checkpoint through a connection that holds the old log, down to an empty one;
4. close every connection of this process to the file: they share one view of the log's index;
5. open them again, on a new log, before the lock is released.

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
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import apsw

from hermes import errors
from hermes.logs import get_logger
from hermes.store.sqlite.group_commit import Ticket
from hermes.store.sqlite.wal import file_guard
from hermes.store.sqlite.wal.byte_locks import F_OFD_SETLK, IN_USE_BYTE, PENDING_BYTE, is_locked, pack_lock
from hermes.store.sqlite.wal.file_identity import identity_of
from hermes.store.sqlite.wal.log_index import (
    LogIndex,
    count_outstanding_commits,
    has_salts,
    is_index_of_log,
    read_index,
)
from hermes.store.sqlite.wal.log_lock import LogLock

if TYPE_CHECKING:
    from hermes.store.sqlite.connection_set import ConnectionSet

log = get_logger(__name__)

STOP_S = 5.0
"""How long to wait for the reads and writes of this process, and the readers of others, to end."""
STOP_FOR_READ_S = 0.1
"""The same where a read has found out: it can go on with what it has."""

_NAP_S = 0.01


class Rescue(NamedTuple):
    saved: bool
    """Everything that was committed through the old log is in the database file, or in the log in its place."""
    can_leave: bool
    """Nothing of the old log is needed any more: its connections may be closed."""
    lost: bool = False
    """Something that is only in the old log cannot be saved, and never will be."""
    by_us: bool = False
    """This process has emptied the log: it may begin a new one, though others still hold the old one."""


def restore_log(store: ConnectionSet, *, committed: bool = False, wait: float = STOP_S) -> bool:
    """Save what the removed log holds and open the file anew, for all stores of this process.

    To be called in the store's commit queue, outside a transaction. `committed` says that a transaction was committed
    after the log was last seen in its place. False if that transaction has to be made again.
    """
    guard = store.guard
    with guard.recovery:
        if guard.recovering is not None:
            guard.has_unsure_commit = guard.has_unsure_commit or committed
            _wait_while_recovering(guard, store)
            if store.guard is guard and guard.is_log_removed():
                raise _cannot_stop(store, committed=committed)
            return guard.saved_all
        guard.recovering = store
        guard.has_unsure_commit, guard.saved_all = committed, False
    stores, lock = [store], None
    try:
        until = time.monotonic() + wait
        stores = _stop_stores(guard, store, until)
        for each in stores:
            each.renew_checkpointer()
        lock = LogLock(guard)
        rescue = _leave_log(guard, stores, lock, until, committed=guard.has_unsure_commit)
        guard.saved_all = rescue.saved
        if rescue.can_leave:
            if not rescue.by_us:  # others may have begun a new log since, so that it is opened like any other
                lock.release()
            for each in stores:
                each.reopen(lock if rescue.by_us else None)
        return rescue.saved
    finally:
        if lock is not None:
            lock.close()
        with guard.recovery:
            guard.recovering = None
            guard.recovery.notify_all()
        for each in stores:
            each.readers.release()


def save_before_close(store: ConnectionSet) -> errors.HermesError | None:
    """Save what a removed log holds before the store is closed. The error to raise if that is not possible."""
    guard = store.guard
    if store.read_only or not guard.is_in_place():
        return None
    lock = None
    try:
        lock = LogLock(guard)
        until = time.monotonic() + STOP_S
        if lock.claim_before(until):
            rescue = _save(guard, store, until, committed=False)
        else:
            rescue = Rescue(saved=False, can_leave=False)
    except (apsw.Error, OSError) as problem:
        store.leave_log_alone(True)
        return _cannot_save(store, problem)
    finally:
        if lock is not None:
            lock.close()
    if rescue.saved:
        log.error("%s: its write-ahead log was removed; what it held was saved", store.path)
        store.leave_log_alone(not _is_ours(guard))
        return None
    store.leave_log_alone(True)
    return _explain_loss(store) if rescue.lost else _cannot_stop(store)


def note_cut_log(store: ConnectionSet) -> errors.HermesError:
    """A read has failed because the log was emptied or shortened: the error to raise."""
    index = read_index(store.guard.index)
    problem = _make_cut_error(store)
    if index is None or index.outstanding:
        store.stop_for_good(problem)
    return problem


def drop_foreign_log(guard: file_guard.Guard) -> None:
    """Empty a log that another program has written over with that of another store. SQLite would put it into the file
    when the store is next opened. The index tells the two apart: when SQLite begins a log anew, it names no frames."""
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None or not index.frames or not guard.is_log_cut():
        return
    try:
        if os.fstat(observed.descriptor).st_size and not has_salts(index, observed.descriptor):
            os.truncate(guard.log_name, 0)
    except OSError as problem:
        log.error("%s: the log of another store is in the place of its own: %s", guard.path, problem)


# -------------------------------------------------------------------- stopping this process


def _wait_while_recovering(guard: file_guard.Guard, store: ConnectionSet) -> None:
    """Let another store of this process close and open our connections. `guard.recovery` is held."""
    store.is_stopped = True
    guard.recovery.notify_all()
    try:
        while guard.recovering is not None:
            guard.recovery.wait()
    finally:
        store.is_stopped = False


def _stop_stores(guard: file_guard.Guard, leader: ConnectionSet, until: float) -> list[ConnectionSet]:
    """Keep the other stores of this process from writing. They come to a stop in their own commit queues."""

    def stop(store: ConnectionSet) -> None:
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


def _leave_log(
    guard: file_guard.Guard, stores: list[ConnectionSet], lock: LogLock, until: float, *, committed: bool
) -> Rescue:
    """Save what the log holds and close every connection. If that is not possible now, everything that is committed
    through the log is saved at least; otherwise an error is raised."""
    idle = [store.stop_reads(until) for store in stores]  # every one of them, also after one that is not
    is_idle = all(idle)
    in_place = guard.is_in_place()
    writing = next((store for store in stores if not store.read_only), None)
    rescue = Rescue(saved=not committed, can_leave=True)
    if writing is not None and in_place:
        if lock.claim_before(until):
            with _keep_newcomers_out(guard):
                rescue = _save(guard, writing, until, committed=committed)
                if is_idle and rescue.can_leave:
                    lock.outlive_guard()
                    _close(guard, stores, in_place)
        else:
            rescue = Rescue(saved=False, can_leave=False)
    elif is_idle:
        _close(guard, stores, in_place)
    if rescue.lost:
        problem = _explain_loss(stores[0])
        drop_foreign_log(guard)
        for store in stores:
            store.stop_for_good(problem)
            store.leave_log_alone(True)
        raise problem
    if not (is_idle and rescue.can_leave):
        if rescue.saved and committed:
            return rescue._replace(can_leave=False)  # the next write tries again to begin a new log
        raise _cannot_stop(stores[0], committed=committed)
    if writing is not None:
        log.error("%s: another program took its write-ahead log away; what it held was saved", stores[0].path)
    return rescue


def _close(guard: file_guard.Guard, stores: list[ConnectionSet], in_place: bool) -> None:
    alone = in_place and _is_ours(guard)
    for store in stores:
        store.leave_log_alone(not alone)
        store.close_connections()


# -------------------------------------------------------------------- saving what the log holds


def _save(guard: file_guard.Guard, store: ConnectionSet, until: float, *, committed: bool) -> Rescue:
    """Try until it is done, until it turns out that it cannot or need not be done, or until the time is up."""
    while True:
        rescue = _decide(guard, store, committed=committed)
        if rescue is None:
            try:
                # Somebody else may be at it, for which SQLite does not wait.
                busy, frames, moved = store.checkpoint_all(max(0.0, until - time.monotonic()))
                rescue = Rescue(saved=not busy or 0 <= frames == moved, can_leave=not busy, by_us=not busy)
                guard.note_own_write()
            except apsw.IOError:  # another process has just emptied this log and begun a new one
                if _decide(guard, store, committed=committed) is None:
                    raise
                continue
        if rescue.can_leave or rescue.lost or time.monotonic() >= until:
            return rescue
        time.sleep(_NAP_S)


def _decide(guard: file_guard.Guard, store: ConnectionSet, *, committed: bool) -> Rescue | None:
    """What is to be done about the old log; None if it is to be checkpointed."""
    guard.examine_log()
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None:
        return None
    if guard.is_log_cut():
        # With nothing left to move, a checkpoint only begins the log anew.
        return Rescue(saved=False, can_leave=False, lost=True) if index.outstanding else None
    ours = is_index_of_log(index, observed.descriptor)
    nothing_to_do = Rescue(saved=True, can_leave=True)
    if _is_same(guard.index_name, guard.index):
        if not ours and has_salts(index, observed.descriptor):
            # A program that did not notice has written on behind our frames, into a file that lacks them.
            return Rescue(saved=False, can_leave=False, lost=True)
        # Everybody shares this index. If it describes another log, somebody has saved ours and begun a new one.
        return None if ours and index.frames else nothing_to_do
    if not index.outstanding:
        return nothing_to_do
    if _is_same(guard.log_name, observed.descriptor):  # only the index is gone
        if not _index_in_use(guard.index_name):
            return None
        # Whoever made the new index saw everything that was acknowledged before.
        return Rescue(saved=not committed or _has_commit(guard, index), can_leave=True)
    if not ours:  # somebody had saved it and begun a new log before the index was removed, too
        return nothing_to_do
    if not _has_successor(guard, store, observed.descriptor):
        return None
    if committed and count_outstanding_commits(index, observed.descriptor) == 1:
        return Rescue(saved=False, can_leave=True)  # all but this one was saved by whoever removed the log
    return Rescue(saved=False, can_leave=False, lost=True)


def _has_commit(guard: file_guard.Guard, index: LogIndex) -> bool:
    """Whether the index in its place names the last commit that was made by ours, into the same log."""
    descriptor = guard.hold_descriptor(guard.index_name, os.O_RDONLY)
    other = read_index(descriptor)
    return other is not None and other.salts == index.salts and other.frames >= index.frames


def _has_successor(guard: file_guard.Guard, store: ConnectionSet, observed: int) -> bool:
    """Whether somebody has opened the file since, without the removed log, and may have changed it."""
    try:
        if os.stat(guard.log_name).st_size:
            return True
    except FileNotFoundError:
        pass
    if _index_in_use(guard.index_name):
        return True
    # Whoever wrote to the file after the log had lost its name did not know of the log.
    return os.stat(store.path).st_mtime_ns > os.fstat(observed).st_ctime_ns


def _index_in_use(name: str) -> bool:
    """Of an index that is not ours: no connection of this process holds a lock on it that closing would drop. One that
    is not in use, SQLite makes anew. Where locks cannot be asked for, any is taken to be in use."""
    if not sys.platform.startswith("linux"):
        return os.path.exists(name)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return is_locked(descriptor, IN_USE_BYTE, 1)
    finally:
        os.close(descriptor)


@contextmanager
def _keep_newcomers_out(guard: file_guard.Guard) -> Iterator[None]:
    """Nobody opens the file meanwhile: SQLite takes a lock on this byte for that, and waits."""
    descriptor = None
    if sys.platform.startswith("linux"):
        try:
            descriptor = guard.hold_descriptor(str(guard.path), os.O_RDWR)
            lock = pack_lock(fcntl.F_WRLCK, PENDING_BYTE, 1)
            fcntl.fcntl(descriptor, F_OFD_SETLK, lock)
        except OSError as problem:
            log.debug("%s: opening it cannot be prevented: %s", guard.path, problem)
    try:
        yield
    finally:
        if descriptor is not None and guard.holds(descriptor):
            unlock = pack_lock(fcntl.F_UNLCK, PENDING_BYTE, 1)
            fcntl.fcntl(descriptor, F_OFD_SETLK, unlock)


def is_readable(guard: file_guard.Guard) -> bool:
    """Whether connections that hold the removed log still read what everybody else would."""
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None or not guard.is_in_place():
        return False
    if not is_index_of_log(index, observed.descriptor) or guard.is_log_cut():
        return False
    return (
        _is_same(guard.index_name, guard.index)
        or index.frames > 0  # whoever saves what is in the log empties it
        or not os.path.exists(guard.index_name)
    )


def _is_ours(guard: file_guard.Guard) -> bool:
    """Whether nobody else has begun another log: then the last connection may clean up as usual."""
    index = read_index(guard.index)
    return index is not None and not index.frames and _is_same(guard.index_name, guard.index)


def _is_same(name: str, descriptor: int | None) -> bool:
    if descriptor is None:
        return False
    found = os.fstat(descriptor)
    return identity_of(name) == (found.st_dev, found.st_ino)


# -------------------------------------------------------------------- errors


def _cannot_stop(store: ConnectionSet, *, committed: bool = False) -> errors.HermesError:
    outcome = "the last change may or may not be stored later" if committed else "nothing was written"
    return errors.make_error(
        errors.StoreFailed,
        f"the write-ahead log of {store.path} was removed while it was open here. To save what it held, every read of"
        f" the store has to end, and one has not; {outcome}. Try again when it has",
    )


def _cannot_save(store: ConnectionSet, problem: Exception) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"the write-ahead log of {store.path} was removed while it was open here, and what it held cannot be put into"
        f" the file: {problem}. The last changes made here are lost",
    )


def _explain_loss(store: ConnectionSet) -> errors.HermesError:
    return _make_cut_error(store) if store.guard.is_log_cut() else _make_lost_error(store)


def _make_cut_error(store: ConnectionSet) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"another program emptied or shortened the write-ahead log of {store.path}: the last changes made here are"
        " lost, and nothing more is written. Close every SessionDB on that file, in every process, and open it again;"
        " `hermes sessions verify` tells whether what was in the file before is whole",
    )


def _make_lost_error(store: ConnectionSet) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"another program took the write-ahead log of {store.path} away, and the store was changed without it: the last"
        " changes made here cannot be put into the file. Close every SessionDB of this process on that file and open"
        " it again",
    )
