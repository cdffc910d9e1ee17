"""An event loop with simulated time. When all tasks wait, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Timers run in order, so that a test always behaves in the same way. The loop supports no threads and no
    sockets."""

    def __init__(self) -> None:
        super().__init__(_Hurrying(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Hurrying(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self._loop.now += timeout
        return list(super().select(0 if timeout is not None else None))


def simulated(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)
