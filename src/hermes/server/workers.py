"""Worker threads for the store calls and the CPU work of API requests, shared fairly between API keys.

Slow work must not run in the event loop. Each key may use at most `PER_KEY` threads at once. Calls that wait for a
thread are started in round-robin order over the keys. Therefore a key with many requests delays only itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

THREADS = 8
PER_KEY = 2


class Workers:
    def __init__(self, threads: int = THREADS, per_key: int = PER_KEY) -> None:
        self._free, self._per_key = threads, per_key
        self._executor = ThreadPoolExecutor(threads, "api")
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The waiting jobs of each key. The first key is served next."""

    async def run(self, key: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        await self._get_thread(key)
        loop = asyncio.get_running_loop()
        try:
            job = self._executor.submit(work, *args, **options)
        except BaseException:
            self._release(key)
            raise
        # A job whose caller was cancelled occupies its thread until it ends.
        job.add_done_callback(lambda _: _run_and_report(loop, partial(self._release, key)))
        return await asyncio.wrap_future(job)

    @asynccontextmanager
    async def reserve(self, key: str) -> AsyncIterator[None]:
        """Occupy one of the threads that the API key `key` may use, until the context manager is left. Used for work
        that runs in threads of other pools. That work must not call `run`."""
        await self._get_thread(key)
        try:
            yield
        finally:
            self._release(key)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _get_thread(self, key: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._start_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(key)
            raise

    def _start_waiting(self) -> None:
        while self._free and (key := self._next_key()) is not None:
            turns = self._waiting.pop(key)
            turn = turns.popleft()
            if turns:
                self._waiting[key] = turns  # at the end of the queue
            if not turn.cancelled():
                self._free -= 1
                self._running[key] += 1
                turn.set_result(None)

    def _next_key(self) -> str | None:
        return next((key for key in self._waiting if self._running[key] < self._per_key), None)

    def _release(self, key: str) -> None:
        self._free += 1
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        self._start_waiting()


def _run_and_report(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, so no job waits
        loop.call_soon_threadsafe(work)
