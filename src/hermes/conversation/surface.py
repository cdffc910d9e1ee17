"""What differs between the surfaces that a conversation is held on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol


class Route(Protocol):
    """Stores which session a chat is in. The arguments are the session that is left and the epoch of its lease."""

    async def reset(self, session_id: str, epoch: int | None, title: str | None) -> str:
        """End the session and begin another in this chat; its id."""

    async def branch(self, session_id: str, epoch: int | None, title: str | None) -> str:
        """Begin a branch in this chat; its id."""

    async def switch(self, session_id: str, epoch: int | None) -> str:
        """Route the chat to a session that exists; the id of its live session. Raises `UnknownSession`."""

    async def arrive(self, session_id: str) -> None:
        """The conversation works in the session that the chat was routed to."""


class Surface(NamedTuple):
    """Where a conversation is held, and what follows from that."""

    name: str = "terminal"
    """Shown to a person who finds the conversation open elsewhere."""
    incognito: bool = False
    end_reason: str | None = None
    """Why a session ended that is left at the end of the program; None: sessions stay open when they are left."""
    stores_unanswered: bool = False
    """Whether a message is stored when no agent can be built. If not, the error is raised and nothing is stored."""
    make_session: Callable[[], Awaitable[str]] | None = None
    """Makes the session that takes the place of a deleted one; None: it is made like any new one."""
    route: Route | None = None
    """The route of the chat that it is held in."""
