"""Warnings of the log on the screen of a chat: above the prompt, or above the answer that is being drawn.

Without this, Python prints them to stderr, in the middle of what is drawn there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class ScreenHandler(logging.Handler):
    """Hands each warning to the event loop of the chat, from whatever thread it comes. Repetitions are left out."""

    def __init__(self, show: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        super().__init__(logging.WARNING)
        self._show, self._loop = show, asyncio.get_running_loop()
        self._last = ""
        self._showing: set[asyncio.Task[None]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, record.getMessage())
        except Exception:  # noqa: BLE001 - a loop that has ended, arguments that do not fit: logging must not raise
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
    handler = ScreenHandler(show)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
