"""Threads share commits: the one that comes first leads, those who come while it waits for the disk follow.

An fsync costs the same for one row as for sixteen. The leader takes the works that are waiting, runs each in its own
savepoint, and commits once; a work that fails does so alone, a commit that fails fails them all. A thread that finds
nobody leading leads at once, so that a single writer pays a mutex and nothing more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

MOST_IN_ONE_COMMIT = 64

GATHER_S = 0.0001
"""How long a leader waits for company when its predecessor had some: a fraction of the fsync it saves. Without it the
first thread of a crowd to come back leads alone, and every second commit holds a single row."""


class Ticket:
    """One caller's work on its way through a commit."""

    __slots__ = ("error", "finished", "impatient", "outside", "repeatable", "result", "share", "turn", "work")

    def __init__(
        self,
        work: Callable[[Any], Any],
        *,
        share: bool = False,
        repeatable: bool = True,
        impatient: bool = False,
        outside: bool = False,
    ) -> None:
        self.work = work
        self.share = share  # may join a commit with others
        self.repeatable = repeatable  # may be done again after a lost commit
        self.impatient = impatient  # gives up at once if another process holds the lock
        self.outside = outside  # is done outside any transaction, while nobody else of this process writes
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.turn: threading.Lock | None = None


class CommitQueue:
    def __init__(self, transact: Callable[[list[Ticket]], None]) -> None:
        """`transact` leaves every ticket finished, with a result or an error.

        If it is interrupted (Ctrl-C in the leading thread) it raises, and what is not finished was not committed.
        """
        self._transact = transact
        self._mutex = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._led = False
        self._crowd = 0

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def do(self, ticket: Ticket) -> Any:
        if not self._join(ticket):
            self._await_turn(ticket)
        if not ticket.finished:
            self._lead(ticket)
        if ticket.error is not None:
            try:
                raise ticket.error
            finally:
                ticket.error = None  # no reference cycle through the traceback
        return ticket.result

    def _join(self, ticket: Ticket) -> bool:
        """Queue the ticket; True if it leads at once."""
        with self._mutex:
            if not self._led:
                self._led = True
                return True
            ticket.turn = threading.Lock()
            ticket.turn.acquire()
            self._waiting.append(ticket)
            return False

    def _await_turn(self, ticket: Ticket) -> None:
        assert ticket.turn is not None
        try:
            ticket.turn.acquire()
        except BaseException:  # Ctrl-C in the main thread: leave the queue as if never there
            with self._mutex:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                    raise
            ticket.turn.acquire()  # already taken up: the outcome is a moment away
            if not ticket.finished:
                self._pass_on()
            raise

    def _lead(self, ticket: Ticket) -> None:
        batch = [ticket]
        if ticket.share:
            if self._crowd > 1:
                time.sleep(GATHER_S)
            with self._mutex:
                while self._waiting and self._waiting[0].share and len(batch) < MOST_IN_ONE_COMMIT:
                    batch.append(self._waiting.popleft())
            self._crowd = len(batch)
        try:
            self._transact(batch)
        finally:
            with self._mutex:
                self._waiting.extendleft(reversed([waiter for waiter in batch[1:] if not waiter.finished]))
            self._pass_on()
            for follower in batch[1:]:
                if follower.finished and follower.turn is not None:
                    follower.turn.release()

    def _pass_on(self) -> None:
        with self._mutex:
            if self._waiting:
                heir = self._waiting.popleft()
                assert heir.turn is not None
                heir.turn.release()
            else:
                self._led = False
