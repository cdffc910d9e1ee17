"""Group commit: a leader thread commits the queued writes of the others.

An fsync costs the same for one row as for sixteen. The leader takes the waiting writes, runs each in its own
savepoint, and commits once. An error in one write makes only that write fail. An error in the commit makes
all of them fail. A thread that finds no leader becomes the leader at once, so that a single writer pays only
for a mutex.

When the writes of the followers are done, the followers wake each other one after the other. If all were
woken at once, they would compete for the interpreter's lock.

A signal handler runs in the main thread, between any two instructions, and may raise any exception: Ctrl-C, a
timeout. It may raise again while the first exception is handled. So rollback and handover use only the state
kept here, under the mutex, and run in a thread that receives no signals. The main thread commits only its own
write, so that an exception of a signal handler cannot be mistaken for an error of another thread's write.

A signal handler may also use the store while the code that it interrupted holds the mutex or is the leader.
`do` recognises this case by the thread, which is the same for both. The owner of the queue decides how to
make such a write without the queue.
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
"""The longest time that a new leader waits for followers, per thread of the last group.

The wait ends as soon as there are as many threads as in the last group. Without the wait, the first thread to
arrive would lead alone, and the threads that arrive during its commit would be delayed.
"""


class Ticket:
    """A write that a thread has put into the commit queue: the function to run, its options, its result, and its
    state in the queue.
    """

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
        self.share = share  # may share a commit with other writes
        self.repeatable = repeatable  # may be repeated after a lost commit
        self.impatient = impatient  # fails at once if another process holds the lock
        self.outside = outside  # runs outside any transaction, while no other thread of this process writes
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.turn: threading.Lock | None = None  # a follower waits on it
        self.along: list[Ticket] = []  # the followers in its commit, if it leads
        self.next: Ticket | None = None  # the follower to wake once this one was woken
        self.way = Inside()  # marks the thread that runs this write as inside SQLite
        self.gone = False  # True if no thread waits for this write any more
        self.queue: CommitQueue | None = None
        self.outer: Ticket | None = None  # the write of the same thread that a signal handler has interrupted
        self.settled = False  # True if the write was interrupted and its outcome (stored or not) is final


class Owner(Protocol):
    """The object to which a commit queue belongs. It runs the transactions of the queue."""

    def transact(self, batch: list[Ticket]) -> None:
        """Run the writes of all tickets in `batch` in one transaction, and store a result or an error in each ticket.

        Raise an exception only if a signal handler interrupts the calling thread, which is the leader.
        """

    def undo(self, batch: list[Ticket]) -> None:
        """Clean up after a signal handler has interrupted the transaction of `batch`.

        If the transaction was committed, mark the tickets of `batch` as finished. Otherwise roll the transaction
        back.
        """

    def find_way_past(self, ticket: Ticket, interrupted: list[Ticket]) -> Callable[[Ticket], Any] | None:
        """Return a function that performs the write `ticket` of a signal handler without the queue.

        `interrupted` are the writes that the handler has interrupted. Return None if none of them blocks the
        queue. Raise an error if the write would have to wait until an interrupted write ends.
        """


writes_at_work: dict[int, Ticket] = {}
"""The running write of each thread, in any store.

