"""Recovery after the write-ahead log, or its index (`-shm`), was removed or replaced under an open store.

Connections that were opened before still have the removed log open. It may contain acknowledged rows that are
nowhere else. So, while the database file is in its place, recovery takes these steps:

1. Stop every store of this process on the file: no write, no read, no checkpoint.
2. Keep other processes from writing to the file and from opening it, with `log_lock`.
3. Checkpoint the whole old log through a connection that still has it open.
4. Close every connection of this process to the file, because they share one view of the log's index.
5. Open the connections again, on a new log, before the lock is released.

A log that is in its place but was emptied or shortened is not checkpointed, because the missing frames would
be written to the file as garbage. If all its frames were checkpointed before, a new log is started. Otherwise
the store fails.

A checkpoint is refused if it would overwrite the changes of another program that has started a new log. If
all frames of the old log were checkpointed before, nothing is lost. Otherwise the store fails and
acknowledges no further writes.

Other processes that have the old log open detect the removal with the same check. They see that the index no
longer describes their log, and only open the file again.
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
"""How long to wait for reads and writes of this process, and reads of other processes, to end."""
STOP_FOR_READ_S = 0.1
"""The same limit if a read has detected the removal.

It is short, because the read can continue with the old log.
"""

_NAP_S = 0.01


class Rescue(NamedTuple):
    saved: bool
    """Whether every commit in the old log is in the database file, or in the log that is now in place."""
    can_leave: bool
    """Whether nothing in the old log is needed any more, so that its connections may be closed."""
    lost: bool = False
    """Whether some content of the old log exists nowhere else and can never be saved."""
    by_us: bool = False
    """Whether this process emptied the log.

    If so, it may start a new log although others still have the old one open.
    """


def restore_log(store: ConnectionSet, *, committed: bool = False, wait: float = STOP_S) -> bool:
    """Save the content of the removed log and open the file again, for all stores of this process.

    Call this in the store's commit queue, outside a transaction. `committed` means that a transaction was
    committed after the log was last seen in its place. Return False if that transaction has to be repeated.
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
        # Checkpointers stay stopped until the connections are open again. A connection that is opened in
        # between would keep the removed index in use for every later connection of this process.
        for each in stores:
            each.checkpointer.stop()
        lock = LogLock(guard)
        rescue = _leave_log(guard, stores, lock, until, committed=guard.has_unsure_commit)
        guard.saved_all = rescue.saved
        if rescue.can_leave:
            if not rescue.by_us:  # another process may have started a new log, so open the file as usual
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
            each.renew_checkpointer()
            each.readers.release()


def save_before_close(store: ConnectionSet) -> errors.HermesError | None:
    """Save the content of a removed log before the store is closed. If that fails, return the error.
    Otherwise return None."""
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
        log.error("%s: its write-ahead log was removed; its content was saved", store.path)
        store.leave_log_alone(not _is_ours(guard))
        return None
    store.leave_log_alone(True)
    return _explain_loss(store) if rescue.lost else _cannot_stop(store)


def note_cut_log(store: ConnectionSet) -> errors.HermesError:
    """Return the error for a read that failed because the log was emptied or shortened.

    Stop the store for good if the log contained frames that are not in the database file.
    """
    index = read_index(store.guard.index)
    problem = _make_cut_error(store)
    if index is None or index.outstanding:
        store.stop_for_good(problem)
    return problem


def drop_foreign_log(guard: file_guard.Guard) -> None:
    """Empty the log if another program has overwritten it with the log of another store.

    SQLite would otherwise copy the foreign log into the file at the next open. A log that SQLite restarted
    itself is left alone: its index names no frames.
    """
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None or not index.frames or not guard.is_log_cut():
        return
    try:
        if os.fstat(observed.descriptor).st_size and not has_salts(index, observed.descriptor):
            os.truncate(guard.log_name, 0)
    except OSError as problem:
        log.error("%s: the log of another store has replaced its own: %s", guard.path, problem)


# -------------------------------------------------------------------- stopping this process


