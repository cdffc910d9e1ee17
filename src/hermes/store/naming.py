"""Which session a person means by what they typed: an id, the beginning of one, or a title; and if several, which."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.store.engine import Access
from hermes.store.sessions import LIVE, LONGEST_PREFIX, like_prefix
from hermes.store.titles import Titles
from hermes.text import clean_in

MOST = 10
"""Candidates told to a person; more would not help them to choose."""

CANDIDATES = """SELECT id, title, source, coalesce(last_active, started_at) AS last_active,
    coalesce(preview, '') AS preview FROM sessions WHERE trashed_at IS NULL"""
NEWEST = "ORDER BY 4 DESC, id LIMIT ?"
BY_ID = " ".join((CANDIDATES, "AND lower(id) LIKE lower(?) ESCAPE '\\'", NEWEST))
BY_TITLE = " ".join((CANDIDATES, "AND title IS NOT NULL AND lower(title) LIKE lower(?) ESCAPE '\\'", NEWEST))


class Named(NamedTuple):
    id: str | None
    """The session meant; None if there is no such one, or several."""
    candidates: list[dict[str, Any]]
    """Those it might be, newest activity first: id, title, source, last_active, preview."""
    are_more: bool = False
    """Whether it might also be others than these."""


class Naming:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def named(self, name: str) -> Named:
        """By exact id, exact title, the only id that starts so, the only title that starts so or holds it."""
        if not name.strip():
            return Named(None, [])
        typed = clean_in(name.strip())
        with self._engine.read(settled=True) as reader:
            if reader.value(LIVE, typed):
                return Named(typed, [])
        titled = Titles(self._engine).resolve(typed)
        if titled is not None:
            return Named(titled, [])
        if len(typed) > LONGEST_PREFIX or "\0" in typed:  # where a pattern ends
            return Named(None, [])
        start = like_prefix(typed)
        with self._engine.read() as reader:
            for sql, pattern in ((BY_ID, start), (BY_TITLE, start), (BY_TITLE, f"%{start}")):
                found = reader.dicts(sql, pattern, MOST + 1)
                if len(found) == 1:
                    return Named(found[0]["id"], [])
                if found:
                    return Named(None, found[:MOST], len(found) > MOST)
        return Named(None, [])

    def starting_with(self, start: str, limit: int) -> list[dict[str, Any]]:
        """Sessions whose id or title starts so, newest activity first: what a shell offers."""
        pattern = like_prefix(clean_in(start))
        with self._engine.read(settled=True) as reader:
            found = [*reader.dicts(BY_TITLE, pattern, limit), *reader.dicts(BY_ID, pattern, limit)]
        return found[:limit]
