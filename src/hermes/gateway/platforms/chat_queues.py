"""One queue of received messages for each chat. Messages stay in order within a chat, and a slow chat does not delay
the others.

Some platforms acknowledge by position: an offset or a sync token. Their adapters number the messages. The position may
advance only up to the oldest number that is not accepted yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress

Work = Callable[[], Awaitable[None]]
"""A function that passes a message to the gateway. It returns when the message is durable."""


class ChatQueues:
    def __init__(self) -> None:
        self._open: Counter[int] = Counter()
        self._queues: dict[Hashable, deque[tuple[Sequence[int], Work]]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._settled = asyncio.Event()
        """Set when all messages are accepted, or when one has failed."""

    @property
    def oldest(self) -> int | None:
        """The lowest message number that the gateway has not accepted yet, or None if all messages are accepted."""
        return min(self._open, default=None)

    def add(self, chat: Hashable, numbers: Sequence[int], work: Work) -> None:
        """Run `work`, which passes received messages of `chat` to the gateway, after the earlier work of the same
        chat. `numbers` are the numbers of these messages. They count as not accepted until `work` is done."""
        self._open.update(numbers)
        self._settled.clear()
        if chat in self._queues:
            self._queues[chat].append((numbers, work))
            return
        self._queues[chat] = deque([(numbers, work)])
        worker = asyncio.create_task(self._work(chat), name=f"received in {chat}")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for at most `seconds` until the gateway has accepted all messages in the queues. If a message was
        not accepted because of an error, raise the error."""
        if self._open and self._failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._settled.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Cancel the work that is not done. The platform delivers the messages of that work again later."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self, chat: Hashable) -> None:
        queue = self._queues[chat]
        try:
            while queue:
                numbers, work = queue.popleft()
                await work()
                for number in numbers:
                    self._open[number] -= 1
                    if not self._open[number]:
                        del self._open[number]
        except Exception as problem:  # noqa: BLE001 - `settle` raises it
            self._failure = self._failure or problem
        finally:
            del self._queues[chat]
            if not self._open or self._failure is not None:
                self._settled.set()
