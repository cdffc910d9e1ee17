"""Threads for the store and for heavy work of the API, shared fairly between keys.

The event loop does nothing that takes long. A key has few threads at a time; waiting jobs start round-robin over the
keys. So a key with many requests delays only itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
        """By key; the key whose turn is next comes first."""

    async def run(self, key: str, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        await self._get_thread(key)
        loop = asyncio.get_running_loop()
        try:
            job = self._executor.submit(work, *args, **options)
        except BaseException:
            self._release(key)
            raise
        # A job that nobody waits for any more still has its thread, until it ends.
        job.add_done_callback(lambda _: _run_and_report(loop, partial(self._release, key)))
        return await asyncio.wrap_future(job)

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
                self._waiting[key] = turns  # behind all others
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
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(work)
