"""The pool of reading connections of one store. It is bounded, closes idle connections, and can be closed as
a whole.

A connection costs two file descriptors. Without a bound, a program with many threads would run out of them. A
thread waits if every connection is in use. A thread that already holds a connection gets a second one without
waiting, because it might otherwise wait for itself.

The main thread has its own connections and uses them without the lock. A signal handler may interrupt it
anywhere, and may then read or raise. With a lock, the handler could deadlock or leave the lock acquired.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from hermes import errors
from hermes.store.sqlite.connection import TOO_MANY_FILES, is_out_of_descriptors
from hermes.store.sqlite.group_commit import is_main_thread
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS

if TYPE_CHECKING:
    from hermes.store.sqlite.scope import ScopedConnection

T = TypeVar("T")

MOST_OPEN = 16
"""The maximum number of connections per store, plain and scoped together.

If there are more threads, they take turns.
"""
IDLE_S = 5.0
"""A connection that was idle for this many seconds is closed when another connection is given back."""

MOST_IDLE_IN_MAIN = 2
HELD_NAP_S = 0.001

_UNREFERENCED = 3  # references: the dictionary, the loop variable, the argument of getrefcount


class ReaderPool:
    """Lends the reading connections of one store. A reader calls `take`, and later `give_back`.

    Connections that are limited to the rows of some owners (scoped) are kept apart from the others.
    """

    def __init__(self, path: Path, deadline: float) -> None:
        self._path = path
        self._deadline = deadline
        # The main thread does not use the Condition: an exception may be raised inside it after it acquired the lock.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # number of threads that wait for a change
        self._plain: deque[tuple[float, apsw.Connection]] = deque()
        self._scoped: deque[tuple[float, ScopedConnection]] = deque()
        self._in_use: dict[apsw.Connection, int] = {}  # the thread that took each connection
        self._opening = 0
        self._stopped_by: int | None = None  # the thread that blocks new reads
        self._generation = 0
        self._is_open = True
        self._is_scarce = False  # True if descriptors are scarce; connections are then opened one at a time
        self._open_serially = threading.Lock()
        self._taking_in_main = 0  # nesting depth of `take` in the main thread and its signal handlers
        self._main_plain: deque[apsw.Connection] = deque()
        self._main_scoped: deque[ScopedConnection] = deque()

    # ---------------------------------------------------------------- taking and giving back

    def take(self, make: Callable[[], apsw.Connection]) -> tuple[apsw.Connection, int]:
        """Return a connection for one read, and the number of the pool's current generation. Pass both to `give_back`
        later.

        The connection is not scoped. If none is idle and the limit is not reached, it is opened with `make`.
        """
        if is_main_thread():
            return self._take_in_main(self._main_plain, make, _itself)
        while True:
            with self._lock:
                if self._stopped_by is not None or not self._plain:
                    self._wait_for_room(self._plain)
                if self._plain:
                    _, connection = self._plain.pop()
                    self._in_use[connection] = threading.get_ident()
                    return connection, self._generation
                self._opening += 1
                generation = self._generation
            made = self._make(make)
            if made is not None and self._note_new(made, generation):
                return made, generation

    def take_scoped(self, make: Callable[[], ScopedConnection]) -> tuple[ScopedConnection, int]:
        if is_main_thread():
            return self._take_in_main(self._main_scoped, make, _connection_of)
        while True:
            with self._lock:
                if self._stopped_by is not None or not self._scoped:
                    self._wait_for_room(self._scoped)
                if self._scoped:
                    _, scope = self._scoped.pop()
                    self._in_use[scope.connection] = threading.get_ident()
                    return scope, self._generation
                self._opening += 1
                generation = self._generation
            made = self._make(make)
            if made is not None and self._note_new(made.connection, generation):
                return made, generation

    def _take_in_main(
        self, idle: deque[T], make: Callable[[], T], connection_of: Callable[[T], apsw.Connection]
    ) -> tuple[T, int]:
        thread = threading.get_ident()
        while True:
            # This precedes the check of `_stopped_by`. Either `hold` sees this thread, or this thread sees `hold`.
            self._taking_in_main += 1
            try:
                generation = self._generation
                if self._stopped_by is None or self._stopped_by == thread:
                    try:
                        taken = idle.pop()
                    except IndexError:
                        taken = self._make_in_main(make)
                    connection = connection_of(taken)
                    self._in_use[connection] = thread
                    if self._is_open and generation == self._generation:
                        return taken, generation
                    connection.close(True)
                    self._in_use.pop(connection, None)
            finally:
                self._taking_in_main -= 1
            if not self._is_open:
                raise self._closed()
            while self._stopped_by not in (None, thread):
                time.sleep(HELD_NAP_S)

    def _make_in_main(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except Exception as problem:
            if not _is_lack_of_descriptors(problem) or not self._close_idle():
                raise
        return self._make_in_main(make)

    def _give_back_in_main(
        self, connection: apsw.Connection, generation: int, scope: ScopedConnection | None
    ) -> None:
        idle: deque[Any] = self._main_plain if scope is None else self._main_scoped
        if self._is_open and generation == self._generation and len(idle) < MOST_IDLE_IN_MAIN:
            idle.append(scope or connection)
        else:
            connection.close(True)
        self._in_use.pop(connection, None)
        if not self._is_open or generation != self._generation:  # closed by another thread in the meantime
            self._main_plain.clear()
            self._main_scoped.clear()
            connection.close(True)
        if self._plain or self._scoped:
            for old in self._pop_idle(time.monotonic() - IDLE_S):
                old.close(True)

    def give_back(self, connection: apsw.Connection, generation: int, scope: ScopedConnection | None) -> None:
        if is_main_thread():
            self._give_back_in_main(connection, generation, scope)
            return
        now = time.monotonic()
        with self._lock:
            if self._in_use.pop(connection, None) is None or not self._may_go_on(generation):
                too_old = [connection]  # the store was closed or reopened in the meantime
            else:
                if scope is None:
                    self._plain.append((now, connection))
                else:
                    self._scoped.append((now, scope))
                too_old = self._pop_idle(now - IDLE_S)
            if too_old:
                self._opening += 1  # closing the store waits until these are closed
            elif self._waiting:
                self._changed.notify()
        if too_old:
            self._close(too_old)

    def _close(self, connections: list[apsw.Connection]) -> None:
        try:
            for connection in connections:
                connection.close(True)
        finally:
            with self._lock:
                self._opening -= 1
                self._changed.notify()

    def _note_new(self, connection: apsw.Connection, generation: int) -> bool:
        """Count a newly opened connection as lent to the current thread. `generation` is the generation of the pool
        before it was opened.

        If the store was reopened in the meantime, close the connection and return False. If the store was closed,
        raise an error.
        """
        with self._changed:
            self._opening -= 1
            if self._may_go_on(generation):
                self._in_use[connection] = threading.get_ident()
                return True
        connection.close(True)
        if not self._is_open:
            raise self._closed()
        return False

    def _may_go_on(self, generation: int) -> bool:
        """Return whether a connection of this generation may still be used. It may if the store was neither closed
        nor reopened since.
        """
        return self._is_open and generation == self._generation

    def _closed(self) -> errors.HermesError:
        return errors.make_error(errors.StoreClosed, f"{self._path}: this SessionDB is closed")

    def _make(self, make: Callable[[], T]) -> T | None:
        """Open a connection with `make`, without holding the lock of the pool.

        If too few file descriptors are free, wait until the pool has closed a connection or a borrower has given one
        back. Then return None, and the caller tries again.
        """
        was_scarce = self._is_scarce
        try:
            with self._open_serially if was_scarce else nullcontext():
                return make()
        except BaseException as problem:
            with self._changed:
                self._opening -= 1
                self._changed.notify()
                if not _is_lack_of_descriptors(problem):
                    raise
                idle = self._pop_idle(time.monotonic())
                with suppress(IndexError):
                    idle.append(self._main_plain.popleft())
                self._is_scarce = True
                others = self.busy or not was_scarce
                shared = others and threading.get_ident() not in self._in_use.values()
            for each in idle:
                each.close(True)
            if not idle and not shared:
                raise
            if not idle:
                self._wait_for_return()
            return None

    def _wait_for_return(self) -> None:
        with self._changed:
            if self.busy:
                self._wait(self._deadline)

    def _wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until another thread changes the pool. Return False if nothing has changed in this
        time. The caller holds the lock of the pool.
        """
        self._waiting += 1
        try:
            return self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def _wait_for_room(
        self, idle: deque[tuple[float, apsw.Connection]] | deque[tuple[float, ScopedConnection]]
    ) -> None:
        """Wait until `idle` contains a connection, or until the pool may open a new one. `idle` are the idle
        connections of the kind that the caller needs.

        The caller holds the lock of the pool. A thread that already has a connection does not wait. Raise `StoreBusy`
        if the wait takes too long.
        """
        if self._stopped_by is None and (idle or self._count() < MOST_OPEN):
            return
        if threading.get_ident() in self._in_use.values():
            return
        until = time.monotonic() + self._deadline
        while self._stopped_by is not None or not idle:
            if self._stopped_by is None and self._count() < MOST_OPEN:
                return
            if self._stopped_by is None and self._close_idle():
                return
            self._forget_unreferenced()
            if not self._wait(min(1.0, until - time.monotonic())) and time.monotonic() >= until:
                raise errors.make_error(
                    errors.StoreBusy,
                    f"{self._path}: all {MOST_OPEN} reading connections of this program have been in use for"
                    f" {self._deadline:.0f} s",
                )

    def _count(self) -> int:
        return len(self._in_use) + self._opening + len(self._plain) + len(self._scoped)

    def _close_idle(self) -> bool:
        """Close one idle connection of the pool, to make room for a new one. Return False if no connection is idle.

        Each step is atomic, so the lock of the pool is not needed.
        """
        for connection in self._pop_idle(time.monotonic(), most=1):
            connection.close(True)
            return True
        return False

    def _forget_unreferenced(self) -> None:
        """Remove lent connections from the list of the pool if no other object refers to them any more.

        The reads that borrowed them were interrupted by a signal handler, and can no longer give them back.
        """
        for connection in list(self._in_use):
            if sys.getrefcount(connection) <= _UNREFERENCED + 1:  # plus the list
                del self._in_use[connection]

    def _pop_idle(self, since: float, most: int | None = None) -> list[apsw.Connection]:
        """Remove idle connections from the pool and return them, so that the caller can close them.

        Only connections that were last used before the time `since` are removed, the longest unused first, and at
        most `most` of them. The main thread calls this without the lock of the pool.
        """
        found: list[apsw.Connection] = []
        while self._plain and (most is None or len(found) < most):
            with suppress(IndexError):
                used, connection = self._plain.popleft()
                if used >= since:
                    self._plain.appendleft((used, connection))
                    break
                found.append(connection)
        while self._scoped and (most is None or len(found) < most):
            with suppress(IndexError):
                used, scope = self._scoped.popleft()
                if used >= since:
                    self._scoped.appendleft((used, scope))
                    break
                found.append(scope.connection)
        return found

    # ---------------------------------------------------------------- the whole pool

    @property
    def busy(self) -> bool:
        return bool(self._in_use) or bool(self._opening) or bool(self._taking_in_main)

    def hold(self, until: float) -> bool:
        """Block new reads, and wait until all running reads have given their connections back. Return False if some
        have not at the time `until`.
        """
        self._stopped_by = threading.get_ident()
        while self.busy and time.monotonic() < until:
            self._forget_unreferenced()
            time.sleep(HELD_NAP_S)
        return not self.busy

    def release(self) -> None:
        with self._lock:
            self._stopped_by = None
            self._changed.notify_all()

    def close(self) -> None:
        """Close the pool.

        From now on no connection is lent, and a connection that is given back is closed.
        """
        self._is_open = False

    def empty(self) -> list[apsw.Connection]:
        """Remove and return the idle connections, so that the caller can close them.

        Lent connections are closed when they are given back.
        """
        with self._lock:
            self._generation += 1
            found = self._get_idle()
            for idle in (self._plain, self._scoped, self._main_plain, self._main_scoped):
                idle.clear()
            self._changed.notify_all()
            return found

    def get_idle(self) -> list[apsw.Connection]:
        with self._lock:
            return self._get_idle()

    def _get_idle(self) -> list[apsw.Connection]:
        plain = [*(connection for _, connection in self._plain), *self._main_plain]
        scoped = [*(scope for _, scope in self._scoped), *self._main_scoped]
        return [*plain, *(scope.connection for scope in scoped)]

    def add(self, connection: apsw.Connection) -> None:
        """Put a connection that was opened elsewhere into the pool, as an idle one.

        A read-only store does this with the connection with which it was opened.
        """
        if is_main_thread():
            self._main_plain.append(connection)
        else:
            with self._lock:
                self._plain.append((time.monotonic(), connection))


def _is_lack_of_descriptors(problem: BaseException) -> bool:
    if isinstance(problem, OSError) and problem.errno in NO_DESCRIPTORS:
        return True
    if isinstance(problem, errors.StoreError) and TOO_MANY_FILES in str(problem):
        return True  # checked by the text: another thread may have closed files since
    return isinstance(problem, errors.StoreError | apsw.Error | OSError) and is_out_of_descriptors()


def _itself(connection: apsw.Connection) -> apsw.Connection:
    return connection


def _connection_of(scope: ScopedConnection) -> apsw.Connection:
    return scope.connection
