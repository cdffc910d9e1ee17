"""Group commit: a leader thread commits the queued writes of the others.

An fsync costs the same for one row as for sixteen. The leader takes the waiting writes, runs each in its own savepoint,
and commits once. A write that fails does so alone; if the commit fails, all fail. A thread that finds no leader leads
at once, so that a single writer pays for a mutex and nothing more.

Followers whose writes are done wake each other one after the other. Woken all at once they would compete for the
interpreter's lock.

A signal handler runs in the main thread, between any two instructions, and may raise anything: Ctrl-C, a timeout. It
may raise again while the first exception is handled. So undoing and handing over is done from the state kept here,
under the mutex, in a thread that no signal reaches. The main thread commits its own write only: an exception of a
handler can then not be mistaken for one of another thread's write.

A handler may also use the store while the interrupted frame holds the mutex or leads. `do` recognises that by the
thread. The owner of the queue decides how such a write is made without the queue.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import get_ident
from types import FrameType
from typing import Any, Protocol

from hermes.store.sqlite.fork_safety import Inside

MOST_IN_ONE_COMMIT = 64

GATHER_S = 0.0001
"""How long a leader waits, at most and for each, until as many have come as its predecessor had with it. Without it the
first thread of a crowd to come back leads alone, and those who come while it is at work are in its way."""


class Ticket:
    """One caller's work on its way through a commit."""

    __slots__ = (
        *("work", "share", "repeatable", "impatient", "outside"),
        *("result", "error", "finished", "turn", "along", "next", "gone", "way"),
        *("queue", "outer", "settled"),
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
        self.queue: CommitQueue | None = None
        self.outer: Ticket | None = None  # the write of the same thread that a signal handler has interrupted
        self.settled = False  # interrupted, and from now on it is certain whether it is stored


class Owner(Protocol):
    """Makes the transactions of a queue."""

    def transact(self, batch: list[Ticket]) -> None:
        """Leave every ticket finished, with a result or an error. Raise if the leading thread is interrupted."""

    def undo(self, batch: list[Ticket]) -> None:
        """After an interrupt: mark as finished what is committed, and roll the rest back."""

    def find_way_past(self, ticket: Ticket, interrupted: list[Ticket]) -> Callable[[Ticket], Any] | None:
        """How to make a write that a signal handler asks for while these writes of its thread are interrupted.

        None if none of them is in the way; an error if the write cannot be made before one of them ends.
        """


writes_at_work: dict[int, Ticket] = {}
"""The write that each thread is in the midst of, in any store. What is left here by a write that was interrupted is
recognised: `CommitQueue.do` is not on the stack for it."""

os.register_at_fork(after_in_child=writes_at_work.clear)  # the threads are the parent's

_NAP_S, _MOST_NAPS = 0.0002, 200_000


def interrupted_writes(thread: int) -> list[Ticket]:
    """The writes of this thread that are on its stack below the caller, the innermost first.

    A write that was left by an exception may still be under way in another thread. That is waited for, so that whoever
    looks whether it was stored gets the final answer.
    """
    found: list[Ticket] = []
    ticket = writes_at_work.get(thread)
    if ticket is None:
        return found
    running = _tickets_on_stack()
    while ticket is not None:
        if any(ticket is other for other in running):
            found.append(ticket)
        else:
            for _ in range(_MOST_NAPS):
                if ticket.settled:
                    break
                time.sleep(_NAP_S)
            if writes_at_work.get(thread) is ticket:
                _forget(thread, ticket)
        ticket = ticket.outer
    return found


def _tickets_on_stack() -> list[Ticket]:
    found = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is CommitQueue.do.__code__:
            found.append(frame.f_locals["ticket"])
        frame = frame.f_back
    return found


def _forget(thread: int, ticket: Ticket) -> None:
    if ticket.outer is None:
        writes_at_work.pop(thread, None)
    else:
        writes_at_work[thread] = ticket.outer


class CommitQueue:
    def __init__(self, owner: Owner) -> None:
        self.owner = owner
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

    @property
    def is_idle(self) -> bool:
        return self._leader is None

    def is_led_by(self, ticket: Ticket) -> bool:
        return self._leader is ticket

    def do(self, ticket: Ticket) -> Any:
        thread = get_ident()
        if thread in writes_at_work:
            interrupted = interrupted_writes(thread)
            if interrupted:
                ticket.outer = interrupted[0]
                make = self.owner.find_way_past(ticket, interrupted)
                if make is not None:
                    return _do_in_other_thread(ticket, thread, make)
        ticket.queue = self
        try:
            writes_at_work[thread] = ticket
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
            if ticket.outer is None:
                writes_at_work.pop(thread, None)
            else:
                _forget(thread, ticket)
        except BaseException:
            # Another exception may come at any moment. Up to this one call into C none is noticed, and what runs in
            # another thread none can strike.
            try:
                start_new_thread(self._leave, (ticket,))
            except RuntimeError:  # no more threads
                self._leave(ticket)
            raise
        return ticket.result if ticket.error is None else _outcome(ticket)

    def _leave(self, ticket: Ticket) -> None:
        """After an interrupt: undo what was begun, if anything was, and go on without this one."""
        try:
            if self._leader is ticket:
                self.owner.undo([ticket, *ticket.along])
        finally:
            self._settle(ticket)
            ticket.way.leave()

    def _lead(self, ticket: Ticket) -> None:
        if ticket.share and (self._waiting or self._crowd > 1) and not is_main_thread():
            if self._crowd > 1:
                self._gather()
            with self._mutex:
                while self._waiting and self._waiting[0].share and len(ticket.along) < MOST_IN_ONE_COMMIT - 1:
                    ticket.along.append(self._waiting[0])  # at no moment in neither
                    self._waiting.popleft()
            self._crowd = 1 + len(ticket.along)
        self.owner.transact([ticket, *ticket.along])
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
            if self._leader is ticket:
                ticket.settled = True
            if self._leader is ticket and not self._waiting and not ticket.along:
                self._leader = None  # nobody came along, and nobody waits
                return
            if self._leader is not ticket:
                if ticket in self._waiting:  # nobody has taken it up, and nobody shall
                    self._waiting.remove(ticket)
                # A follower whose leader is at work is settled by that leader.
                ticket.settled = self._leader is None or ticket not in self._leader.along
                self._hand_over()
                return
            for waiter in reversed(ticket.along):
                waiter.settled = waiter.settled or waiter.gone
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


def _outcome(ticket: Ticket) -> Any:
    if ticket.error is not None:
        try:
            raise ticket.error
        finally:
            ticket.error = None  # no reference cycle through the traceback
    return ticket.result


def _do_in_other_thread(ticket: Ticket, thread: int, make: Callable[[Ticket], Any]) -> Any:
    """Make a write where no further signal can strike it, and wait for it."""
    over = threading.Lock()
    over.acquire()

    def work() -> None:
        try:
            ticket.result = make(ticket)
        except BaseException as problem:  # noqa: BLE001 - raised in the thread that asked
            ticket.error = problem
        finally:
            ticket.settled = True
            over.release()

    writes_at_work[thread] = ticket
    try:
        start_new_thread(work, ())
    except RuntimeError:  # no more threads
        work()
    over.acquire()
    _forget(thread, ticket)
    return _outcome(ticket)


def is_main_thread() -> bool:
    """Whether signal handlers may interrupt this thread."""
    return get_ident() == _main_thread


_main_thread = threading.main_thread().ident


def _note_main_thread() -> None:
    global _main_thread
    _main_thread = get_ident()


os.register_at_fork(after_in_child=_note_main_thread)  # the thread that forked is the only one there


def is_from_signal_handler(problem: BaseException) -> bool:
    """Whether a signal handler of the interrupted thread raised it, rather than the code that was running.

    A handler is called with the frame that it interrupts, which is also the frame below its own.
    """
    trace = problem.__traceback__
    while trace is not None:
        below = trace.tb_frame.f_back
        for value in trace.tb_frame.f_locals.values() if below is not None else ():
            if value is below or (type(value) is tuple and any(part is below for part in value)):
                return True
        trace = trace.tb_next
    return False
