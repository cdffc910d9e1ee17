"""What befell a chat and is in none of its sessions: kept with its routing row, a few of each, for `/why`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.gateway.commands.command_context import Happening

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

MOST = 20
_one_at_a_time = Lock()
"""Deliveries and mailboxes remember things of the same chat, each in its own thread."""


def note(db: SessionDB, key: str, text: str) -> None:
    """Remember something; a chat that is not known any more has nothing to remember."""
    new = {"at": clock.now(), "text": text}
    _change(db, key, lambda entry: {"happened": [*entry.get("happened", []), new][-MOST:]})


def of(db: SessionDB, key: str) -> list[Happening]:
    return [Happening(one["at"], one["text"]) for one in (_entry(db, key) or {}).get("happened", [])]


def cut_off(db: SessionDB, key: str, entry_id: int) -> int:
    """A process was gone before this message of the inbox was done; how often that is by now."""

    def once_more(entry: dict[str, Any]) -> dict[str, Any]:
        before = entry.get("cut_off", {})
        times = before.get("times", 0) + 1 if before.get("message") == entry_id else 1
        return {"cut_off": {"message": entry_id, "times": times}}

    kept = _change(db, key, once_more)
    return int(kept["cut_off"]["times"]) if kept else 1


def came(db: SessionDB, key: str) -> None:
    """Somebody went to another conversation in this chat: it is as if they had spoken in it."""
    _change(db, key, lambda entry: {"came": clock.now()})


def came_at(db: SessionDB, key: str) -> float:
    """When that was the last time."""
    return float((_entry(db, key) or {}).get("came", 0.0))


def saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> None:
    """The agent has saved what matters before a reset of this session, in which a person last spoke at `spoke`."""
    _change(db, key, lambda entry: {"saved": {"session": session_id, "spoke": spoke}})


def is_saved(db: SessionDB, key: str, session_id: str, spoke: float | None) -> bool:
    return (_entry(db, key) or {}).get("saved") == {"session": session_id, "spoke": spoke}


def shown(db: SessionDB, key: str, entry_id: int, preview: str) -> None:
    """While a message of the inbox is answered, this message on the platform shows what there is of the answer."""
    _change(db, key, lambda entry: {"preview": {"message": entry_id, "shown": preview}})


def preview(db: SessionDB, key: str, entry_id: int) -> str | None:
    """What a process that is gone showed of the answer to this message, for the answer to take its place."""
    kept = (_entry(db, key) or {}).get("preview", {})
    return kept["shown"] if kept.get("message") == entry_id else None


def _entry(db: SessionDB, key: str) -> dict[str, Any] | None:
    route = db.routing.get(key)
    return None if route is None else route.entry


def _change(
    db: SessionDB, key: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any] | None:
    """What is kept with a chat, with what is new in it; None if there is no such chat."""
    with _one_at_a_time:
        entry = _entry(db, key)
        if entry is None:
            return None
        kept = {**entry, **change(entry)}
        db.routing.update(key, kept)
        return kept
