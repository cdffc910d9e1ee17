"""Principals (the users of the store) and owners of sessions.

The owner of a session is the local machine, one person on a platform, or a shared room. A principal can see
only the sessions of its own person and of the room in which it writes. Titles are unique among the sessions
of one owner.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes.session_kinds import canonical_source

LOCAL = ""
"""The owner of everything that is created on this machine: terminal, jobs, scripts."""


class Principal(NamedTuple):
    """A person, or a room without a known person, on a platform."""

    platform: str
    user: str | None = None
    chat: str | None = None
    thread: str | None = None
    chat_type: str = "dm"

    @property
    def person(self) -> str:
        """The name of the owner to whom this person's private sessions belong, or "" if no person is known.

        The value "" does not mean the local machine, although `LOCAL` has the same value.
        """
        return _join_owner(canonical_source(self.platform), "person", self.user) if self.user else ""

    @property
    def room(self) -> str:
        """The name of the owner to whom the sessions belong that everybody in the chat shares, or "" if no chat
        is known."""
        return (
            _join_owner(canonical_source(self.platform), "room", self.chat, self.thread or "")
            if self.chat
            else ""
        )

    @property
    def owners(self) -> tuple[str, ...]:
        """The owners whose sessions this principal can see. The local machine is never one of them."""
        return tuple(owner for owner in (self.person, self.room) if owner)


def find_person(owner: str) -> str | None:
    """Return the platform's id of the person that `owner` stands for, or None if `owner` is a room or the
    local machine."""
    parts = owner.split(":")
    is_person = len(parts) == 3 and parts[1] == "person"
    return parts[2].replace("%3A", ":").replace("%25", "%") if is_person else None


def _join_owner(*parts: str | None) -> str:
    """Return the name of an owner: its parts joined with colons. Colons within a part are escaped, so that two
    different lists of parts never give the same owner.

    Owners that are persons sort before rooms, so that a title lookup finds the person's own session first.
    """
    return ":".join(str(part).replace("%", "%25").replace(":", "%3A") for part in parts)