def _wait_while_recovering(guard: file_guard.Guard, store: ConnectionSet) -> None:
    """Wait until the store that is recovering the log has also reopened the connections of `store`.

    Both stores are in this process. The caller holds `guard.recovery`.
    """
    store.is_stopped = True
    guard.recovery.notify_all()
    try:
        while guard.recovering is not None:
            guard.recovery.wait()
    finally:
        store.is_stopped = False


def _stop_stores(guard: file_guard.Guard, leader: ConnectionSet, until: float) -> list[ConnectionSet]:
    """Block the commit queues of the other stores of this process.

    Return all stores that are stopped now, including `leader`.
    """

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
    """Save the content of the log and close every connection.

    If the connections cannot be closed now, at least the committed transactions are saved. Raise an error if
    that is not possible either.
    """
    idle = [store.stop_reads(until) for store in stores]  # a list: stop every store, even after a failure
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
            return rescue._replace(can_leave=False)  # the next write tries again to start a new log
        raise _cannot_stop(stores[0], committed=committed)
    if writing is not None:
        log.error("%s: another program removed its write-ahead log; its content was saved", stores[0].path)
    return rescue


def _close(guard: file_guard.Guard, stores: list[ConnectionSet], in_place: bool) -> None:
    alone = in_place and _is_ours(guard)
    for store in stores:
        store.leave_log_alone(not alone)
        store.close_connections()


# -------------------------------------------------------------------- saving the content of the log


def _save(guard: file_guard.Guard, store: ConnectionSet, until: float, *, committed: bool) -> Rescue:
    """Try to copy the removed log into the database file, until the time `until`. Return what was achieved.

    Stop earlier if it is certain that the log cannot be copied, or that its content is already in the database file.
    """
    while True:
        rescue = _decide(guard, store, committed=committed)
        if rescue is None:
            try:
                # Another process may be checkpointing. SQLite does not wait for it.
                busy, frames, moved = store.checkpoint_all(max(0.0, until - time.monotonic()))
                rescue = Rescue(saved=not busy or 0 <= frames == moved, can_leave=not busy, by_us=not busy)
                guard.note_own_write()
            except apsw.IOError:  # another process has just emptied this log and started a new one
                if _decide(guard, store, committed=committed) is None:
                    raise
                continue
        if rescue.can_leave or rescue.lost or time.monotonic() >= until:
            return rescue
        time.sleep(_NAP_S)


def _decide(guard: file_guard.Guard, store: ConnectionSet, *, committed: bool) -> Rescue | None:
    """Decide whether the content of the removed log must still be copied into the database file by a checkpoint.

    Return None if it must. Otherwise return the outcome of the recovery: the content is already saved, or it is lost.
    """
    guard.examine_log()
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None:
        return None
    if guard.is_log_cut():
        # With no frames left to copy, a checkpoint only restarts the log.
        return Rescue(saved=False, can_leave=False, lost=True) if index.outstanding else None
    ours = is_index_of_log(index, observed.descriptor)
    nothing_to_do = Rescue(saved=True, can_leave=True)
    if _is_same(guard.index_name, guard.index):
        if not ours and has_salts(index, observed.descriptor):
            # Another program did not notice the removal and appended frames to a file that lacks ours.
            return Rescue(saved=False, can_leave=False, lost=True)
        # All processes share this index. If it describes another log, ours was saved and a new one started.
        return None if ours and index.frames else nothing_to_do
    if not index.outstanding:
        return nothing_to_do
    if _is_same(guard.log_name, observed.descriptor):  # only the index was removed
        if not _index_in_use(guard.index_name):
            return None
        # The process that created the new index has seen every commit acknowledged before.
        return Rescue(saved=not committed or _has_commit(guard, index), can_leave=True)
    if not ours:  # another process saved it and started a new log before the index was removed too
        return nothing_to_do
    if not _has_successor(guard, store, observed.descriptor):
        return None
    if committed and count_outstanding_commits(index, observed.descriptor) == 1:
        return Rescue(saved=False, can_leave=True)  # the remover of the log saved everything but this commit
    return Rescue(saved=False, can_leave=False, lost=True)


