"""Fixtures of the tests of the documented interface. They provide one store for many examples and functions
that fill it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from hermes_state import SessionDB

Row = dict[str, Any]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """Open one store for all examples of a property test. With `new_id`, each example uses its own
    session."""
    with SessionDB(tmp_path_factory.mktemp("shelf") / "state.db", durability="normal") as store:
        yield store


@contextmanager
def passing(db: SessionDB) -> Iterator[None]:
    """Delete all sessions that the block creates, so that the next example finds an empty store."""
    try:
        yield
    finally:
        for row in db.search_sessions(limit=100_000):
            db.delete_session(row["id"])


_numbers = count(1)


def new_id() -> str:
    return f"session-{next(_numbers):06}"


def session(db: SessionDB, session_id: str) -> Row:
    """Return the row of a session, which must exist."""
    row = db.get_session(session_id)
    assert row is not None
    return row


def say(db: SessionDB, session_id: str, *texts: str, source: str = "cli", **fields: Any) -> list[int]:
    """Create a session with these user messages and return their ids."""
    db.create_session(session_id, source, **fields)
    return [db.append_message(session_id, "user", text) for text in texts]


def compress(db: SessionDB, parent: str, child: str, *texts: str, **fields: Any) -> str:
    """End `parent` by compression and create the session `child` that continues it. Return the id of the
    child."""
    db.end_session(parent, "compression")
    say(db, child, *texts, parent_session_id=parent, **fields)
    return child


def contents(rows: list[Row]) -> list[Any]:
    return [row["content"] for row in rows]


def ids(rows: list[Row]) -> list[Any]:
    return [row["id"] for row in rows]
