"""The differences between the surfaces of conversations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class ChatRoute(NamedTuple):
    """The chat of a platform in which a conversation takes place. The store maps the chat to its session."""

    session_key: str
    open_session: Callable[[], Awaitable[object]]
    """Enters the chat's session. Stores a new one if the chat has none."""
    handle_move: Callable[[str], Awaitable[None]]
    """Called when the chat has moved to another session."""


class Surface(NamedTuple):
    """The surface of a conversation and its properties."""

    name: str = "terminal"
    """Shown to a person who finds the conversation in use elsewhere."""
    incognito: bool = False
    end_reason: str | None = None
    """The end reason of a session that is open when the program ends; None if such sessions stay open."""
    stores_unanswered: bool = False
    """Whether a message is stored when no agent can be built. If not, the error is raised and nothing is stored."""
    is_per_request: bool = False
    """Whether each request enters its session anew. A new session is then stored immediately, and a session that
    is left stays open."""
    keeps_partial: bool = False
    """Whether the text of a running answer is stored about once a second, so that it survives the process. A
    gateway answers again after a crash instead."""
    make_session: Callable[[], Awaitable[str]] | None = None
    """Creates the session that replaces a deleted one; None if it is created like any new session."""
    route: ChatRoute | None = None
    """The chat; None for surfaces without chats. With a chat, the store is a `ScopedStore`."""
