"""Per-chat incidents (resets, give-ups, unknown deliveries) for `/why`, stored on the routing row, the last few."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

MOST = 20
_lock = Lock()
"""Deliveries and mailboxes remember things of the same chat, each in its own thread."""


class Incident(NamedTuple):
    """An event of a chat that its sessions do not record: it was paused, a delivery is unknown."""

    at: float
    text: str
    """A sentence of ours, as Markdown; whatever comes from outside is made harmless in it."""


def add_incident(db: SessionDB, key: str, text: str) -> None:
    """Add an incident; ignored if the chat is no longer known."""
    new = {"at": clock.now(), "text": text}
    _change_entry(db, key, lambda entry: {"happened": [*entry.get("happened", []), new][-MOST:]})


def list_incidents(db: SessionDB, key: str) -> list[Incident]:
    return [
        Incident(incident["at"], incident["text"])
        for incident in (_get_entry(db, key) or {}).get("happened", [])
    ]


def count_interruption(db: SessionDB, key: str, entry_id: int) -> int:
    """Count that a process ended before this inbox entry was done; returns how often so far."""

    def increment(entry: dict[str, Any]) -> dict[str, Any]:
        before = entry.get("cut_off", {})
        times = before.get("times", 0) + 1 if before.get("message") == entry_id else 1
        return {"cut_off": {"message": entry_id, "times": times}}

    entry = _change_entry(db, key, increment)
    return int(entry["cut_off"]["times"]) if entry else 1


def note_arrival(db: SessionDB, key: str) -> None:
    """Note that somebody switched to another conversation in this chat, which counts as activity."""
    _change_entry(db, key, lambda entry: {"came": clock.now()})


def last_arrival(db: SessionDB, key: str) -> float:
    """The time of the last switch."""
    return float((_get_entry(db, key) or {}).get("came", 0.0))


def mark_saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> None:
    """Note that the memory was saved before a reset of this session, in which a person last spoke at `spoke`."""
    _change_entry(db, key, lambda entry: {"saved": {"session": session_id, "spoke": spoke}})


def is_saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> bool:
    return (_get_entry(db, key) or {}).get("saved") == {"session": session_id, "spoke": spoke}


def set_preview(db: SessionDB, key: str, entry_id: int, preview: str) -> None:
    """Note which message on the platform previews the answer to this inbox entry."""
    _change_entry(db, key, lambda entry: {"preview": {"message": entry_id, "shown": preview}})


def get_preview(db: SessionDB, key: str, entry_id: int) -> str | None:
    """The preview that an earlier process left for this inbox entry; the answer replaces it."""
    preview = (_get_entry(db, key) or {}).get("preview", {})
    return preview["shown"] if preview.get("message") == entry_id else None


def _get_entry(db: SessionDB, key: str) -> dict[str, Any] | None:
    route = db.routing.get(key)
    return None if route is None else route.entry


def _change_entry(
    db: SessionDB, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any] | None:
    """Change the entry of a chat and return it; None if there is no such chat."""
    with _lock:
        entry = _get_entry(db, key)
        if entry is None:
            return None
        changed = {**entry, **change(entry)}
        db.routing.update(key, changed)
        return changed
