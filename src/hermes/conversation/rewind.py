"""Taking messages back and bringing them back, the same on every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore


class RewindResult(NamedTuple):
    messages: int
    content: Any
    """The message of the person at which the rewind began."""


def find_last_undo(store: AnyStore, session_id: str) -> int:
    """The first message of those that `bring_back` restores.

    They stand behind the live end. Messages that were taken back earlier, before others were said that now are taken
    back themselves, stay where they are.
    """
    live = [row["id"] for row in store.get_context(session_id) if row["role"] != "system"]
    end: int = live[-1] if live else 0
    exported = store.export_session(session_id)
    if exported is None or exported.get("rewound_context"):
        return end + 1
    taken = [
        row for row in exported["messages"] if not row["active"] and row["rewound_at"] and row["id"] > end
    ]
    last = max((row["rewound_at"] for row in taken), default=0)
    first = min((row["id"] for row in taken if row["rewound_at"] == last), default=end + 1)
    return max((row["id"] for row in taken if row["id"] < first), default=end) + 1
