"""Lists of conversations and sessions. Nothing is aggregated here: rows are read from an index, in order, until full.

`preview`, `last_active` and the place in the family stand on the row; `derived` keeps them true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.store.arguments import names, whole
from hermes.store.engine import Access, Reader, Row
from hermes.store.lineage import tip
from hermes.store.sessions import SELECT_ROW, source_name

# The documented columns and those of ours that say what a row is, in the order of `COLUMNS`; one more at the end tells
# whether the row's live tip is another.
ROWS = """SELECT id, source, user_id, model, model_config, system_prompt, parent_session_id,
    started_at, ended_at, end_reason, message_count, tool_call_count,
    input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
    billing_provider, billing_base_url, billing_mode, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
    pricing_version, title, api_call_count, handoff_state, handoff_platform, handoff_error,
    coalesce(last_active, started_at), coalesce(preview, ''), relation, root_id, kind, workspace, pinned_at, archived,
    EXISTS (SELECT 1 FROM sessions child WHERE child.parent_session_id = sessions.id
            AND child.relation = 'compression')
    FROM sessions"""
COLUMNS = (
    *("id", "source", "user_id", "model", "model_config", "system_prompt", "parent_session_id"),
    *("started_at", "ended_at", "end_reason", "message_count", "tool_call_count"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("billing_provider", "billing_base_url", "billing_mode"),
    *("estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source", "pricing_version"),
    *("title", "api_call_count", "handoff_state", "handoff_platform", "handoff_error"),
    *("last_active", "preview", "relation", "root_id", "kind", "workspace", "pinned_at", "archived"),
)
# One statement per order, so that each walks its own index; a source has indexes of its own.
LISTED = "WHERE listed = 1 AND trashed_at IS NULL"
LISTED_OF_SOURCE = "WHERE listed = 1 AND source = ? AND trashed_at IS NULL"
EVERY = "WHERE trashed_at IS NULL AND (? IS NULL OR source = ?)"
BUT = "AND (? IS NULL OR instr(?, '|' || source || '|') = 0)"  # names of sources to leave out, between bars
NEWEST = "ORDER BY started_at DESC, id DESC LIMIT ? OFFSET ?"
MOST_ACTIVE = "ORDER BY conversation_active DESC, started_at DESC, id DESC LIMIT ? OFFSET ?"

BY_START = " ".join((ROWS, LISTED, BUT, NEWEST))
BY_START_OF_SOURCE = " ".join((ROWS, LISTED_OF_SOURCE, BUT, NEWEST))
BY_ACTIVITY = " ".join((ROWS, LISTED, BUT, MOST_ACTIVE))
BY_ACTIVITY_OF_SOURCE = " ".join((ROWS, LISTED_OF_SOURCE, BUT, MOST_ACTIVE))
EVERY_BY_START = " ".join((ROWS, EVERY, BUT, NEWEST))
EVERY_BY_ACTIVITY = " ".join(
    (ROWS, EVERY, BUT, "ORDER BY last_active DESC, started_at DESC, id DESC LIMIT ? OFFSET ?")
)

PROJECTED = (
    *("id", "ended_at", "end_reason", "message_count", "tool_call_count", "title"),
    *("last_active", "preview", "model", "system_prompt"),
)
"""What a conversation's row takes from its live tip; the rest stays the root's."""


class Listing:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[dict[str, Any]]:
        limit, offset = whole("limit", limit), max(0, whole("offset", offset))
        excluded = [source_name(name) for name in names("exclude_sources", exclude_sources or ())]
        but = f"|{'|'.join(excluded)}|" if excluded else None
        wanted = None if source is None else source_name(source)
        with self._engine.read(settled=True) as reader:
            rows = _select(reader, wanted, but, limit, offset, include_children, order_by_last_active)
            if include_children or not project_compression_tips:
                return [_shown(row) for row in rows]
            return [_projected(reader, _shown(row)) if row[-1] else _shown(row) for row in rows]

    def by_activity(
        self, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Every session, children too, newest activity first."""
        name = None if source is None else source_name(source)
        page = (whole("limit", limit), max(0, whole("offset", offset)))
        with self._engine.read(settled=True) as reader:
            return [_shown(row) for row in reader.rows(EVERY_BY_ACTIVITY, name, name, None, None, *page)]


def _select(
    reader: Reader,
    source: str | None,
    but: str | None,
    limit: int,
    offset: int,
    every: bool,
    by_activity: bool,
) -> list[Row]:
    page = (but, but, limit, offset)
    if every:
        return reader.rows(EVERY_BY_ACTIVITY if by_activity else EVERY_BY_START, source, source, *page)
    if source is None:
        return reader.rows(BY_ACTIVITY if by_activity else BY_START, *page)
    return reader.rows(BY_ACTIVITY_OF_SOURCE if by_activity else BY_START_OF_SOURCE, source, *page)


def _projected(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    """A conversation that went on after a compression, shown as its live tip."""
    live = tip(reader, row["id"])
    session = reader.dict(SELECT_ROW, live) if live != row["id"] else None
    if session is None:
        return row
    session["preview"] = session["preview"] or ""
    if session["last_active"] is None:
        session["last_active"] = row["started_at"]
    return {**row, **{name: session[name] for name in PROJECTED}, "_lineage_root_id": row["id"]}


def _shown(row: Row) -> dict[str, Any]:
    return dict(zip(COLUMNS, row, strict=False))  # what stands behind the columns is for us
