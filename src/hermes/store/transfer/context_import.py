"""Carried ranges of an import, told in another store's message ids, as ranges of the ids here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes.store.engine import Reader
from hermes.store.sessions.carried_context import ranges

Run = tuple[int, int, int]
"""Neighbouring messages of one session: (first id there, first id here, how many)."""

IDS_BETWEEN = "SELECT id FROM messages WHERE session_id = ? AND id BETWEEN ? AND ? ORDER BY id"
BY_UID = "SELECT id FROM messages WHERE session_id = ? AND uid = ?"
BY_ID = "SELECT id FROM messages WHERE session_id = ? AND id = ?"


def runs(pairs: Iterable[tuple[Any, int]]) -> list[Run]:
    """Pairs of (id there, id here) as runs; 0 is for a message that is not here."""
    found: list[Run] = []
    for there, here in pairs:
        if not isinstance(there, int) or not here:
            continue
        if found and there - found[-1][0] == here - found[-1][1] == found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + 1)
        else:
            found.append((there, here, 1))
    return found


def ranges_here(
    reader: Reader,
    known: Mapping[str, list[Run]],
    context: Iterable[Mapping[str, Any]],
    *,
    only_known: bool = False,
) -> list[tuple[int, int]]:
    """What an export says is carried, in the ids of this store, joined where ranges touch.

    With `only_known`, messages of sessions that are in the store but not in `known` are not carried.
    """
    joined: list[tuple[int, int]] = []
    for told in context:
        owner = str(told.get("session_id"))
        if owner in known:
            parts = _overlap(known[owner], told.get("first"), told.get("last"))
        elif only_known:
            parts = []
        else:
            start = _message_here(reader, owner, told.get("first"), told.get("first_uid"))
            end = _message_here(reader, owner, told.get("last"), told.get("last_uid"))
            # Others write between the rows of a session: only its own are carried.
            ids = () if start is None or end is None else reader.rows(IDS_BETWEEN, owner, start, end)
            parts = ranges(row[0] for row in ids)
        for first, last in parts:
            if joined and joined[-1][1] + 1 == first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
    return joined


def length(told: Mapping[str, Any]) -> int:
    """How many messages a range of an export held, as far as it says so."""
    count = told.get("count")
    return count if isinstance(count, int) else 1


def _overlap(known: list[Run], first: Any, last: Any) -> list[tuple[int, int]]:
    if not isinstance(first, int) or not isinstance(last, int):
        return []
    cut = ((max(first, there), min(last, there + count - 1), here - there) for there, here, count in known)
    return [(low + shift, high + shift) for low, high, shift in cut if low <= high]


def _message_here(reader: Reader, session_id: str, message_id: Any, uid: Any) -> int | None:
    """A message of a session that is here but was not in the import."""
    if isinstance(uid, str):
        try:
            return reader.value(BY_UID, session_id, bytes.fromhex(uid).hex())  # type: ignore[no-any-return]
        except ValueError:
            return None
    return reader.value(BY_ID, session_id, message_id) if isinstance(message_id, int) else None
