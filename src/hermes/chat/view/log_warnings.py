"""Shows the warnings that the program logs on the screen of the terminal conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class ScreenHandler(logging.Handler):
    """A log handler that passes each warning, from any thread, to the event loop of the terminal program. A
    repeated warning is dropped."""

    def __init__(self, show: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        super().__init__(logging.WARNING)
        self._show, self._loop = show, asyncio.get_running_loop()
        self._last = ""
        self._showing: set[asyncio.Task[None]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, record.getMessage())
        except Exception:  # noqa: BLE001 - closed loop or wrong log arguments: logging must not raise
            self.handleError(record)

    def _begin(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        task = self._loop.create_task(self._show(text))
        self._showing.add(task)
        task.add_done_callback(self._showing.discard)


@contextmanager
def show_warnings(show: Callable[[str], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """During the `with` block, show logged warnings above the prompt or the answer, with the function `show`.
    Python's default log handler would print them in the middle of the prompt or the answer."""
    handler = ScreenHandler(show)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
