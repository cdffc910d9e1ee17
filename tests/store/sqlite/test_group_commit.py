"""A group commit completes every write in its queue, even if a thread leaves the queue early."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from hermes.store.sqlite import group_commit
from hermes.store.sqlite.group_commit import CommitQueue, Ticket

FOLLOWERS = 6


class Plain:
    """Transactions that commit immediately and never need a rollback."""

    def transact(self, batch: list[Ticket]) -> None:
        for ticket in batch:
            ticket.result = ticket.work(None)
            ticket.finished = True

    def undo(self, batch: list[Ticket]) -> None:
        pass

    def find_way_past(self, ticket: Ticket, interrupted: list[Ticket]) -> None:
        pass


class Slow(Plain):
    """Transactions that end only when the test allows it."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = [threading.Event() for _ in range(FOLLOWERS + 2)]

    def transact(self, batch: list[Ticket]) -> None:
        self.begun.append(len(batch))
        assert self.may_end[len(self.begun) - 1].wait(60)
        super().transact(batch)


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.001)


def start(queue: CommitQueue, answers: list[int], number: int) -> threading.Thread:
    def work() -> None:
        answers.append(queue.do(Ticket(lambda _: number, share=True)))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("place", range(FOLLOWERS))
@pytest.mark.parametrize("taken", [False, True], ids=["while it waits", "while it is worked on"])
def test_an_interrupted_thread_delays_no_other(place: int, taken: bool) -> None:
    transact, answers = Slow(), list[int]()
    queue, interrupted = CommitQueue(transact), threading.Event()
    threads = [start(queue, answers, 0)]
    eventually(lambda: len(transact.begun) == 1)

    def join(number: int, waiting: int) -> None:
        threads.append(start(queue, answers, number))
        eventually(lambda: len(queue._waiting) == waiting)

    def interrupt() -> None:
        eventually(lambda: len(queue._waiting) == place + 1)
        for number in range(place + 1, FOLLOWERS):
            join(number, number + 1)
        if taken:  # the first follower leads the others
            transact.may_end[0].set()
            eventually(lambda: len(transact.begun) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert interrupted.wait(60)
        for may_end in transact.may_end:
            may_end.set()

    for number in range(1, place + 1):
        join(number, number)
    helper = threading.Thread(target=interrupt, daemon=True)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        queue.do(Ticket(lambda _: -1, share=True))
    interrupted.set()
    for thread in (helper, *threads):
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(answers) == list(range(FOLLOWERS))


def test_a_leader_waits_for_the_threads_of_the_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "GATHER_S", 100.0)
    transact, answers = Slow(), list[int]()
    queue = CommitQueue(transact)
    alone = start(queue, answers, -1)
    eventually(lambda: len(transact.begun) == 1)
    crowd = [start(queue, answers, number) for number in range(FOLLOWERS)]
    eventually(lambda: len(queue._waiting) == FOLLOWERS)
    for may_end in transact.may_end:
        may_end.set()
    for thread in (alone, *crowd):
        thread.join(60)
    assert transact.begun == [1, FOLLOWERS]
    again = [start(queue, answers, FOLLOWERS)]
    # one by one, so that they share a commit only if the leader waits for them
    for number in range(1, FOLLOWERS):
        eventually(lambda: len(queue._waiting) == len(again) - 1)
        again.append(start(queue, answers, FOLLOWERS + number))
    for thread in again:
        thread.join(60)  # the wait must end before its limit of 100 seconds
        assert not thread.is_alive()
    assert transact.begun == [1, FOLLOWERS, FOLLOWERS]
    assert sorted(answers) == list(range(-1, 2 * FOLLOWERS))


def test_written_values_are_freed_at_once() -> None:
    """The queue keeps no reference to written values, because they can be large. They are freed without the
    cycle collector."""

    class Large: ...

    queue, large = CommitQueue(Plain()), Large()
    known = weakref.ref(large)
    gc.disable()
    try:
        queue.do(Ticket(partial(lambda given, _writer: len(str(given)), large), share=True))
        del large
        assert known() is None
    finally:
        gc.enable()


class Handlers:
    """Kinds of callables that can be passed to `signal.signal`."""

    def __call__(self, _number: int, _frame: object) -> None:
        raise ValueError("timeout")

    def verb(self, _number: int, _frame: object) -> None:
        self(_number, None)


def any_arguments(*_args: object) -> None:
    raise ValueError("timeout")


@pytest.mark.parametrize(
    "handler", [Handlers(), Handlers().verb, any_arguments, partial(any_arguments, "more")]
)
def test_an_exception_of_a_signal_handler_is_recognised(handler: Callable[..., None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(ValueError, match="timeout") as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert group_commit.is_from_signal_handler(caught.value)
        with pytest.raises(ValueError, match="timeout") as caught:
            any_arguments(1, None)
        assert not group_commit.is_from_signal_handler(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
