"""Ownership: assignment of a conversation to an owner. Other people can then no longer see it.

The local machine can see the sessions of every owner. A conversation that began at a terminal can therefore
be assigned to a person on a platform and still be continued at the terminal. Sessions of an older
installation have no owner. A person can continue such a session in their chat only after taking ownership.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes import errors
from hermes.store import derived
from hermes.store.arguments import require_text
from hermes.store.engine import Access, Writer
from hermes.store.people import LOCAL
from hermes.store.sessions.lineage import list_with_subagents
from hermes.store.sessions.sessions import EXISTS
from hermes.store.sessions.title_notes import BY_STORE
from hermes.store.sessions.titles import find_free_title

OWNED = "SELECT owner, title FROM sessions WHERE id = ?"
GIVE = "UPDATE sessions SET owner = ?, title = ?, title_by = coalesce(?, title_by) WHERE id = ?"


class OwnershipChange(NamedTuple):
    sessions: list[str]
    """All sessions of the conversation and its subagents."""
    changed: list[str]
    """The sessions that had another owner before."""


class Ownership:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def adopt(self, session_id: str, owner: str) -> list[str]:
        """Assign a conversation and its subagents to an owner. Return the ids of their sessions.

        Raise an error if the conversation already belongs to another person or room. A second call with the
        same owner changes nothing.
        """
        to = require_text("owner", owner)

        def work(writer: Writer) -> list[str]:
            derived.settle(writer)
            if not writer.value(EXISTS, session_id):
                raise errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")
            members = give_conversation(writer, session_id, to, also_from=(LOCAL,)).sessions
            derived.refresh(writer)
            return members

        return self._engine.write(work, share=False)


def give_conversation(
    writer: Writer, session_id: str, owner: str, *, also_from: tuple[str, ...] | None = None
) -> OwnershipChange:
    """Assign the whole conversation and its subagents to an owner, in the caller's transaction.

    `also_from` lists the former owners from whom the conversation may be taken; None allows any. A title that
    the new owner already uses becomes `title (2)`.
    """
    members = list_with_subagents(writer, session_id)
    rows = {member: writer.row(OWNED, member) or (LOCAL, None) for member in members}
    if also_from is not None and any(row[0] not in (owner, *also_from) for row in rows.values()):
        raise errors.make_error(errors.InvalidArgument, f"session {session_id!r} belongs to another owner")
    changed = [member for member, (former_owner, _) in rows.items() if former_owner != owner]
    for member in changed:
        title = rows[member][1]
        free = None if title is None else find_free_title(writer, title, owner, member)
        writer.run(GIVE, owner, free, None if free == title else BY_STORE, member)
    return OwnershipChange(members, changed)
