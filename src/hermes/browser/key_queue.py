"""Processes keys in the order in which they were pressed. Keys typed fast have the same effect as keys typed
slowly.

A terminal can deliver many keys at once. A key that edits the query is handled at once. Any other key waits
until the earlier keys have taken effect: the search is finished, the dialog is drawn, the change is undone.
All later keys wait too. No key is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from hermes.browser.app import Browser

PATIENCE_S = 0.01
"""Seconds between two checks whether the list is up to date."""
CLOSED_S = 0.05
"""Seconds between two checks whether a widget has been removed."""

Pressed = events.Key | events.Paste


class KeyQueue:
    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._waiting: deque[Pressed] = deque()
        self._is_working = False

    def put(self, event: Pressed) -> None:
        self._waiting.append(event)
        if not self._is_working:
            self._is_working = True
            self._browser.run_worker(self._work(), group="keys", exit_on_error=False)

    def clear(self) -> None:
        self._waiting.clear()

    async def _work(self) -> None:
        browser = self._browser
        try:
            while self._waiting:
                event = self._waiting[0]
                if not browser.can_handle_at_once(event):
                    if not browser.is_ready_for(event):
                        await asyncio.sleep(PATIENCE_S)
                        continue
                    await browser.load_current_row()
                if not self._waiting or self._waiting.popleft() is not event:
                    continue  # `clear` removed the key
                target = browser.focused or browser.screen
                await App.on_event(browser, event)
                await _wait_for_handlers(target, browser)
        finally:
            self._is_working = False


async def _wait_for_handlers(target: MessagePump, browser: Browser) -> None:
    """Wait until a widget and all widgets that contain it have handled a key, and the focus has moved."""
    node: MessagePump | None = target
    while node is not None and node is not browser:
        await _wait_for_messages(node)
        node = node._parent
    # The handler of the key may post a further message to the app, such as a change of the focus.
    await _wait_for_messages(browser)
    await _wait_for_messages(browser)


async def _wait_for_messages(node: MessagePump) -> None:
    """Wait until a node of the Textual application has handled the Textual messages that are in its queue now,
    or has been removed."""
    handled = asyncio.Event()
    if node.call_later(handled.set):
        while not handled.is_set() and node.is_running:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSED_S):
                    await handled.wait()
