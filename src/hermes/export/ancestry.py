"""A conversation as a person saves it: with all that came before it, each message once.

That are the sessions before a compression, and of a conversation that it branched off, everything up to the branch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.export.jsonl import NOT_TOLD
from hermes.export.plan import Conversation, Session
from hermes.store.sessions.selection import Outline
from hermes.text import escape_json, replace_surrogates, to_text

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


class Ancestry(NamedTuple):
    conversation: Conversation
    sessions: dict[str, Session]
    """In their order, with the messages that belong to the conversation."""

    def load(self, session_id: str) -> Session | None:
        return self.sessions.get(session_id)


def read_ancestors(db: SessionDB, session_id: str) -> Iterator[Session]:
    """A session and those before it, newest first, each with the messages that belong to the conversation.

    The sessions before a compression belong to it with all messages, those before a branch up to the branch.
    """
    seen: set[str] = set()
    at: str | None = session_id
    last: int | None = None
    while at is not None and at not in seen:
        seen.add(at)
        session = db.export_session(at)
        if session is None:
            break
        kept = [row for row in session["messages"] if last is None or row["id"] <= last]
        yield {**session, "messages": kept}
        if session["relation"] == "branch":
            carried = [*session.get("context", ()), *session.get("rewound_context", ())]
            branched = max((messages["last"] for messages in carried), default=0)
            last = branched if last is None else min(last, branched)
        elif session["relation"] != "compression":
            break
        at = session["parent_session_id"]


def gather_ancestry(db: SessionDB, session_id: str) -> Ancestry | None:
    """A stored conversation; None if it is not there."""
    found = list(read_ancestors(db, session_id))[::-1]
    outlines = {session.id: session for session in db.outlines([session["id"] for session in found])}
    segments = [outlines[session["id"]] for session in found if session["id"] in outlines]
    if not segments:
        return None
    return Ancestry(Conversation(session_id, segments), {session["id"]: session for session in found})


def make_ancestry(session_id: str, rows: list[dict[str, Any]], at: float) -> Ancestry:
    """A conversation that is in no store."""
    messages = [{"id": number, "timestamp": at, **row} for number, row in enumerate(rows, 1)]
    outline = Outline(session_id, session_id, None, "", "cli", "main", None, None, at, at, len(rows))
    session: Session = {"id": session_id, "source": "cli", "started_at": at, "messages": messages}
    return Ancestry(Conversation(session_id, [outline]), {session_id: session})


def to_json(ancestry: Ancestry) -> str:
    """One object with all messages. Each names its session; what a rewind took back is marked (`active`: 0)."""
    newest = list(ancestry.sessions.values())[-1]
    messages = [
        {"session_id": session["id"], **message}
        for session in ancestry.sessions.values()
        for message in session["messages"]
    ]
    left_out = ("id", "messages", "context", "rewound_context", "model_calls", *NOT_TOLD)
    exported = {
        "session_id": newest["id"],
        **{name: value for name, value in newest.items() if name not in left_out},
        "title": ancestry.conversation.title,
        "session_start": ancestry.conversation.started_at,
        "last_updated": ancestry.conversation.last_active,
        "sessions": list(ancestry.sessions),
        "message_count": len(messages),
        "messages": messages,
    }
    return (
        escape_json(replace_surrogates(json.dumps(exported, default=to_text, ensure_ascii=False, indent=2)))
        + "\n"
    )
