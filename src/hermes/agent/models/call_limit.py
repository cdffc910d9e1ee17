"""A semaphore for concurrent work in an event loop, and the limit on the concurrent model calls of this
program.

Without this limit, thousands of calls could wait inside the HTTP client, which iterates over all of them at
every event.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from hermes.logs import get_logger

THROTTLED_SHARE = 4
"""While a limit is throttled, one of so many slots is used."""


log = get_logger(__name__)


class Slots:
    """A semaphore that can be resized and that shows how many of its slots are in use. Waiting tasks get slots in the
    order in which they began to wait. A waiting task that is cancelled is removed from the queue at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.in_use = 0
        self.is_throttled: Callable[[], bool] = lambda: False
        """Whether only a part of the slots may be used at present."""
        self.on_nobody_waits: Callable[[], None] = lambda: None
        """Called when a slot is released and nobody waits for one."""
        self._waiting: OrderedDict[object, Callable[[], bool]] = OrderedDict()
        """For each waiter, a function that gives it a slot. It returns False if the slot is not needed any more."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def _has_free(self) -> bool:
        return self.in_use < (max(1, self.most // THROTTLED_SHARE) if self.is_throttled() else self.most)

    async def acquire(self) -> None:
        if self._has_free and not self._waiting:
            self.in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = partial(_wake, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if not turn.cancelled():  # it had got a slot
                self.release()
            raise

    def call_when_free(self, name: str, start: Callable[[], bool]) -> None:
        """Call `start` as soon as a slot is free. If `start` returns True, it keeps the slot. If it returns
        False, the slot becomes free again.

        While `start` waits for a slot, a second call of this method with the same `name` has no effect.
        """
        self._waiting.setdefault(name, start)
        self.hand_out()

    def release(self) -> None:
        self.in_use -= 1
        self.hand_out()
        if not self._waiting:
            self.on_nobody_waits()

    def resize(self, most: int) -> None:
        self.most = most
        self.hand_out()

    def hand_out(self) -> None:
        """Give the free slots to the waiting tasks and functions, in the order in which they began to wait."""
        while self._waiting and self._has_free:
            _, give = self._waiting.popitem(last=False)
            self.in_use += 1
            is_used = False
            try:
                is_used = give()
            except Exception as problem:  # the caller is somebody else, who released a slot
                log.exception("work that waited for a slot did not start: %s", problem)
            finally:
                self.in_use -= not is_used

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


def _wake(turn: asyncio.Future[None]) -> bool:
    if turn.done():  # cancelled
        return False
    turn.set_result(None)
    return True


_limit: Slots | None = None


def set_limit(limit: Slots | None) -> None:
    """Limit the model calls of this program. None removes the limit."""
    global _limit
    _limit = limit


def take_call_slot() -> AbstractAsyncContextManager[None]:
    """Return an async context manager. Inside its `async with` block, the caller holds the slot for one model
    call."""
    return nullcontext() if _limit is None else _limit
