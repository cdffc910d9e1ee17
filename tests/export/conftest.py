"""Sessions in the form that `export_session` returns, and the export formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes.export.formats import FORMATS
from hermes.export.plan import group_conversations
from hermes_state import SessionDB
from tests.browser.conftest import browsing as browsing
from tests.chat.conftest import typing as typing
from tests.cli.conftest import hermes as hermes

Written = Callable[..., str]

T = 1_780_000_000.0


@pytest.fixture
def written(db: SessionDB) -> Written:
    """Return a function that exports sessions: `written("md", "a")` returns the conversation of session `a`
    as Markdown."""

    def write(name: str, *session_ids: str) -> str:
        chosen = group_conversations(db.outlines(session_ids, whole=True))
        return "".join(FORMATS[name].write(chosen, db.export_session))

    return write


def talk(db: SessionDB, session_id: str, *said: tuple[str, Any], **more: Any) -> list[int]:
    """Create a session with these messages, one second apart. Return their ids."""
    started_at = more.pop("started_at", T)
    db.create_session(session_id, more.pop("source", "cli"), started_at=started_at, **more)
    return [
        db.append_message(session_id, role, content, timestamp=started_at + 1 + step)
        for step, (role, content) in enumerate(said)
    ]


def compressed(db: SessionDB) -> str:
    """Create a conversation of two sessions. The second one carries two messages of the first. Return the id
    of the second."""
    said = talk(db, "first", ("user", "alpha"), ("assistant", "beta"), ("user", "gamma"))
    tip = db.begin_continuation("first", "the summary", said[1:], session_id="second", started_at=T + 100)
    db.append_message(tip, "user", "delta", timestamp=T + 101)
    return tip
