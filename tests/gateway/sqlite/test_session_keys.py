"""Session keys after another program has deleted rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hermes.store.chats.origins import Chat
from hermes_state import SessionDB
from tests.gateway.test_session_keys import opened

ANOTHER_PROGRAM = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as other:
    other.execute("DELETE FROM sessions")
other.close()
"""


def test_a_key_is_taken_even_if_another_program_deleted_the_session_of_its_chat(home: Path) -> None:
    thread, person = Chat.of("telegram", "group", 1, 2, None), Chat.of("telegram", "group", 1, None, 2)
    with SessionDB() as db:
        first = opened(db, thread)
    subprocess.run([sys.executable, "-c", ANOTHER_PROGRAM, str(home / "state.db")], check=True)
    with SessionDB() as db:
        assert db.routing.get(first.session_key) is None
        assert db.routing.find_chat(first.session_key) == thread
        assert opened(db, person).session_key == f"{first.session_key}:%chat+participant"
        assert db.routing.find_chat("nobody's") is None
