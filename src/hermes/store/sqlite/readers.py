"""The pool of reading connections of one store: bounded, shrinking, and closable as a whole.

A connection costs two file descriptors. Without a bound, a program with many threads would run out of them. A thread
that finds every connection in use waits for one. A thread that already holds a connection never waits for a second
one: it might wait for itself.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from hermes import errors
from hermes.store.sqlite.connection import lacks_descriptors

if TYPE_CHECKING:
    from hermes.store.sqlite.scope import ScopedConnection

T = TypeVar("T")

MOST_OPEN = 16
"""Connections per store, plain and scoped together. More threads than this share them in turn."""
IDLE_S = 5.0
"""A connection that nobody has used for so long is closed when another one is given back."""

_UNREFERENCED = 3  # the dictionary, the loop variable, and the argument of getrefcount


class ReaderPool:
    """`take` a connection, `give_back` it. `ScopedConnection` objects are kept apart from plain connections."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._path = path
        self._deadline = deadline
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait for a change
        self._plain: deque[tuple[float, apsw.Connection]] = deque()
        self._scoped: deque[tuple[float, ScopedConnection]] = deque()
        self._in_use: dict[apsw.Connection, int] = {}  # and the thread that took it
        self._opening = 0
        self._held = False
        self._generation = 0

    # ---------------------------------------------------------------- taking and giving back

    def take(self, make: Callable[[], apsw.Connection]) -> tuple[apsw.Connection, int]:
        """A plain connection for one snapshot, and the pool's generation, for `give_back`."""
        while True:
            with self._lock:
                if self._held or not self._plain:
                    self._wait_for_room(self._plain)
                if self._plain:
                    _, connection = self._plain.pop()
                    self._in_use[connection] = threading.get_ident()
                    return connection, self._generation
                self._opening += 1
                generation = self._generation
            made = self._make(make)
            if made is not None:
                return self._note_new(made, generation), generation

    def take_scoped(self, make: Callable[[], ScopedConnection]) -> tuple[ScopedConnection, int]:
        while True:
            with self._lock:
                if self._held or not self._scoped:
                    self._wait_for_room(self._scoped)
                if self._scoped:
                    _, scope = self._scoped.pop()
                    self._in_use[scope.connection] = threading.get_ident()
                    return scope, self._generation
                self._opening += 1
                generation = self._generation
            made = self._make(make)
            if made is not None:
                self._note_new(made.connection, generation)
                return made, generation

    def give_back(self, connection: apsw.Connection, generation: int, scope: ScopedConnection | None) -> None:
        now = time.monotonic()
        with self._lock:
            if self._in_use.pop(connection, None) is None or generation != self._generation:
                too_old = [connection]  # the store was closed or opened anew meanwhile
            else:
                if scope is None:
                    self._plain.append((now, connection))
                else:
                    self._scoped.append((now, scope))
                too_old = self._pop_idle(now - IDLE_S)
            if too_old:
                self._opening += 1  # whoever closes the store waits until they are closed
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

    def _note_new(self, connection: apsw.Connection, generation: int) -> apsw.Connection:
        with self._changed:
            self._opening -= 1
            if generation == self._generation:
                self._in_use[connection] = threading.get_ident()
                return connection
        connection.close(True)
        raise errors.raised(errors.StoreClosed, f"{self._path}: this SessionDB is closed")

    def _make(self, make: Callable[[], T]) -> T | None:
        """Open a connection outside the lock. None if there are no descriptors, and one of ours will be free."""
        try:
            return make()
        except BaseException as problem:
            with self._changed:
                self._opening -= 1
                self._changed.notify()
                if (
                    not isinstance(problem, errors.StoreError | apsw.Error | OSError)
                    or not lacks_descriptors()
                ):
                    raise
                idle = [*self._pop_idle(time.monotonic())]
                shared = bool(self._in_use) and threading.get_ident() not in self._in_use.values()
            for each in idle:
                each.close(True)
            if not idle and not shared:
                raise
            if not idle:
                self._wait_for_return()
            return None

    def _wait_for_return(self) -> None:
        with self._changed:
            if self._in_use:
                self._wait(self._deadline)

    def _wait(self, seconds: float) -> bool:
        """For a change, or until the time is up. The lock is held."""
        self._waiting += 1
        try:
            return self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def _wait_for_room(
        self, idle: deque[tuple[float, apsw.Connection]] | deque[tuple[float, ScopedConnection]]
    ) -> None:
        """Wait until there is an idle connection of this kind, or room for a new one. The lock is held."""
        if not self._held and (idle or self._count() < MOST_OPEN):
            return
        if threading.get_ident() in self._in_use.values():
            return
        until = time.monotonic() + self._deadline
        while self._held or not idle:
            if not self._held and self._count() < MOST_OPEN:
                return
            if not self._held and self._close_one_idle():
                return
            self._forget_unreferenced()
            if not self._wait(min(1.0, until - time.monotonic())) and time.monotonic() >= until:
                raise errors.raised(
                    errors.StoreBusy,
                    f"{self._path}: all {MOST_OPEN} reading connections of this program have been in use for"
                    f" {self._deadline:.0f} s",
                )

    def _count(self) -> int:
        return len(self._in_use) + self._opening + len(self._plain) + len(self._scoped)

    def _close_one_idle(self) -> bool:
        """Make room by closing an idle connection of the other kind."""
        if self._plain:
            self._plain.popleft()[1].close(True)
        elif self._scoped:
            self._scoped.popleft()[1].connection.close(True)
        else:
            return False
        return True

    def _forget_unreferenced(self) -> None:
        """Ctrl-C may strike between taking a connection and noting it: nobody will give that one back."""
        for connection in list(self._in_use):
            if sys.getrefcount(connection) <= _UNREFERENCED + 1:  # and the list
                del self._in_use[connection]

    def _pop_idle(self, since: float) -> list[apsw.Connection]:
        found = []
        while self._plain and self._plain[0][0] < since:
            found.append(self._plain.popleft()[1])
        while self._scoped and self._scoped[0][0] < since:
            found.append(self._scoped.popleft()[1].connection)
        return found

    # ---------------------------------------------------------------- all of them

    @property
    def busy(self) -> bool:
        return bool(self._in_use) or bool(self._opening)

    def hold(self, until: float) -> bool:
        """Let no new read begin, and wait for the running ones to end; False if they do not in time."""
        with self._changed:
            self._held = True
            while self.busy and (left := until - time.monotonic()) > 0:
                self._forget_unreferenced()
                self._wait(min(left, 0.05))
            return not self.busy

    def release(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def empty(self) -> list[apsw.Connection]:
        """The idle connections, to be closed. Those in use are closed when they are given back."""
        with self._changed:
            self._generation += 1
            found = [connection for _, connection in self._plain]
            found += [scope.connection for _, scope in self._scoped]
            self._plain.clear()
            self._scoped.clear()
            self._changed.notify_all()
            return found

    def get_idle(self) -> list[apsw.Connection]:
        with self._changed:
            return [*(each for _, each in self._plain), *(scope.connection for _, scope in self._scoped)]

    def add(self, connection: apsw.Connection) -> None:
        """A connection that was opened elsewhere: that of a store which is only read."""
        with self._changed:
            self._plain.append((time.monotonic(), connection))
