"""Runs the browser on a real store. Tests press keys and read the screen as text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from textual.pilot import Pilot

from hermes.browser.app import Browser
from hermes.browser.view_state import View
from hermes_state import SessionDB

HOUR, DAY = 3600, 86400

AddSession = Callable[..., str]


class Screen:
    """The screen of the browser as text, and keys to press."""

    def __init__(self, app: Browser, pilot: Pilot[str]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Type `text` at the end of the query, as fast as possible."""
        for sign in text:
            self.app.search.insert_text_at_cursor(sign)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the browser has no pending work."""
        quiet = 0
        while quiet < 3 and self.app.is_running:
            await self.pilot.pause()
            busy = any(not worker.is_finished for worker in self.app.workers)
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.005)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true. The browser may still have pending work."""
        async with asyncio.timeout(30):
            while not condition():
                await self.pilot.pause()
                await asyncio.sleep(0.005)

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def status(self) -> str:
        return self.lines[-2].strip()

    @property
    def names(self) -> list[str]:
        """The names of the loaded conversations, in order."""
        rows = self.app.list.rows
        return [row.name for at in range(rows.total) if (row := rows.get(at)) is not None]

    @property
    def current(self) -> str:
        row = self.app.list.current
        return "" if row is None else row.name


Browsing = Callable[..., AbstractAsyncContextManager[Screen]]


@pytest.fixture(autouse=True)
def no_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pilot go on after a key as soon as the messages of the widgets are processed. By itself it waits
    until the process hardly uses the processor, 40 milliseconds at least. `Screen.settle` waits for pending work."""

    async def yield_once(*_: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr("textual.app.wait_for_idle", yield_once)
    monkeypatch.setattr("textual.pilot.wait_for_idle", yield_once)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLORTERM", "truecolor")
    time.tzset()


@pytest.fixture
def browsing(db: SessionDB) -> Browsing:
    """Return a function that opens the browser and waits until it has loaded: `async with browsing(size=(60,
    15)) as screen`."""

    @asynccontextmanager
    async def start(
        view: View | None = None,
        size: tuple[int, int] = (100, 30),
        at: tuple[str, int | None] | None = None,
        store: SessionDB | None = None,
    ) -> AsyncIterator[Screen]:
        app = Browser(store or db, view or View(), at)
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.settle()
            yield screen

    return start


@pytest.fixture
def add_session(db: SessionDB) -> AddSession:
    """Return a function that stores a conversation that is `age` seconds old. Its messages are alternately
    from the person and from the agent."""

    def add(
        session_id: str, *texts: str, title: str | None = None, source: str = "cli", age: float = 0
    ) -> str:
        when = time.time() - age
        db.create_session(session_id, source, started_at=when)
        for number, text in enumerate(texts or (f"hello from {session_id}",)):
            db.append_message(
                session_id, "assistant" if number % 2 else "user", text, timestamp=when + number
            )
        if title:
            db.set_session_title(session_id, title)
        return session_id

    return add
