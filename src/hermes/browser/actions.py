"""What a person does to a conversation here, and how it is taken back. Each of these acts on the whole conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.browser.rows import Conversation

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


class Step(NamedTuple):
    told: str
    """What to say when it is done: `Deleted “x”`."""
    conversation: Conversation
    do: Callable[[], object]
    undo: Callable[[], object]
    """Both block, and give something true unless the conversation is gone."""
    changes: dict[str, Any]
    """What is different in its row then."""
    leaves: bool = False
    """Whether it goes to the trash or the archive, out of the usual list."""


def pin(db: SessionDB, one: Conversation) -> Step:
    pinned = not one.pinned
    return Step(
        f"{'Pinned' if pinned else 'Unpinned'} {one.short_name}",
        one,
        lambda: db.pin_session(one.id, pinned),
        lambda: db.pin_session(one.id, not pinned),
        {"pinned": pinned},
    )


def archive(db: SessionDB, one: Conversation) -> Step:
    archived = not one.archived
    return Step(
        f"{'Archived' if archived else 'Unarchived'} {one.short_name}",
        one,
        lambda: db.set_session_archived(one.id, archived),
        lambda: db.set_session_archived(one.id, not archived),
        {"archived": archived},
        leaves=archived,
    )


def delete(db: SessionDB, one: Conversation) -> Step:
    return Step(
        f"Deleted {one.short_name}",
        one,
        lambda: db.trash_session(one.id),
        lambda: db.restore_session(one.id),
        {},
        leaves=True,
    )


def rename(db: SessionDB, one: Conversation, title: str) -> Step:
    """An empty title takes the title away. One that cannot be a title is an error."""
    given = db.sanitize_title(title)
    renamed = one._replace(title=given)
    return Step(
        f"Renamed to {renamed.short_name}" if given else "Took the title away",
        one,
        lambda: db.set_session_title(one.id, given),
        lambda: db.set_session_title(one.id, one.title),
        {"title": given},
    )
