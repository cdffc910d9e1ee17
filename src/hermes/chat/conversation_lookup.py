"""Finds the latest terminal conversation, and describes conversations in a list of choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.store.people import LOCAL, find_person
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

PAGE = 20


def find_latest_id(db: SessionDB) -> str | None:
    row = find_latest(db)
    return None if row is None else str(row["id"])


def find_latest(db: SessionDB, workspace: Path | None = None) -> Row | None:
    """Return the terminal conversation with the latest activity; None if there is none.

    Empty conversations and conversations that belong to a person on a platform are skipped. With `workspace`,
    only conversations of that workspace are considered.
    """
    offset = 0
    while True:
        page = db.list_conversations(
            sources=["cli"], kinds=["chat"], workspace=workspace, limit=PAGE, offset=offset
        )
        for row in page.rows:
            session = db.get_session(row["id"])
            if session is None or session["owner"] != LOCAL:  # it was handed off to a person on a platform
                continue
            # A branch without messages of its own has the context of its parent.
            if row["message_count"] or db.get_context(row["id"]):
                return row
        offset += PAGE
        if offset >= page.total:
            return None


def describe_candidates(rows: Sequence[Row]) -> list[str]:
    """Return one line for each conversation, for a list of choices. If any of the conversations belongs to
    another owner than the user of this machine, the lines also name the owners."""
    is_shared = any(describe_owner(row) for row in rows)
    return [describe_conversation(row, is_shared) for row in rows]


def describe_conversation(row: Row, with_owner: bool = True) -> str:
    """Describe a conversation in one line of a list of choices. With `with_owner`, name the person or room to
    which it belongs."""
    name = make_printable(row["title"] or row["preview"] or "—", width_limit=60)
    when = clock.format_relative(row["last_active"], clock.now())
    whose = f", {describe_owner(row) or 'on this machine'}" if with_owner else ""
    return f"{row['id']}  {name}  ({when}{whose})"


def describe_owner(row: Row) -> str:
    """Return a text that names the owner of a conversation and the chat where it takes place. Return an empty
    string if the conversation belongs to the user of this machine."""
    owner = row.get("owner") or LOCAL
    if owner == LOCAL:
        return ""
    person, place = find_person(owner), row.get("display_name") or row.get("chat_id")
    owner_text = f"{row['source']}, {f'person {person}' if person else 'everybody in the chat'}"
    where = f"{row.get('chat_type') or 'chat'} {place}" if place else None
    thread = f"thread {row['thread_id']}" if row.get("thread_id") else None
    return make_printable(", ".join(filter(None, (owner_text, where, thread))), width_limit=80)
