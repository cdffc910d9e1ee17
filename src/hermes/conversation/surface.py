"""The properties in which the surfaces of conversations differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from hermes.store.sessions.sessions import new_session_id


class ChatRoute(NamedTuple):
    """The chat of a platform in which a conversation takes place. The store maps the chat to its session."""

    session_key: str
    open_session: Callable[[], Awaitable[object]]
    """Enters the session of the chat. If the chat has no session, stores a new one first."""
    handle_move: Callable[[str], Awaitable[None]]
    """Called with the new session's id when the chat has moved to another session."""


class Surface(NamedTuple):
    """The properties of the surface on which a conversation takes place."""

    name: str = "terminal"
    """The name of the surface. It is shown to a person who tries to open the conversation elsewhere while it
    is in use."""
    incognito: bool = False
    end_reason: str | None = None
    """The end reason to store for a session that is still open when the program ends. None means that the
    session stays open."""
    stores_unanswered: bool = False
    """Whether the person's message is stored even if the turn cannot begin, for example because no model is available.
    If False, the error is raised and nothing is stored."""
    is_per_request: bool = False
    """Whether a conversation object exists only for one request, as in the HTTP API. If so, a new session is stored
    immediately, and a session that is left is not ended."""
    keeps_partial: bool = False
    """Whether the text of a running answer is stored about once a second, so that it survives a crash. The gateway does
    not need this, because it runs the turn again after a crash."""
    make_session: Callable[[], Awaitable[str]] | None = None
    """Creates the session that replaces a deleted one, and returns its id. None means that the replacement is created
    like any new session."""
    make_id: Callable[[], str] = new_session_id
    """Makes the id of a new session."""
    route: ChatRoute | None = None
    """The chat in which the conversation takes place; None for surfaces without chats. With a chat, the store
    is a `ScopedStore`."""
