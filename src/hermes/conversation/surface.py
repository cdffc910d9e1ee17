"""What differs between the surfaces that a conversation is held on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


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
