"""Exact message search: the index selects, the text confirms, and unindexed rows are read directly.

Matches are processed by id. Texts are read only where the index cannot decide, and for the few rows that are
returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from hermes.store.content import decode, to_json
from hermes.store.engine import Row
from hermes.store.query_tree import EVERYTHING, Node
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.search import index, unindexed_tail
from hermes.store.sqlite.search.index_walk import Indexed
from hermes.store.sqlite.search.row_filters import values_of
from hermes.store.sqlite.search.split_texts import Texts
from hermes.store.sqlite.search.time_walk import walk_newest
from hermes.store.sqlite.search.unindexed_tail import Deadline
from hermes.store.values import Hit, Order, SearchAnswer, SearchRequest
from hermes.text import to_text

MOST_WALKED = 2_000
"""How many matches are examined to find the first match of each conversation. A conversation may have several
of these matches."""

LARGE = 500_000
MORE_CACHE = "PRAGMA cache_size=-24000"

SHOWN = """SELECT m.id, m.session_id, m.role, m.content, m.content_kind, m.tool_name, m.tool_calls, m.timestamp,
    s.source, s.model, s.started_at, (SELECT b.id FROM messages b
        WHERE b.session_id = m.session_id AND b.id < m.id AND b.active = 1 ORDER BY b.id DESC LIMIT 1),
    (SELECT a.id FROM messages a
        WHERE a.session_id = m.session_id AND a.id > m.id AND a.active = 1 ORDER BY a.id LIMIT 1)
    FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value CROSS JOIN sessions s ON s.id = m.session_id"""
# The beginning of a text is enough. If SQL returns fewer characters, a NUL may have cut the text, so all of
# it is read.
NEIGHBOURS = """SELECT m.id, m.role, CASE WHEN length(substr(m.content, 1, 200)) = 200
    THEN substr(m.content, 1, 200) ELSE m.content END, m.content_kind
    FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"""
ROOT = """SELECT coalesce(s.root_id, s.id) FROM messages m CROSS JOIN sessions s ON s.id = m.session_id
    WHERE m.id = ?"""
CHANGED_IDS = "SELECT message_id FROM changed_messages"


def search(
    reader: SqliteReader,
    tree: Node,
    request: SearchRequest,
    standing: index.Standing,
    texts: Texts,
    deadline: Deadline,
) -> SearchAnswer:
    """Return the requested messages of this snapshot that match the tree.

    Indexed and unindexed messages are merged in the requested order. With `request.once`, only the first
    match of each conversation is returned, and only `MOST_WALKED` matches are examined. Raise `SearchTimeout`
    if reading the unindexed messages takes too long.
    """
    message_filter, _limit, _offset, order, once = request
    allowed = values_of(message_filter)
    mark, _, changed = standing
    make_room(reader, mark)
    skip = {row[0] for row in reader.rows(CHANGED_IDS)} if changed else frozenset[int]()
    first: dict[str, int] | None = {} if once else None
    if tree == EVERYTHING and order != "oldest":  # every row is read, so the index is not needed
        return _take(reader, walk_newest(reader, allowed, first), request, "newest", first)
    found = Indexed(reader, tree, allowed, mark, skip, texts, first)
    if order == "relevance":
        rare = found.rare_part()
        order = "newest" if rare is None else order
    else:
        rare = None
    unindexed = unindexed_tail.find_matches(reader, found.tree, rare, allowed, standing, texts, deadline)
    found_ids: Iterator[int]
    if rare is None:
        found_ids = _merge_by_id([match.id for match in unindexed], found.walk(order), order)
    else:
        scored = unindexed_tail.score_matches(reader, rare, unindexed, mark) if unindexed else []
        ranked = merge(scored, found.rank(rare, scored=bool(scored)), key=itemgetter(0), reverse=True)
        found_ids = best = (message_id for _, message_id in ranked)
        if rare is not found.tree:  # then all other matches, newest first
            others = [match.id for match in unindexed if not match.counts]
            found_ids = _skip_repeated(best, _merge_by_id(others, found.walk("newest"), "newest"))
    return _take(reader, found_ids, request, order, first)


def _take(
    reader: SqliteReader,
    found_ids: Iterator[int],
    request: SearchRequest,
    order: Order,
    first: dict[str, int] | None,
) -> SearchAnswer:
    """Return the part of the matching messages that the limit and the offset of `request` select, as hits.

    `found_ids` are the ids of the matching messages, in the order `order`. If `first` is not None, only the first
    match of each conversation is returned, and `first` is filled with these matches.
    """
    limit, offset = request.limit, request.offset
    if first is not None:
        taken, capped = _take_first_of_each(reader, found_ids, limit, first)
    elif limit < 0:
        taken, capped = list(islice(found_ids, offset, None)), False
    else:
        taken = list(islice(found_ids, offset, offset + limit + 1))
        capped = len(taken) > limit
        del taken[limit:]
    return SearchAnswer(hits_of(reader, taken), order=order, capped=capped)


def _merge_by_id(unindexed: list[int], walked: Iterator[int], order: Order) -> Iterator[int]:
    newest = order == "newest"
    return merge(sorted(unindexed, reverse=newest), walked, reverse=newest)


def _skip_repeated(first: Iterator[int], then: Iterator[int]) -> Iterator[int]:
    seen: set[int] = set()
    for message_id in first:
        seen.add(message_id)
        yield message_id
    yield from (message_id for message_id in then if message_id not in seen)


def _take_first_of_each(
    reader: SqliteReader, ids: Iterator[int], limit: int, first: dict[str, int]
) -> tuple[list[int], bool]:
    """Return the first of the messages `ids` in each conversation, for at most `limit` conversations, and whether
    there may be more.

    The messages are also added to `first`, which maps the root of a conversation to the id of the message.
    """
    for message_id in islice(ids, MOST_WALKED):
        first.setdefault(reader.value(ROOT, message_id), message_id)
        if len(first) > limit:
            return list(first.values())[:limit], True
    return list(first.values()), next(ids, None) is not None


def hits_of(reader: SqliteReader, ids: Sequence[int]) -> list[Hit]:
    """Return the messages with the given ids as hits, in the same order. Each hit also contains the messages before
    and after it.
    """
    if not ids:
        return []
    rows = {row[0]: row for row in reader.rows(SHOWN, to_json(ids))}
    near = [beside for row in rows.values() for beside in row[11:] if beside is not None]
    beside = {row[0]: (row[1], decode(row[2], row[3])) for row in reader.rows(NEIGHBOURS, to_json(near))}
    return [_make_hit(rows[message_id], beside) for message_id in ids if message_id in rows]


def _make_hit(row: Row, beside: dict[int, tuple[str, Any]]) -> Hit:
    message_id, session_id, role, content, kind, tool_name, tool_calls, *rest, before, after = row
    tool = (tool_name and to_text(tool_name), tool_calls and to_text(tool_calls))
    hit = Hit(message_id, session_id, role, decode(content, kind), *tool, *rest)
    return hit._replace(before=beside.get(before), after=beside.get(after))


def make_room(reader: SqliteReader, mark: int) -> None:
    """Enlarge SQLite's page cache for a search in a large store, because ranking looks up the length of each matching
    text.

    `mark` is the watermark of the index, which shows the size of the store.
    """
    if mark > LARGE:
        reader.rows(MORE_CACHE)
