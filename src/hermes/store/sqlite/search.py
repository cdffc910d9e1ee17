"""Exact message search: the index narrows, the text decides, and rows the index has not reached are read directly.

Ranking costs a microsecond for every match, walking the matches a twentieth of that. So a query all of whose words are
very common, for which BM25 has nothing to say, is answered newest first: FTS5 walks row ids downwards, and reading
stops at the limit. Where only some branches of an OR are common, the others are ranked and the rest comes after them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from heapq import merge
from itertools import chain
from typing import Any

from hermes.store.content import decode
from hermes.store.matching import (
    And,
    Literal,
    MessageText,
    Node,
    Not,
    Or,
    Part,
    Phrase,
    Word,
    matches,
    needs_check,
)
from hermes.store.sqlite import index
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.filters import ALLOWED, values_of
from hermes.store.sqlite.texts import Texts, fields_of
from hermes.store.values import Hit, MessageFilter, Order, SearchAnswer

TAIL_ROWS = 500
"""So many rows that are not indexed yet are always looked at one by one; more of them only while time allows."""
TAIL_SECONDS = 2.0
VERY_COMMON = 10_000
"""So many matches are not ranked."""
LATELY = 4096
"""What is far from that, either way, among the messages written last is taken to be so at all: counting costs, too."""

# Each statement is put together from these parts once, at import; values are always bound.
FOUND = """SELECT m.id, m.session_id, m.role, m.content, m.content_kind, m.tool_name, m.tool_calls, m.timestamp,
    s.source, s.model, s.started_at"""
# CROSS JOIN keeps the order of the loops: rows come as the outermost table gives them, and reading stops at the limit.
OF_INDEX = """FROM messages_fts_words f CROSS JOIN messages m ON m.id = f.rowid
    CROSS JOIN sessions s ON s.id = m.session_id"""
OF_ROWS = "FROM messages m CROSS JOIN sessions s ON s.id = m.session_id"
OF_CHANGED = """FROM changed_messages c CROSS JOIN messages m ON m.id = c.message_id
    CROSS JOIN sessions s ON s.id = m.session_id"""
MATCHING = "WHERE f.messages_fts_words MATCH ?1"
INDEXED: dict[Order, str] = {
    "relevance": " ".join((FOUND, OF_INDEX, MATCHING, ALLOWED, "ORDER BY f.rank")),
    "newest": " ".join((FOUND, OF_INDEX, MATCHING, ALLOWED, "ORDER BY f.rowid DESC")),
    "oldest": " ".join((FOUND, OF_INDEX, MATCHING, ALLOWED, "ORDER BY f.rowid")),
}
NEWEST_FIRST = " ".join((FOUND, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
OLDEST_FIRST = " ".join((FOUND, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id"))
ABOVE = " ".join((FOUND, OF_ROWS, "WHERE m.id > ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED = " ".join((FOUND, OF_CHANGED, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED_IDS = "SELECT message_id FROM changed_messages"
NO_TERM = "("
"""What no message holds: a term is made of letters and digits."""
COUNT_LATELY = "SELECT count(*) FROM messages_fts_words WHERE messages_fts_words MATCH ? AND rowid > ?"
COUNT = "SELECT count(*) FROM (SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? LIMIT 10000)"


def search(
    reader: SqliteReader,
    tree: Node,
    wanted: MessageFilter,
    limit: int,
    offset: int,
    order: Order = "relevance",
    texts: Texts | None = None,
) -> SearchAnswer:
    """The matching messages of this snapshot. By relevance, what is not indexed yet comes first, newest first."""
    allowed = values_of(wanted)
    mark, above, changed = index.behind(reader, TAIL_ROWS + 1)
    tail, unseen = _tail(reader, tree, allowed, mark, above, changed, texts or Texts())
    skip = {row[0] for row in reader.rows(CHANGED_IDS)} if changed else frozenset[int]()
    found = _Indexed(reader, tree, allowed, mark, skip)
    if order == "relevance":
        rare = found.rare_part()
        order = "newest" if rare is None else order
    else:
        rare = None
    if rare is None:
        newest = order == "newest"
        tail.sort(key=lambda hit: hit.id, reverse=newest)
        hits: Iterator[Hit] = merge(tail, found.walk(order), key=lambda hit: hit.id, reverse=newest)
    elif rare is tree:
        hits = chain(tail, found.walk(order))
    else:
        hits = chain(tail, found.rare_first(rare))
    end = offset + limit if limit >= 0 else None
    taken: list[Hit] = []
    while (end is None or len(taken) < end) and (hit := next(hits, None)) is not None:
        taken.append(hit)
    capped = rare is not tree and len(taken) == end and next(hits, None) is not None
    total = int(reader.value(index.HIGHEST) or 0) if unseen else 0
    return SearchAnswer(taken[offset:], unseen, total, order=order, capped=capped)


class _Indexed:
    """What the index finds, in any order, without rows that were changed since."""

    def __init__(
        self, reader: SqliteReader, tree: Node, allowed: tuple[Any, ...], mark: int, skip: Collection[int]
    ) -> None:
        self._reader, self._tree, self._allowed = reader, tree, allowed
        self._mark, self._skip = mark, skip
        self._expression = fts5(tree)

    def rare_part(self) -> Node | None:
        """What of the tree is worth ranking: all of it, some branches of its OR, or, where all is common, nothing.

        None also where there is nothing that the index could narrow by: punctuation alone, or only exclusions.
        """
        if self._expression is None:
            return None
        if self._mark < VERY_COMMON or not self._is_common(self._expression):
            return self._tree
        if not isinstance(self._tree, Or):
            return None
        branches = [(part, fts5(part)) for part in self._tree.of]
        rare = [part for part, found in branches if found is not None and not self._is_common(found)]
        return Or(tuple(rare)) if rare else None

    def _is_common(self, expression: str) -> bool:
        return matches_of(self._reader, expression, self._mark) >= VERY_COMMON

    def walk(self, order: Order) -> Iterator[Hit]:
        if self._expression is not None:
            return self._hits(INDEXED[order], self._expression, needs_check(self._tree))
        return self._hits(OLDEST_FIRST if order == "oldest" else NEWEST_FIRST, self._mark, True)

    def rare_first(self, rare: Node) -> Iterator[Hit]:
        seen: set[int] = set()
        for hit in self._hits(INDEXED["relevance"], fts5(rare), needs_check(self._tree)):
            seen.add(hit.id)
            yield hit
        yield from (hit for hit in self.walk("newest") if hit.id not in seen)

    def _hits(self, sql: str, first: object, check: bool) -> Iterator[Hit]:
        for row in self._reader.each(sql, first, *self._allowed):
            known = row[0] <= self._mark and row[0] not in self._skip
            if known and (not check or matches(self._tree, _text(row))):
                yield _hit(row)


def matches_of(reader: SqliteReader, expression: str, mark: int) -> int:
    """About how many messages match, as far as it matters here: up to VERY_COMMON."""
    lately = int(reader.value(COUNT_LATELY, expression, mark - LATELY)) * mark // LATELY
    if lately >= 2 * VERY_COMMON or lately <= VERY_COMMON // 2:
        return min(lately, VERY_COMMON)
    return int(reader.value(COUNT, expression))


def _tail(
    reader: SqliteReader,
    tree: Node,
    allowed: tuple[Any, ...],
    mark: int,
    above: int,
    changed: bool,
    texts: Texts,
) -> tuple[list[Hit], int]:
    """(matching rows the index does not know, how many of them there was no time to look at)."""
    found: list[Hit] = []
    seen, until = 0, time.monotonic() + TAIL_SECONDS
    if above:
        for row in reader.each(ABOVE, mark, *allowed):
            seen += 1
            if seen > TAIL_ROWS and time.monotonic() > until:
                return found, int(reader.value(index.HIGHEST)) - mark - seen
            if matches(tree, texts.of(row[0], row[3:7]).text):
                found.append(_hit(row))
    if changed:
        found += [_hit(row) for row in reader.each(CHANGED, mark, *allowed) if matches(tree, _text(row))]
    return found, 0


def _text(row: Any) -> MessageText:
    return MessageText.of(*fields_of(row[3], row[4], row[5], row[6]))


def _hit(row: Any) -> Hit:
    message_id, session_id, role, content, kind, tool_name, tool_calls, at, source, model, started = row
    return Hit(
        message_id, session_id, role, decode(content, kind), tool_name, tool_calls, at, source, model, started
    )


def fts5(tree: Node) -> str | None:
    """The tree as an FTS5 expression that finds at least everything the tree matches; None if it finds all.

    Exclusions are passed on only where the index decides them exactly.
    """
    match tree:
        case Word() | Phrase():
            if not tree.terms:
                return None
            return _quoted(" ".join(tree.terms)) + (" *" if tree.prefix_last else "")
        case Part(terms=terms):
            return None if terms is None else "(" + " OR ".join(map(_quoted, terms or (NO_TERM,))) + ")"
        case Literal():
            return None
        case And(of=parts):
            kept = [
                found for part in parts if not isinstance(part, Not) and (found := fts5(part)) is not None
            ]
            if not kept:
                return None
            joined = "(" + " AND ".join(kept) + ")"
            exact = [part for part in parts if isinstance(part, Not) and not needs_check(part)]
            barred = [found for part in exact if (found := fts5(part.of)) is not None]
            # One NOT for all of them: FTS5 allows no deep nesting.
            return "(" + joined + " NOT (" + " OR ".join(barred) + "))" if barred else joined
        case Or(of=parts):
            every = [fts5(part) for part in parts]
            return None if None in every else "(" + " OR ".join(found for found in every if found) + ")"
        case _:
            return None


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