def _has_commit(guard: file_guard.Guard, index: LogIndex) -> bool:
    """Return whether the index (`-shm`) beside the store now describes the same log as `index`, and names at least as
    many frames.

    In this case the last commit of this process is in the log that other processes use.
    """
    descriptor = guard.hold_descriptor(guard.index_name, os.O_RDONLY)
    other = read_index(descriptor)
    return other is not None and other.salts == index.salts and other.frames >= index.frames


def _has_successor(guard: file_guard.Guard, store: ConnectionSet, observed: int) -> bool:
    """Return whether another program has opened the database file without the removed log, and may have changed the
    file.

    `observed` is a descriptor of the removed log.
    """
    try:
        if os.stat(guard.log_name).st_size:
            return True
    except FileNotFoundError:
        pass
    if _index_in_use(guard.index_name):
        return True
    # A write to the file after the log was unlinked came from a program that did not use the log.
    return os.stat(store.path).st_mtime_ns > os.fstat(observed).st_ctime_ns


def _index_in_use(name: str) -> bool:
    """Return whether a connection uses the index file `name`, which must not be the index that this process
    uses.

    SQLite replaces an index that is not in use. Where locks cannot be queried, any existing index counts as
    in use. Closing the descriptor here drops no lock, because no connection of this process has a lock on
    this file.
    """
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
    """Keep other processes from opening the file, by locking a byte that SQLite locks when it opens a file.

    SQLite waits while the byte is locked.
    """
    descriptor = None
    if sys.platform.startswith("linux"):
        try:
            descriptor = guard.hold_descriptor(str(guard.path), os.O_RDWR)
            lock = pack_lock(fcntl.F_WRLCK, PENDING_BYTE, 1)
            fcntl.fcntl(descriptor, F_OFD_SETLK, lock)
        except OSError as problem:
            log.debug("%s: other programs cannot be kept from opening it: %s", guard.path, problem)
    try:
        yield
    finally:
        if descriptor is not None and guard.holds(descriptor):
            unlock = pack_lock(fcntl.F_UNLCK, PENDING_BYTE, 1)
            fcntl.fcntl(descriptor, F_OFD_SETLK, unlock)


def is_readable(guard: file_guard.Guard) -> bool:
    """Return whether connections on the removed log still read the same data as all other processes."""
    observed, index = guard.log, read_index(guard.index)
    if observed is None or index is None or not guard.is_in_place():
        return False
    if not is_index_of_log(index, observed.descriptor) or guard.is_log_cut():
        return False
    return (
        _is_same(guard.index_name, guard.index)
        or index.frames > 0  # a process that saves the log's content empties the log
        or not os.path.exists(guard.index_name)
    )


def _is_ours(guard: file_guard.Guard) -> bool:
    """Return whether the index (`-shm`) beside the store is still the one that this process uses, and names no
    frames.

    Only if this is true, SQLite may remove the log when the last connection of this process is closed.
    """
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
        f"the write-ahead log of {store.path} was removed while it was open here. Its content can be saved only"
        f" when no read of the store is running; {outcome}. Try again when the running read has ended",
    )


def _cannot_save(store: ConnectionSet, problem: Exception) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"the write-ahead log of {store.path} was removed while it was open here, and its content cannot be saved"
        f" to the file: {problem}. The last changes made here are lost",
    )


def _explain_loss(store: ConnectionSet) -> errors.HermesError:
    return _make_cut_error(store) if store.guard.is_log_cut() else _make_lost_error(store)


def _make_cut_error(store: ConnectionSet) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"another program emptied or shortened the write-ahead log of {store.path}: the last changes made here are"
        " lost, and nothing more is written. Close every SessionDB on that file, in every process, and open it again;"
        " `hermes sessions verify` checks the rest of the store",
    )


def _make_lost_error(store: ConnectionSet) -> errors.HermesError:
    return errors.make_error(
        errors.StoreFailed,
        f"another program removed the write-ahead log of {store.path}, and the store was changed without it: the last"
        " changes made here cannot be saved to the file. Close every SessionDB of this process on that file and open"
        " it again",
    )
