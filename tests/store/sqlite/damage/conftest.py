"""Creates the store that the tests in this folder damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import MESSAGES, SESSIONS


@pytest.fixture
def store(home: Path) -> Path:
    """Create and close a store of six conversations with titles. One message is so long that it occupies many
    pages."""
    path = home / "state.db"
    with SessionDB(path) as db:
        for number in range(SESSIONS):
            name = f"s{number}"
            db.create_session(name, "cli", model="m", system_prompt=f"prompt of {name} " * 20)
            db.set_session_title(name, f"Title {number}")
            for at in range(MESSAGES):
                role = "user" if at % 2 == 0 else "assistant"
                calls = (
                    [{"id": f"c{at}", "function": {"name": "ls", "arguments": "{}"}}]
                    if at % 10 == 1
                    else None
                )
                db.append_message(
                    name, role, f"{name} message{at} zebra{number}x{at} " + "words " * 40, tool_calls=calls
                )
        db.append_message("s3", "user", "giant " * 20_000)
        db.set_meta("colour", "green")
        db.search_messages("zebra0x0")
    return path