An interrupted write may leave its entry behind. Such an entry is recognised: its call of `CommitQueue.do` is
no longer on the stack.
"""

os.register_at_fork(after_in_child=writes_at_work.clear)  # these threads do not exist in the child

_NAP_S, _MOST_NAPS = 0.0002, 200_000


def interrupted_writes(thread: int) -> list[Ticket]:
    """Return the writes of `thread` that a signal handler has interrupted, the innermost first. The caller is
    that signal handler.

    These are the writes whose calls are still on the stack. The call of a write may have ended with an
    exception while the write is still running in another thread. This function waits for such a write, so
    that its outcome is final when the caller checks whether it was stored.
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
        self._lead_thread = 0
        """The thread that leads outside `do`; 0 if there is none."""
        self._end_lead: Callable[[], None] = lambda: None

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        return self._leader is None

    def is_led_by(self, ticket: Ticket) -> bool:
        return self._leader is ticket

    def take_lead(self, ticket: Ticket, end: Callable[[], None]) -> None:
        """Wait until this thread is the leader of the commit queue, and let it stay the leader after this call
        returns.

        The thread needs this for a transaction that stays open between calls. At its end, the thread must call
        `give_up_lead`. The function `end` does so too. The queue calls `end` before the same thread makes another
        write through the queue. Signal handlers must not run in this thread.
        """
        self._enter(ticket)
        self._lead_thread, self._end_lead = get_ident(), end

    def give_up_lead(self, ticket: Ticket) -> None:
        self._lead_thread = 0
        ticket.finished = True
        self._settle(ticket)
        ticket.way.leave()

    def do(self, ticket: Ticket) -> Any:
        thread = get_ident()
        if thread == self._lead_thread:
            self._end_lead()
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
            self._enter(ticket)
            if not ticket.finished:
                self._lead(ticket)
            ticket.way.leave()
            if ticket.outer is None:
                writes_at_work.pop(thread, None)
            else:
                _forget(thread, ticket)
        except BaseException:
            # A signal handler may raise again at any moment, but not before this single call into C. The new thread
            # receives no signals.
            try:
                start_new_thread(self._leave, (ticket,))
            except RuntimeError:  # no more threads can be started
                self._leave(ticket)
            raise
        return ticket.result if ticket.error is None else _outcome(ticket)

    def _enter(self, ticket: Ticket) -> None:
        """Put `ticket` into the commit queue. Wait until a leader has made its write, or until this thread has to
        become the leader.
        """
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
            ticket.turn.acquire()  # released when the write is done, or this thread must lead
            _wake(ticket.next)

    def _leave(self, ticket: Ticket) -> None:
        """After a signal handler has interrupted the write `ticket`, remove it from the commit queue.

        If `ticket` is the leader's write, first roll back the transaction that the leader has begun.
        """
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
                    ticket.along.append(self._waiting[0])  # before its removal: always in at least one list
                    self._waiting.popleft()
            self._crowd = 1 + len(ticket.along)
        self.owner.transact([ticket, *ticket.along])
        self._settle(ticket)

    def _gather(self) -> None:
        """As the leader, wait until as many other writes are in the queue as were committed together last time. Stop
        waiting after a short time.
        """
        with self._mutex:
            if len(self._waiting) >= self._crowd - 1:
                return
            self._awaited = self._crowd - 1
        self._all_there.acquire(timeout=GATHER_S * self._crowd)
        with self._mutex:
            self._awaited = 0
            self._all_there.acquire(blocking=False)  # it may have been released just after the timeout

    def _settle(self, ticket: Ticket) -> None:
        """Remove `ticket` from the commit queue.

        If it was the ticket of the leader, wake the threads whose writes it has finished, put the unfinished writes
        back into the queue, and choose a new leader.
        """
        with self._mutex:
            ticket.gone = True
            _wake(ticket.next)
            if self._leader is ticket:
                ticket.settled = True
            if self._leader is ticket and not self._waiting and not ticket.along:
                self._leader = None  # no followers, and no waiting writes
                return
            if self._leader is not ticket:
                if ticket in self._waiting:  # no leader has taken it, and no leader may take it now
                    self._waiting.remove(ticket)
                # If the leader of this follower is running, the leader settles it.
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
        """Wake the thread that is the leader of the queue now. If an interrupted call has already woken this thread,
        nothing happens.
        """
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
            ticket.error = None  # avoids a reference cycle through the traceback
    return ticket.result


def _do_in_other_thread(ticket: Ticket, thread: int, make: Callable[[Ticket], Any]) -> Any:
    """Make the write `ticket` by calling `make(ticket)` in a new thread, which receives no signals. Wait for its end
    and return its result.

    `thread` is the thread for which the write is made.
    """
    over = threading.Lock()
    over.acquire()

    def work() -> None:
        try:
            ticket.result = make(ticket)
        except BaseException as problem:  # noqa: BLE001 - raised in the waiting thread
            ticket.error = problem
        finally:
            ticket.settled = True
            over.release()

    writes_at_work[thread] = ticket
    try:
        start_new_thread(work, ())
    except RuntimeError:  # no more threads can be started
        work()
    over.acquire()
    _forget(thread, ticket)
    return _outcome(ticket)


def is_main_thread() -> bool:
    """Return whether signal handlers may interrupt this thread."""
    return get_ident() == _main_thread


_main_thread = threading.main_thread().ident


def _note_main_thread() -> None:
    global _main_thread
    _main_thread = get_ident()


os.register_at_fork(after_in_child=_note_main_thread)  # a child has only the thread that forked


def is_from_signal_handler(problem: BaseException) -> bool:
    """Return whether a signal handler raised the exception, and not the code that it interrupted.

    The frame of a handler in the traceback is recognised by its argument. Python passes the interrupted frame
    to the handler, and this frame is also the caller of the handler.
    """
    trace = problem.__traceback__
    while trace is not None:
        below = trace.tb_frame.f_back
        for value in trace.tb_frame.f_locals.values() if below is not None else ():
            if value is below or (type(value) is tuple and any(part is below for part in value)):
                return True
        trace = trace.tb_next
    return False
