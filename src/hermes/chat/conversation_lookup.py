"""Which conversation a person means: the last one, or one by any id, beginning of an id, or title of its family.

Whatever of a family is named, the answer is its live end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock
from hermes.store.people import LOCAL, find_person
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

LATEST = "latest"
PAGE = 20


class Lookup(NamedTuple):
    id: str | None
    """Where the conversation goes on; None if there is no such one, or several."""
    candidates: list[Row]
    """One row for each conversation that it might be: `id` (its live end), `title`, `preview`, `last_active`."""


def find_conversation(db: SessionDB, name: str, *, preferred_owner: str | None = None) -> Lookup:
    """With `preferred_owner`, a title that several people use means that owner's."""
    if name.strip() == LATEST and db.get_session_by_title(LATEST) is None:
        row = find_latest(db)
        return Lookup(None if row is None else row["id"], [])
    named = db.named(name, preferred_owner=preferred_owner)
    if named.id is not None:
        return Lookup(db.get_compression_tip(named.id), [])
    by_tip: dict[str, Row] = {}
    for row in named.candidates:  # several segments of one conversation are one candidate
        tip = db.get_compression_tip(row["id"])
        by_tip.setdefault(tip, {**row, "id": tip})
    if len(by_tip) == 1:
        return Lookup(next(iter(by_tip)), [])
    return Lookup(None, list(by_tip.values()))


def find_latest(db: SessionDB, workspace: Path | None = None) -> Row | None:
    """The terminal conversation with the newest activity in which something was said."""
    offset = 0
    while True:
        page = db.list_conversations(
            sources=["cli"], kinds=["chat"], workspace=workspace, limit=PAGE, offset=offset
        )
        for row in page.rows:
            session = db.get_session(row["id"])
            if session is None or session["owner"] != LOCAL:  # handed over to somebody on a platform
                continue
            # A branch may only carry what was said before.
            if row["message_count"] or db.get_context(row["id"]):
                return row
        offset += PAGE
        if offset >= page.total:
            return None


def describe_candidates(rows: Sequence[Row]) -> list[str]:
    """A line for each conversation that may be meant. Where some are other people's, each line says whose."""
    is_shared = any(describe_owner(row) for row in rows)
    return [describe_conversation(row, is_shared) for row in rows]


def describe_conversation(row: Row, with_owner: bool = True) -> str:
    """A conversation in one line, for somebody who has to choose."""
    name = make_printable(row["title"] or row["preview"] or "—", width_limit=60)
    when = clock.format_relative(row["last_active"], clock.now())
    whose = f", {describe_owner(row) or 'on this machine'}" if with_owner else ""
    return f"{row['id']}  {name}  ({when}{whose})"


def describe_owner(row: Row) -> str:
    """Whose a conversation is, and in which chat; empty for one of this machine's owner."""
    owner = row.get("owner") or LOCAL
    if owner == LOCAL:
        return ""
    person, place = find_person(owner), row.get("display_name") or row.get("chat_id")
    owner_text = f"{row['source']}, {f'person {person}' if person else 'everybody in the chat'}"
    where = f"{row.get('chat_type') or 'chat'} {place}" if place else None
    thread = f"thread {row['thread_id']}" if row.get("thread_id") else None
    return make_printable(", ".join(filter(None, (owner_text, where, thread))), width_limit=80)
