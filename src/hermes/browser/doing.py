"""What a person does to a conversation here, and how it is taken back. Blocks, and is called in a thread.

Each of these acts on the whole conversation. None means that it is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.browser.rows import Conversation

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB


class Done(NamedTuple):
    told: str
    """`Deleted “x”`."""
    conversation: Conversation
    undo: Callable[[], object]
    """Gives something true if it could be taken back."""
    changes: dict[str, Any]
    """What is different in its row now."""
    leaves: bool = False
    """Whether it went to the trash or the archive, out of the usual list."""


def pin(db: SessionDB, one: Conversation) -> Done | None:
    pinned = not one.pinned
    if not db.pin_session(one.id, pinned):
        return None
    told = f"{'Pinned' if pinned else 'Unpinned'} {one.short_name}"
    return Done(told, one, lambda: db.pin_session(one.id, not pinned), {"pinned": pinned})


def archive(db: SessionDB, one: Conversation) -> Done | None:
    archived = not one.archived
    if not db.set_session_archived(one.id, archived):
        return None
    told = f"{'Archived' if archived else 'Unarchived'} {one.short_name}"
    return Done(
        told, one, lambda: db.set_session_archived(one.id, not archived), {"archived": archived}, archived
    )


def delete(db: SessionDB, one: Conversation) -> Done | None:
    if not db.trash_session(one.id):
        return None
    return Done(f"Deleted {one.short_name}", one, lambda: db.restore_session(one.id), {}, True)


def rename(db: SessionDB, one: Conversation, title: str) -> Done | None:
    """An empty title takes the title away."""
    if not db.set_session_title(one.id, title):
        return None
    given = db.get_session_title(one.id)
    renamed = one._replace(title=given)
    told = f"Renamed to {renamed.short_name}" if given else "Took the title away"
    return Done(told, one, lambda: db.set_session_title(one.id, one.title), {"title": given})
