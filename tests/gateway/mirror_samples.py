"""Conversations of a gateway, and the data that must be equal in the original store and in the rebuilt one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.store.people import Principal
from hermes_state import SessionDB
from tests import warm_command

ANN = Principal("telegram", "42", "42")
ROOM = Principal("telegram", None, "-100", "7", "group")

NOT_IN_A_TRANSCRIPT = ("lease_epoch", "trashed_at")
"""Columns whose values are not restored by a rebuild, because leases and the trash are not in transcripts. As
in every import, requested handoffs, inbox, outbox and topics are dropped. Routes get the time of the
rebuild."""


def begun(db: SessionDB, who: Principal = ANN, *, key: str | None = None, **more: Any) -> str:
    """Create a session of a chat in the way the gateway does."""
    mine = db.scoped(who)
    session_id = mine.create_session(shared=who.user is None, session_key=key, **more)
    if key is not None:
        mine.route(key, session_id)
    return session_id


def export_comparable(db: SessionDB, session_id: str) -> dict[str, Any] | None:
    exported = db.export_session(session_id)
    if exported is None:
        return None
    return {name: value for name, value in exported.items() if name not in NOT_IN_A_TRANSCRIPT}


def everything(db: SessionDB) -> dict[str, Any]:
    return {row["id"]: export_comparable(db, row["id"]) for row in db.export_all()}


def contexts(db: SessionDB) -> dict[str, Any]:
    """Return the contexts of all sessions."""
    return {row["id"]: db.get_messages_as_conversation(row["id"]) for row in db.export_all()}


def rebuilt(home: Path, *words: str, into: str = "again.db") -> Path:
    """Rebuild a store with the real command and return the path of the new store."""
    target = home / into
    command = ("sessions", "rebuild", "--from-transcripts", "--into", str(target))
    done = warm_command.run([*command, *words])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return target
