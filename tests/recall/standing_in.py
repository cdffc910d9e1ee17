"""Stands in for `search_sessions_ranked` until the store has it: one row per conversation, over `search_messages`.

It is replaced by the real verb when ranking is merged: `ranked` then gives back what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.recall.passages import Passages
from hermes.recall.session_search import Recall
from hermes.scoped import ScopedStore
from hermes.store.listing import HIDDEN_KINDS
from hermes_state import SessionDB

Row = dict[str, Any]


def ranked(store: SessionDB | ScopedStore) -> Recall:
    return StandingIn(store)


class StandingIn:
    def __init__(self, store: SessionDB | ScopedStore) -> None:
        self._store = store

    @property
    def passages(self) -> Passages:
        return self._store.passages

    def search_sessions_ranked(
        self,
        query: str | list[str],
        limit: int = 10,
        *,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        exclude_session: str | None = None,
        include_hidden: bool = False,
        sort: str = "relevance",
    ) -> list[Row]:
        store, found = self._store, dict[str, Row]()
        here = store.get_conversation_root(exclude_session) if exclude_session else None
        for phrasing in [query] if isinstance(query, str) else query:
            hits = store.search_messages(phrasing, source_filter, exclude_sources, role_filter, limit=1000)
            for hit in hits:
                session = store.get_session(hit["session_id"])
                assert session is not None
                root = session["root_id"]
                first = store.get_session(root)
                assert first is not None
                hidden = HIDDEN_KINDS if source_filter is None else ("child",)
                if root in found or root == here:
                    continue
                if not include_hidden and (first["kind"] in hidden or first["archived"]):
                    continue
                if (after is not None and hit["timestamp"] < after) or (
                    before is not None and hit["timestamp"] >= before
                ):
                    continue
                found[root] = {
                    "session_id": hit["session_id"],
                    "conversation_id": root,
                    "tip_id": store.get_compression_tip(root),
                    "score": 1.0,
                    "message_id": hit["id"],
                    "role": hit["role"],
                    "snippet": hit["snippet"],
                    "why": f"the message says {phrasing}",
                    "title": store.get_session_title(store.get_compression_tip(root)),
                    "source": session["source"],
                    "kind": session["kind"],
                    "started_at": first["started_at"],
                    "last_active": session["last_active"],
                    "order": "relevance",
                }
        rows = list(found.values())
        if sort != "relevance":
            rows.sort(key=lambda row: row["last_active"], reverse=sort == "newest")
        return rows[:limit]
