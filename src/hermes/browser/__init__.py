"""The full-screen browser of `hermes sessions browse`: find, read, label, export and choose a conversation.

This folder owns the screens and their keys. Textual is an optional extra, so its modules are imported only
when `browse` is called. The folder imports the store handles, recall, export and the store, but no agent and
no other surface.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


def browse(
    db: SessionDB,
    *,
    query: str = "",
    at: tuple[str, int | None] | None = None,
    sources: Sequence[str] | None = None,
    everything: bool = False,
    limit: int | None = None,
    workspace: str | None = None,
) -> str | None:
    """Let the user choose a conversation. Return the id of the session to resume; None if none was chosen.
    Raise KeyboardInterrupt after Ctrl-C.

    `query` is the initial query. `at` is the session and the message to show first. With `everything`, jobs,
    subagents, tool sessions and the archive are shown from the start. With `workspace`, only the
    conversations of one project are shown. `workspace` is the path of the project or the end of that path.
    """
    for name in ("COLUMNS", "LINES"):
        # Some parent processes set these variables. Without them, Textual uses the real size of the terminal.
        os.environ.pop(name, None)
    from hermes.browser.app import INTERRUPTED, Browser
    from hermes.browser.view_state import View, show_everything
    from hermes.errors import HermesError
    from hermes.store.workspace import parse_workspace

    project = None if workspace is None else parse_workspace(workspace)
    view = View(query=query, sources=tuple(sources) if sources else None, limit=limit, workspace=project)
    browser = Browser(db, show_everything(view) if everything else view, at)
    chosen = browser.run()
    if chosen is INTERRUPTED:
        raise KeyboardInterrupt
    if browser.return_code:
        raise HermesError("the browser ended unexpectedly")
    return chosen or None


def draw(db: SessionDB, size: tuple[int, int]) -> list[str]:
    """Return the first screen of the browser as plain lines, for an output that is not a terminal."""
    import asyncio

    from hermes.browser.app import Browser
    from hermes.browser.view_state import View

    async def draw_screen() -> list[str]:
        browser = Browser(db, View())
        async with browser.run_test(size=size) as pilot:
            await pilot.pause()
            await browser.workers.wait_for_complete()
            await pilot.pause()
            return [strip.text.rstrip() for strip in browser.screen._compositor.render_strips()]

    return asyncio.run(draw_screen())
