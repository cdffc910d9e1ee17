"""Who is asking, and whose a session is.

Every session has one owner: nobody in particular (the local machine), one person on a platform, or a shared room. A
principal sees the sessions of the person it names and of the room it speaks from, and no others. Titles are unique
among the sessions of one owner.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes.session_kinds import canonical_source

LOCAL = ""
"""The owner of everything made on this machine: the terminal, jobs, scripts."""


class Principal(NamedTuple):
    """A person, or a room without persons, on a platform."""

    platform: str
    user: str | None = None
    chat: str | None = None
    thread: str | None = None
    chat_type: str = "dm"

    @property
    def person(self) -> str:
        """The owner of what this person says in private; "" is nobody, never the local machine."""
        return _join_owner(canonical_source(self.platform), "person", self.user) if self.user else ""

    @property
    def room(self) -> str:
        """The owner of what is said where everybody shares one session."""
        return (
            _join_owner(canonical_source(self.platform), "room", self.chat, self.thread or "")
            if self.chat
            else ""
        )

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose sessions may be seen; the local machine's never are."""
        return tuple(owner for owner in (self.person, self.room) if owner)


def find_person(owner: str) -> str | None:
    """The person that an owner is, as their platform knows them; None for a room and for the local machine."""
    parts = owner.split(":")
    is_person = len(parts) == 3 and parts[1] == "person"
    return parts[2].replace("%3A", ":").replace("%25", "%") if is_person else None


def _join_owner(*parts: str | None) -> str:
    """Parts joined by colons; those inside a part are escaped, so that no two of them can be confused.

    A person sorts before a room: of two sessions with the same title one's own is meant.
    """
    return ":".join(str(part).replace("%", "%25").replace(":", "%3A") for part in parts)
