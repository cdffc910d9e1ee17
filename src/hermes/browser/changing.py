"""Changes made in the browser, and taken back: one after the other, in the order in which they were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.browser import doing
from hermes.browser.doing import Done
from hermes.browser.rows import Conversation

if TYPE_CHECKING:
    from hermes.browser.app import Browser
    from hermes.sessiondb import SessionDB

MOST_UNDOS = 100

Change = Callable[["SessionDB", Conversation], Done | None]


class Changes:
    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._undos: list[tuple[Done, int]] = []
        """What was done, and where in the list."""
        self._turns = asyncio.Lock()

    async def make(self, change: Change) -> None:
        async with self._turns:
            await self._browser.settled()
            one = self._browser.list.current  # looked up in turn: a key pressed twice means two conversations
            if one is not None:
                self._show(one, await asyncio.to_thread(change, self._db, one))

    async def rename(self, one: Conversation, title: str) -> None:
        """A title that cannot be given is an error, and the question stays open."""
        async with self._turns:
            done = await asyncio.to_thread(doing.rename, self._db, one, title)
            self._browser.close_question()
            self._show(one, done)

    async def undo(self) -> None:
        async with self._turns:
            if not self._undos:
                self._browser.status.tell("There is nothing to undo")
                return
            done, index = self._undos.pop()
            if not await asyncio.to_thread(done.undo):
                self._browser.tell_gone(done.conversation)
                return
            self._browser.status.tell(f"Undone: {done.told}")
            self._browser.ask_again(index, done.conversation)

    def _show(self, one: Conversation, done: Done | None) -> None:
        browser = self._browser
        if done is None:
            browser.tell_gone(one)
            return
        self._undos = [*self._undos, (done, browser.list.cursor)][-MOST_UNDOS:]
        if done.leaves and not (browser.view.archived and done.changes):
            browser.list.drop(one)
            browser.ask_again()
        else:
            browser.list.change(one, **done.changes)
        browser.status.tell(f"{done.told} · ctrl+z to undo")
