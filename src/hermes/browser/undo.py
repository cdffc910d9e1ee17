"""Changes made in the browser, and taken back: stored one after the other, in the order of the keys.

The conversation meant is the one under the cursor when the key was pressed, however long the store takes. The list
shows the change at once, so that a key pressed twice means two conversations; if it fails, the list is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.browser import actions
from hermes.browser.actions import Step
from hermes.browser.rows import Conversation

if TYPE_CHECKING:
    from hermes.browser.app import Browser
    from hermes.db.session_db import SessionDB

MOST_UNDOS = 100


class Changes:
    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._undos: list[tuple[Step, int]] = []
        """What was done, and where in the list."""
        self._turns = asyncio.Lock()

    async def make(self, planned: Callable[[SessionDB, Conversation], Step]) -> None:
        await self._browser.settled()
        one, index = self._browser.list.current, self._browser.list.cursor
        if one is None:
            return
        step = planned(self._db, one)
        self._show(step)
        async with self._turns:
            try:
                is_there = await asyncio.to_thread(step.do)
            except BaseException:
                self._browser.ask_again(index, one)
                raise
            self._tell(step, index, is_there)

    async def rename(self, one: Conversation, title: str) -> None:
        """A title that cannot be given is an error, and the question stays open."""
        step = actions.rename(self._db, one, title)
        async with self._turns:
            is_there = await asyncio.to_thread(step.do)
            self._browser.close_question()
            self._show(step)
            self._tell(step, self._browser.list.cursor, is_there)

    async def undo(self) -> None:
        async with self._turns:
            if not self._undos:
                self._browser.status.tell("There is nothing to undo")
                return
            step, index = self._undos.pop()
            if not await asyncio.to_thread(step.undo):
                self._browser.tell_gone(step.conversation)
                return
            self._browser.status.tell(f"Undone: {step.told}")
            self._browser.ask_again(index, step.conversation)

    def _show(self, step: Step) -> None:
        browser = self._browser
        if step.leaves and not (browser.view.archived and step.changes):
            browser.list.drop(step.conversation)
        else:
            browser.list.change(step.conversation, **step.changes)

    def _tell(self, step: Step, index: int, is_there: object) -> None:
        if not is_there:
            self._browser.tell_gone(step.conversation)
            return
        self._undos = [*self._undos, (step, index)][-MOST_UNDOS:]
        self._browser.status.tell(f"{step.told} · ^Z to undo")
        if step.leaves:
            self._browser.ask_again()  # what it counts is different, too
