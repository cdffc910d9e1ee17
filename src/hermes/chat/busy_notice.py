"""The notice that the store is busy. It is shown while a command waits for the store, but not while a
question to the person is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

BUSY_S = 1.5
"""Seconds to wait for the store before the notice is shown."""
BUSY = "The store is busy; waiting …"


class BusyNotice:
    def __init__(self, show: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`show` is the function that prints the notice that the store is busy. It must not overwrite an open
        menu."""
        self._show = show
        self._timer: asyncio.TimerHandle | None = None
        self._showing: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Use this around code that may wait for the store. If the `with` block takes longer than `BUSY_S`
        seconds, show the notice that the store is busy."""
        self._start()
        try:
            yield
        finally:
            self._cancel()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not show the notice that the store is busy while the `with` block runs. Use this around a question
        to the person. After the block, the waiting time starts again from zero."""
        is_watching = self._timer is not None
        self._cancel()
        try:
            yield
        finally:
            if is_watching:
                self._start()

    def _start(self) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(BUSY_S, self._begin)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _begin(self) -> None:
        self._showing = asyncio.create_task(self._show())
