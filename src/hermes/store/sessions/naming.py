"""Which session a person means by what they typed: an id, the beginning of one, or a title; and if several, which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.store.engine import Access
from hermes.store.sessions.sessions import LIVE, LONGEST_PREFIX, like_prefix
from hermes.store.sessions.titles import Titles
from hermes.text import replace_surrogates

MOST = 10
"""Candidates told to a person; more would not help them to choose."""

CANDIDATES = """SELECT id, title, source, coalesce(last_active, started_at) AS last_active,
    coalesce(preview, '') AS preview, owner, chat_type, chat_id, thread_id, display_name FROM sessions
    WHERE trashed_at IS NULL"""
NEWEST = "ORDER BY 4 DESC, id LIMIT ?"
BY_ID = " ".join((CANDIDATES, "AND lower(id) LIKE lower(?) ESCAPE '\\'", NEWEST))
EXACT = " ".join((CANDIDATES, "AND id = ?"))
BY_TITLE = " ".join((CANDIDATES, "AND title IS NOT NULL AND lower(title) LIKE lower(?) ESCAPE '\\'", NEWEST))


class Named(NamedTuple):
    id: str | None
    """The session meant; None if there is no such one, or several."""
    candidates: list[dict[str, Any]]
    """Those it might be, newest activity first: id, title, source, last_active, preview, owner and chat."""
    are_more: bool = False
    """Whether it might also be others than these."""


class Naming:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def named(self, name: str, *, every_owner: bool = False, preferred_owner: str | None = None) -> Named:
        """By exact id, exact title, the only id that starts so, the only title that starts so or holds it.

        With `every_owner`, a title that several owners use is ambiguous, unless one of them is the preferred one.
        Without, the first owner's is meant: a person comes before a room.
        """
        if not name.strip():
            return Named(None, [])
        typed = replace_surrogates(name.strip())
        with self._engine.read(settled=True) as reader:
            if reader.value(LIVE, typed):
                return Named(typed, [])
        titles = Titles(self._engine)
        owners = titles.owners_of(typed) if every_owner else []
        if preferred_owner is not None and preferred_owner in owners:
            owners = [preferred_owner]
        if len(owners) < 2:
            titled = titles.resolve(typed, owners[0] if owners else None)
            if titled is not None:
                return Named(titled, [])
        if len(typed) > LONGEST_PREFIX or "\0" in typed:  # where a pattern ends
            return Named(None, [])
        start = like_prefix(typed)
        if len(owners) > 1:
            return self._of_several(typed, owners)
        with self._engine.read() as reader:
            for sql, pattern in ((BY_ID, start), (BY_TITLE, start), (BY_TITLE, f"%{start}")):
                found = reader.dicts(sql, pattern, MOST + 1)
                theirs = [row for row in found if row["owner"] == preferred_owner]
                if theirs and sql is BY_TITLE:
                    found = theirs
                if len(found) == 1:
                    return Named(found[0]["id"], [])
                if found:
                    return Named(None, found[:MOST], len(found) > MOST)
        return Named(None, [])

    def _of_several(self, title: str, owners: Sequence[str]) -> Named:
        """The sessions of several owners that a title means, unless it is also the beginning of one id."""
        meant = [Titles(self._engine).resolve(title, owner) for owner in owners]
        with self._engine.read() as reader:
            by_id = reader.dicts(BY_ID, like_prefix(title), 2)
            if len(by_id) == 1:
                return Named(by_id[0]["id"], [])
            rows = [row for session_id in meant for row in reader.dicts(EXACT, session_id)]
        rows.sort(key=lambda row: row["last_active"], reverse=True)
        return Named(None, rows[:MOST], len(rows) > MOST)

    def starting_with(self, start: str, limit: int) -> list[dict[str, Any]]:
        """Sessions whose id or title starts so, newest activity first: what a shell offers."""
        pattern = like_prefix(replace_surrogates(start))
        with self._engine.read(settled=True) as reader:
            found = [*reader.dicts(BY_TITLE, pattern, limit), *reader.dicts(BY_ID, pattern, limit)]
        return found[:limit]
