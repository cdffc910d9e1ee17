"""Where the browser gets conversations from: a page of the list, or what a query finds.

`search_rows` alone knows how conversations are searched. A query that is being typed ends in the middle of a word, so
the last word also counts as a prefix. Everything here blocks, and is called in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes.browser.rows import PAGE, Conversation, Rows
from hermes.recall.snippets.snippets import CLOSE, OPEN

if TYPE_CHECKING:
    from hermes.browser.view_state import View
    from hermes.db.session_db import SessionDB

MOST_FOUND = 100
"""Conversations shown for a query: whoever does not find it among these types another word."""

_MARKED = re.compile(f"{OPEN}(.+?){CLOSE}", re.DOTALL)


def load_rows(db: SessionDB, view: View, offset: int = 0) -> Rows:
    """What a view shows: of a list the page at an offset, of a search everything found."""
    if view.is_search:
        return search_rows(db, view)
    page = db.list_conversations(limit=_get_limit(view, offset), offset=offset, **view.list_arguments())
    rows = Rows(page.total if view.limit is None else min(view.limit, page.total), page.hidden)
    rows.put(offset, map(Conversation.from_row, page.rows))
    return rows


def load_page(db: SessionDB, view: View, offset: int) -> list[Conversation]:
    page = db.list_conversations(limit=_get_limit(view, offset), offset=offset, **view.list_arguments())
    return [Conversation.from_row(row) for row in page.rows]


def search_rows(db: SessionDB, view: View) -> Rows:
    """The conversations whose titles or messages match, each once: titles first, then the best."""
    rows: dict[str, Conversation] = {}
    hidden, are_more = 0, False
    most = min(MOST_FOUND, view.limit or MOST_FOUND)
    hits = db.search_conversations(
        view.query,
        MOST_FOUND + 1,  # one more tells whether there are more
        sources=view.sources,
        include_hidden=view.kinds is not None or view.archived,
        unfinished=True,
    )
    for hit in hits:
        found_row = load_conversation(db, hit["session_id"], hit["message_id"], hit["snippet"])
        if found_row is None:
            continue
        if not view.is_showing(found_row):
            hidden += 1
            continue
        if len(rows) == most and found_row.root_id not in rows:
            are_more = True
            break
        rows.setdefault(found_row.root_id, found_row)
    left_out = {**hits.hidden, **({"more": hidden} if hidden else {})}
    result = Rows(len(rows), left_out, are_more=are_more, parts=hits.parts)
    result.put(0, sorted(rows.values(), key=_KEYS[view.found_order]))
    return result


def load_conversation(
    db: SessionDB, session_id: str, message_id: int | None = None, snippet: str = ""
) -> Conversation | None:
    """The conversation of a session as a row, with the message that it was found by; None if it is gone."""
    found = db.get_session(session_id)
    if found is None:
        return None
    root = db.get_session(found["root_id"] or session_id) or found
    live = db.get_session(db.get_compression_tip(root["id"])) or found
    row = {**root, **{name: live[name] for name in ("id", "title", "last_active", "message_count")}}
    row["title"] = row["title"] or root["title"]
    row["root_id"] = root["id"]
    if row["last_active"] is None:
        row["last_active"] = root["started_at"]
    return Conversation.from_row(row)._replace(
        snippet=snippet, session_id=session_id if message_id else None, message_id=message_id
    )


def find_index(db: SessionDB, rows: Rows, session_id: str, message_id: int | None) -> int:
    """Where among the rows the conversation of a session is; it is put first if it is not there."""
    target = load_conversation(db, session_id, message_id)
    if target is None:
        return 0
    index = rows.find_index(target.root_id)
    if index is None:
        rows.put_first(target)
        return 0
    if message_id is not None:
        rows.change(target.root_id, session_id=session_id, message_id=message_id)
    return index


def find_clues(snippet: str) -> tuple[str, ...]:
    """The pieces of a snippet that matched, as they were written."""
    return tuple(dict.fromkeys(_MARKED.findall(snippet)))


def list_sources(db: SessionDB) -> list[tuple[str, int]]:
    """Every source with the number of its conversations, the most used first.

    Asks for the newest conversation of a source that is not known yet, until there is none: a few short lists.
    """
    counts: dict[str, int] = {}
    before: int | None = None
    while True:
        page = db.list_conversations(limit=1, include_hidden=True, exclude_sources=list(counts))
        if before is not None:
            counts[list(counts)[-1]] = before - page.total
        if not page.rows or page.rows[0]["source"] in counts:
            return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        counts[page.rows[0]["source"]] = 0
        before = page.total


def _get_limit(view: View, offset: int) -> int:
    return PAGE if view.limit is None else max(0, min(PAGE, view.limit - offset))


def _to_timestamp(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_KEYS: dict[str, Callable[[Conversation], Any]] = {
    "relevance": lambda row: 0,
    "activity": lambda row: -_to_timestamp(row.last_active),
    "started": lambda row: -_to_timestamp(row.started_at),
    "title": lambda row: (not row.title, (row.title or "").lower()),
}
