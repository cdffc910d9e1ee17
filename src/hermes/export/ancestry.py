"""A conversation with all its earlier messages, each included once, as `/save` writes it.

The sessions before a compression are included with all their messages. If the conversation is a branch, the
conversation from which it branched is included up to the branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hermes import clock
from hermes.export.plan import Conversation, Plan, Session, SessionSource
from hermes.store.sessions.selection import Outline


def read_ancestors(db: SessionSource, session_id: str) -> Iterator[Session]:
    """Yield a session and its ancestors, newest first. Each contains only the messages that belong to the
    conversation of the session: messages that an ancestor received after the branch are left out."""
    for session, last in _walk_ancestors(db, session_id):
        yield _cut_messages(session, last)


def plan_ancestry(db: SessionSource, session_id: str, unstored: Sequence[dict[str, Any]] = ()) -> Plan | None:
    """Plan the export of a stored conversation, followed by the messages `unstored`. Return None if the
    conversation does not exist."""
    lasts = {session["id"]: last for session, last in _walk_ancestors(db, session_id)}
    segments = db.outlines(reversed(lasts))
    now = clock.now()

    def read(segment_id: str) -> Session | None:
        session = db.export_session(segment_id)
        if session is None:
            return None
        kept = _cut_messages(session, lasts[segment_id])
        if segment_id == session_id:
            kept["messages"] += [{"id": "", "timestamp": now, **row} for row in unstored]
        return kept

    return Plan([Conversation(session_id, segments)], read) if segments else None


def plan_unstored(session_id: str, rows: Sequence[dict[str, Any]]) -> Plan:
    """Plan the export of a conversation that is not in a store."""
    now = clock.now()
    messages = [{"id": number, "timestamp": now, **row} for number, row in enumerate(rows, 1)]
    outline = Outline(session_id, session_id, None, "", "cli", "main", None, None, now, now, len(rows))
    session: Session = {"id": session_id, "source": "cli", "started_at": now, "messages": messages}
    return Plan([Conversation(session_id, [outline])], {session_id: session}.get)


def _walk_ancestors(db: SessionSource, session_id: str) -> Iterator[tuple[Session, int | None]]:
    """Yield (session, last message id) for a session and its ancestors, newest first. The messages of an
    ancestor after that id do not belong to the conversation of the first session.

    The id is None if all messages of the yielded session belong to the conversation.
    """
    seen: set[str] = set()
    at: str | None = session_id
    last: int | None = None
    while at is not None and at not in seen:
        seen.add(at)
        session = db.export_session(at)
        if session is None:
            break
        yield session, last
        if session["relation"] == "branch":
            carried = [*session.get("context", ()), *session.get("rewound_context", ())]
            branched = max((messages["last"] for messages in carried), default=0)
            last = branched if last is None else min(last, branched)
        elif session["relation"] != "compression":
            break
        at = session["parent_session_id"]


def _cut_messages(session: Session, last: int | None) -> Session:
    kept = [row for row in session["messages"] if last is None or row["id"] <= last]
    return {**session, "messages": kept}
