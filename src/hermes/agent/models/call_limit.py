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


class Slots:
    """A semaphore that can be resized and that reports how many slots are in use. Waiters get a slot in the
    order of arrival. A cancelled waiter leaves the queue at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.in_use = 0
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.on_release: Callable[[], None] = lambda: None
        """Called after a slot was released."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_acquire(self) -> bool:
        """Take a slot if one is free and nobody waits. Return whether it was taken."""
        is_free = self.in_use < self.most and not self._waiting
        self.in_use += is_free
        return is_free

    async def acquire(self) -> None:
        if self.try_acquire():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if not turn.cancelled():  # the waiter already had a slot
                self.release()
            raise

    def release(self) -> None:
        self.in_use -= 1
        self._hand_out()
        self.on_release()

    def resize(self, most: int) -> None:
        self.most = most
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.in_use < self.most:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                self.in_use += 1
                turn.set_result(None)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


_limit: Slots | None = None


def set_limit(limit: Slots | None) -> None:
    """Limit the model calls of this program. None removes the limit."""
    global _limit
    _limit = limit


def take_call_slot() -> AbstractAsyncContextManager[None]:
    """Return the context in which one model call is made."""
    return nullcontext() if _limit is None else _limit
