"""Per-chat incidents for `/why`, such as resets, abandoned messages and unknown deliveries.

The last `MOST` incidents of a chat are stored in the `entry` of its route. The same entry holds state that must
survive a restart: interrupted messages, previews, and saves before a reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

MOST = 20


class Incident(NamedTuple):
    """Something that happened in a chat and is not recorded in its sessions, such as an unknown delivery."""

    at: float
    text: str
    """A sentence as Markdown. Text from outside is escaped."""


def add_incident(db: SessionDB, key: str, text: str) -> None:
    """Add an incident to a chat. Do nothing if the chat has no route."""
    new = {"at": clock.now(), "text": text}
    _change_entry(db, key, lambda entry: {"happened": [*entry.get("happened", []), new][-MOST:]})


def list_incidents(db: SessionDB, key: str) -> list[Incident]:
    return [
        Incident(incident["at"], incident["text"])
        for incident in (_get_entry(db, key) or {}).get("happened", [])
    ]


def count_interruption(db: SessionDB, key: str, entry_id: int) -> int:
    """Record in the route of the chat `key` that a process ended while it processed the inbox entry `entry_id`.
    Return how often this has happened to the inbox entry."""

    def increment(entry: dict[str, Any]) -> dict[str, Any]:
        before = entry.get("cut_off", {})
        times = before.get("times", 0) + 1 if before.get("message") == entry_id else 1
        return {"cut_off": {"message": entry_id, "times": times}}

    entry = _change_entry(db, key, increment)
    return int(entry["cut_off"]["times"]) if entry else 1


def note_arrival(db: SessionDB, key: str) -> None:
    """Record that a person has just switched the chat `key` to another conversation. Automatic resets treat the
    switch like a message of the person."""
    _change_entry(db, key, lambda entry: {"came": clock.now()})


def last_arrival(db: SessionDB, key: str) -> float:
    """Return the time at which a person last switched the chat `key` to another conversation, or 0 if nobody did."""
    return float((_get_entry(db, key) or {}).get("came", 0.0))


def mark_saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> None:
    """Record that the agent saved its memory before a reset of the session `session_id`. `spoke` is the time of the
    last message of a person before the reset. It tells this reset from later resets of the same session."""
    _change_entry(db, key, lambda entry: {"saved": {"session": session_id, "spoke": spoke}})


def is_saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> bool:
    return (_get_entry(db, key) or {}).get("saved") == {"session": session_id, "spoke": spoke}


def set_preview(db: SessionDB, key: str, entry_id: int, preview: str) -> None:
    """Record which platform message shows the preview of the answer to the inbox entry `entry_id`."""
    _change_entry(db, key, lambda entry: {"preview": {"message": entry_id, "shown": preview}})


def get_preview(db: SessionDB, key: str, entry_id: int) -> str | None:
    """Return the id of the platform message that shows the preview of the answer to the inbox entry `entry_id`, or
    None if there is none. An earlier process may have recorded it."""
    preview = (_get_entry(db, key) or {}).get("preview", {})
    return preview["shown"] if preview.get("message") == entry_id else None


def _get_entry(db: SessionDB, key: str) -> dict[str, Any] | None:
    route = db.routing.get(key)
    return None if route is None else route.entry


def _change_entry(
    db: SessionDB, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any] | None:
    """Change the column `entry` of a chat's route and return the new value. `change` gets the old value and returns
    the fields to set. Return None if the chat has no route."""
    route = db.routing.change_entry(key, lambda entry: {**entry, **change(entry)})
    return None if route is None else route.entry
