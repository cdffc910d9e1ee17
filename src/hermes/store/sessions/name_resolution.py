"""Resolution of a typed name to a session: an id, the beginning of an id, or a title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.store.engine import Access
from hermes.store.sessions.sessions import LIVE, LONGEST_PREFIX, make_prefix_pattern
from hermes.store.sessions.titles import Titles
from hermes.text import replace_surrogates

MOST = 10
"""The maximum number of candidates that are returned. A person cannot choose from a longer list."""

CANDIDATES = """SELECT id, title, source, coalesce(last_active, started_at) AS last_active,
    coalesce(preview, '') AS preview, owner, chat_type, chat_id, thread_id, display_name FROM sessions
    WHERE trashed_at IS NULL"""
NEWEST = "ORDER BY 4 DESC, id LIMIT ?"
BY_ID = " ".join((CANDIDATES, "AND lower(id) LIKE lower(?) ESCAPE '\\'", NEWEST))
EXACT = " ".join((CANDIDATES, "AND id = ?"))
BY_TITLE = " ".join((CANDIDATES, "AND title IS NOT NULL AND lower(title) LIKE lower(?) ESCAPE '\\'", NEWEST))


class ResolvedName(NamedTuple):
    id: str | None
    """The matching session. None if no session matches, or if several match."""
    candidates: list[dict[str, Any]]
    """The matching sessions, newest activity first, if several match. Each has id, title, source,
    last_active, preview, owner and chat."""
    are_more: bool = False
    """Whether more sessions match than `candidates` contains."""


class NameResolver:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def resolve(
        self, name: str, *, every_owner: bool = False, preferred_owner: str | None = None
    ) -> ResolvedName:
        """Find the session that a typed name refers to. The name is compared in this order: exact id, exact
        title, unique id prefix, unique title prefix, unique part of a title.

        With `every_owner`, a title that several owners use is ambiguous, unless `preferred_owner` is one of
        these owners. Without `every_owner`, the first owner in alphabetical order is used, so that a person
        comes before a room.
        """
        if not name.strip():
            return ResolvedName(None, [])
        typed = replace_surrogates(name.strip())
        with self._engine.read(settled=True) as reader:
            if reader.value(LIVE, typed):
                return ResolvedName(typed, [])
        titles = Titles(self._engine)
        owners = titles.list_owners(typed) if every_owner else []
        if preferred_owner is not None and preferred_owner in owners:
            owners = [preferred_owner]
        if len(owners) < 2:
            titled = titles.resolve(typed, owners[0] if owners else None)
            if titled is not None:
                return ResolvedName(titled, [])
        if len(typed) > LONGEST_PREFIX or "\0" in typed:  # a pattern ends at a NUL
            return ResolvedName(None, [])
        start = make_prefix_pattern(typed)
        if len(owners) > 1:
            return self._resolve_among(typed, owners)
        with self._engine.read() as reader:
            for sql, pattern in ((BY_ID, start), (BY_TITLE, start), (BY_TITLE, f"%{start}")):
                matches = reader.dicts(sql, pattern, MOST + 1)
                theirs = [row for row in matches if row["owner"] == preferred_owner]
                if theirs and sql is BY_TITLE:
                    matches = theirs
                if len(matches) == 1:
                    return ResolvedName(matches[0]["id"], [])
                if matches:
                    return ResolvedName(None, matches[:MOST], len(matches) > MOST)
        return ResolvedName(None, [])

    def _resolve_among(self, title: str, owners: Sequence[str]) -> ResolvedName:
        """Resolve a title that several owners use. The result has no session, but candidates: for each of the
        `owners`, the session that `title` refers to. If `title` is also the prefix of exactly one session id,
        the result is the session with that id."""
        meant = [Titles(self._engine).resolve(title, owner) for owner in owners]
        with self._engine.read() as reader:
            by_id = reader.dicts(BY_ID, make_prefix_pattern(title), 2)
            if len(by_id) == 1:
                return ResolvedName(by_id[0]["id"], [])
            rows = [row for session_id in meant for row in reader.dicts(EXACT, session_id)]
        rows.sort(key=lambda row: row["last_active"], reverse=True)
        return ResolvedName(None, rows[:MOST], len(rows) > MOST)

    def list_starting_with(self, start: str, limit: int) -> list[dict[str, Any]]:
        """Return sessions whose id or title starts with `start`, newest activity first, for shell completion."""
        pattern = make_prefix_pattern(replace_surrogates(start))
        with self._engine.read(settled=True) as reader:
            matches = [*reader.dicts(BY_TITLE, pattern, limit), *reader.dicts(BY_ID, pattern, limit)]
        return matches[:limit]
