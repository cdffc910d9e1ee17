"""The full-screen browser of `hermes sessions browse`: find, read, label, export and choose a conversation.

Owns the screens and their keys. Textual is an optional extra: nothing here is loaded before `browse` is called.
Imports reading, export and the store; no agent and no other surface.
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
) -> str | None:
    """Let a person choose a conversation; the id of the session to resume, or None if they chose none.

    `query` is typed for them already, and `at` is the session and message that is shown first. With `everything` jobs,
    subagents, tool sessions and the archive are shown from the start. Raises KeyboardInterrupt after Ctrl-C.
    """
    for name in ("COLUMNS", "LINES"):
        # Left there by some parents; the terminal itself knows better, and says when it changes.
        os.environ.pop(name, None)
    from hermes.browser.app import INTERRUPTED, Browser
    from hermes.browser.view_state import View, show_everything
    from hermes.errors import HermesError

    view = View(query=query, sources=tuple(sources) if sources else None, limit=limit)
    browser = Browser(db, show_everything(view) if everything else view, at)
    chosen = browser.run()
    if chosen is INTERRUPTED:
        raise KeyboardInterrupt
    if browser.return_code:
        raise HermesError("the browser ended unexpectedly")
    return chosen or None
