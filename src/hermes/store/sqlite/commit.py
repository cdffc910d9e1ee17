"""Threads share commits: the one that comes first leads, those who come while it waits for the disk follow.

An fsync costs the same for one row as for sixteen. The leader takes the works that are waiting, runs each in its own
savepoint, and commits once; a work that fails does so alone, a commit that fails fails them all. A thread that finds
nobody leading leads at once, so that a single writer pays a mutex and nothing more.

Those whose work is done wake each other, one after the other: woken all at once they would fight for the interpreter's
lock, and each of those fights is lost several times before it is won.

Ctrl-C can strike the main thread at any line, and again while the first is dealt with. What there is to undo and hand
on is therefore found from the state kept here, under the mutex, in a thread that no signal reaches.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hermes.store.sqlite.forking import Inside

MOST_IN_ONE_COMMIT = 64

GATHER_S = 0.0001
"""How long a leader waits, at most and for each, until as many have come as its predecessor had with it. Without it the
first thread of a crowd to come back leads alone, and those who come while it is at work are in its way."""


class Ticket:
    """One caller's work on its way through a commit."""

    __slots__ = (
        *("work", "share", "repeatable", "impatient", "outside"),
        *("result", "error", "finished", "turn", "along", "next", "gone", "way"),
    )

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
        self.turn: threading.Lock | None = None  # what a follower waits on
        self.along: list[Ticket] = []  # whom it takes along when it leads
        self.next: Ticket | None = None  # whom it wakes when it is woken
        self.way = Inside()  # into SQLite, whichever thread goes it
        self.gone = False  # nobody waits for it any more


class CommitQueue:
    def __init__(
        self, transact: Callable[[list[Ticket]], None], interrupted: Callable[[list[Ticket]], None]
    ) -> None:
        """`transact` leaves every ticket finished, with a result or an error.

        If it is interrupted (Ctrl-C in the leading thread) it raises, and `interrupted` finds out what was committed:
        what is not finished then was not.
        """
        self._transact = transact
        self._interrupted = interrupted
        self._mutex = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._crowd = 0
        self._awaited = 0
        self._all_there = threading.Lock()
        self._all_there.acquire()

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def do(self, ticket: Ticket) -> Any:
        try:
            ticket.way.enter()
            with self._mutex:
                if self._leader is None:
                    self._leader = ticket
                else:
                    ticket.turn = threading.Lock()
                    ticket.turn.acquire()
                    self._waiting.append(ticket)
                    if len(self._waiting) == self._awaited and self._all_there.locked():
                        self._all_there.release()
            if ticket.turn is not None:
                ticket.turn.acquire()  # released when the work is done, or when it is our turn to lead
                _wake(ticket.next)
            if not ticket.finished:
                self._lead(ticket)
            ticket.way.leave()
        except BaseException:
            # Another Ctrl-C may come at any moment. Up to this one call into C none is noticed, and what runs in
            # another thread none can strike.
            try:
                start_new_thread(self._leave, (ticket,))
            except RuntimeError:  # no more threads
                self._leave(ticket)
            raise
        if ticket.error is not None:
            try:
                raise ticket.error
            finally:
                ticket.error = None  # no reference cycle through the traceback
        return ticket.result

    def _leave(self, ticket: Ticket) -> None:
        """After an interrupt: undo what was begun, if anything was, and go on without this one."""
        try:
            if self._leader is ticket:
                self._interrupted([ticket, *ticket.along])
        finally:
            self._settle(ticket)
            ticket.way.leave()

    def _lead(self, ticket: Ticket) -> None:
        if ticket.share and (self._waiting or self._crowd > 1):
            if self._crowd > 1:
                self._gather()
            with self._mutex:
                while self._waiting and self._waiting[0].share and len(ticket.along) < MOST_IN_ONE_COMMIT - 1:
                    ticket.along.append(self._waiting[0])  # at no moment in neither
                    self._waiting.popleft()
            self._crowd = 1 + len(ticket.along)
        self._transact([ticket, *ticket.along])
        self._settle(ticket)

    def _gather(self) -> None:
        """Wait for company: until all have come back that there were the last time, or for a while."""
        with self._mutex:
            if len(self._waiting) >= self._crowd - 1:
                return
            self._awaited = self._crowd - 1
        self._all_there.acquire(timeout=GATHER_S * self._crowd)
        with self._mutex:
            self._awaited = 0
            self._all_there.acquire(blocking=False)  # they may have come in the very last moment

    def _settle(self, ticket: Ticket) -> None:
        """Leave the queue for good: tell the followers, hand unfinished ones on, and let the next one lead."""
        with self._mutex:
            ticket.gone = True
            _wake(ticket.next)
            if self._leader is ticket and not self._waiting and not ticket.along:
                self._leader = None  # nobody came along, and nobody waits
                return
            if self._leader is not ticket:
                if ticket in self._waiting:  # nobody has taken it up, and nobody shall
                    self._waiting.remove(ticket)
                self._hand_over()
                return
            for waiter in reversed(ticket.along):
                if not waiter.finished and not waiter.gone and waiter not in self._waiting:
                    waiter.error = None
                    self._waiting.appendleft(waiter)
            line = [waiter for waiter in ticket.along if waiter.finished and not waiter.gone]
            for waiter, following in pairwise(line):
                waiter.next = following
            _wake(line[0] if line else None)
            self._leader = self._waiting[0] if self._waiting else None
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the one lead whose turn it is, if that was not done to its end already."""
        if self._waiting and self._waiting[0] is self._leader:
            self._waiting.popleft()
        _wake(self._leader)


def _wake(ticket: Ticket | None) -> None:
    if ticket is not None and ticket.turn is not None and ticket.turn.locked():
        ticket.turn.release()
