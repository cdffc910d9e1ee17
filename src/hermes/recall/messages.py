"""`search_messages`: what was typed, over every message, exactly; with a snippet and the neighbours of each hit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.recall.query import parse
from hermes.recall.snippets import snippet
from hermes.store.arguments import names, whole
from hermes.store.content import decode
from hermes.store.engine import Access, Reader
from hermes.store.matching import Node
from hermes.store.sessions import source_name
from hermes.store.values import Hit, MessageFilter, SearchResults
from hermes.text import text_of, text_of_tool_calls

CONTEXT_LENGTH = 200
SHOWN_STRUCTURE = "[multimodal content]"

BEFORE = """SELECT role, content, content_kind FROM messages
    WHERE session_id = ? AND id < ? AND active = 1 ORDER BY id DESC LIMIT 1"""
AFTER = """SELECT role, content, content_kind FROM messages
    WHERE session_id = ? AND id > ? AND active = 1 ORDER BY id LIMIT 1"""


class MessageSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def search(
        self,
        query: object,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> SearchResults:
        results = SearchResults()
        limit, offset = whole("limit", limit), max(0, whole("offset", offset))
        tree = parse(query) if isinstance(query, str) else None
        if tree is None or limit == 0:
            return results
        wanted = MessageFilter(
            None if source_filter is None else _sources("source_filter", source_filter),
            _sources("exclude_sources", exclude_sources or ()),
            names("role_filter", role_filter or ()),
        )
        answer = self._engine.search(tree, wanted, limit, offset)
        if answer.waiting:
            results.indexing = (answer.total - answer.waiting, answer.total)
        with self._engine.read() as reader:
            results.extend(_result(reader, tree, hit) for hit in answer.hits)
        return results


def _sources(parameter: str, values: object) -> tuple[str, ...]:
    return tuple(source_name(name) for name in names(parameter, values))


def _result(reader: Reader, tree: Node, hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "session_id": hit.session_id,
        "role": hit.role,
        "snippet": snippet(_whole_text(hit), tree),
        "timestamp": hit.timestamp,
        "tool_name": hit.tool_name,
        "source": hit.source,
        "model": hit.model,
        "session_started": hit.session_started,
        "context": _context(reader, hit),
    }


def _whole_text(hit: Hit) -> str:
    fields = (
        text_of(hit.content),
        hit.tool_name or "",
        text_of_tool_calls(hit.tool_calls) if hit.tool_calls else "",
    )
    return "\n".join(field for field in fields if field)


def _context(reader: Reader, hit: Hit) -> list[dict[str, Any]]:
    """The message before, the hit and the one after, as far as there are any."""
    near = [{"role": hit.role, "content": _shown(hit.content)}]
    if (row := reader.row(BEFORE, hit.session_id, hit.id)) is not None:
        near.insert(0, {"role": row[0], "content": _shown(decode(row[1], row[2]))})
    if (row := reader.row(AFTER, hit.session_id, hit.id)) is not None:
        near.append({"role": row[0], "content": _shown(decode(row[1], row[2]))})
    return near


def _shown(content: Any) -> str:
    if isinstance(content, list | dict):
        return text_of(content)[:CONTEXT_LENGTH] or SHOWN_STRUCTURE
    return "" if content is None else str(content)[:CONTEXT_LENGTH]
