"""Conversations of a gateway, and what a store that was rebuilt from their transcripts has in common with the first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hermes.store.people import Principal
from hermes_state import SessionDB

ANN = Principal("telegram", "42", "42")
ROOM = Principal("telegram", None, "-100", "7", "group")

NOT_IN_A_TRANSCRIPT = ("lease_epoch", "trashed_at")
"""What a rebuilt store cannot and should not know: which process may write, and what was in the trash (left out).
Handoffs that were asked for and not done are forgotten as in every import, and so are inbox, outbox and topics.
Routing has the times of the rebuild."""


def begun(db: SessionDB, who: Principal = ANN, *, key: str | None = None, **more: Any) -> str:
    """A session of a chat, as the gateway makes it."""
    mine = db.scoped(who)
    session_id = mine.create_session(shared=who.user is None, session_key=key, **more)
    if key is not None:
        mine.route(key, session_id)
    return session_id


def told(db: SessionDB, session_id: str) -> dict[str, Any] | None:
    exported = db.export_session(session_id)
    if exported is None:
        return None
    return {name: value for name, value in exported.items() if name not in NOT_IN_A_TRANSCRIPT}


def everything(db: SessionDB) -> dict[str, Any]:
    return {row["id"]: told(db, row["id"]) for row in db.export_all()}


def contexts(db: SessionDB) -> dict[str, Any]:
    """What the model would be given, everywhere."""
    return {row["id"]: db.get_messages_as_conversation(row["id"]) for row in db.export_all()}


def rebuilt(home: Path, *words: str, into: str = "again.db") -> Path:
    """Run the real command; the store it made."""
    target = home / into
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "hermes.cli.main",
        "sessions",
        "rebuild",
        "--from-transcripts",
    ]
    done = subprocess.run(
        [*command, "--into", str(target), *words], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return target
