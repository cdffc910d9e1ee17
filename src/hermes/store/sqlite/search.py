"""Exact message search: the index narrows, the text decides, and rows the index has not reached are read directly.

What matches is walked by its ids; texts are read only where they must decide, and for the few rows that are shown.

Ranking costs a microsecond for every match, walking the matches a twentieth of that. So a query all of whose words are
very common, for which BM25 has nothing to say, is answered newest first: FTS5 walks row ids downwards, and reading
stops at the limit. Where only some branches of an OR are common, the others are ranked and the rest comes after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any

from hermes.store.content import decode, to_json
from hermes.store.engine import Row
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
    by_text,
    confirms,
    is_begun,
    matches,
    narrows,
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
LATELY = 2048
"""What is far from that, either way, among the messages written last is taken to be so at all: counting costs, too."""

MOST_WALKED = 2_000
"""So many messages are walked for the first one of each conversation. One of them may hold more than that."""

BEFORE_INDEX, BEFORE_INDEX_ONCE, SHORT = 512, 20_000, 20_000
"""For a word of which there are only a letter or two, so many of the last messages are read before the index is asked,
and none longer than that; more, where those of conversations that were found already are passed by. FTS5 merges
whatever begins so before it answers, which takes 25 ms for a letter at 70,000 messages."""
DENSE = 0.25
"""That is done for a beginning that so many messages hold, and beside something that narrows it is left to their texts.
What is rarer is quickly merged."""

LARGE = 500_000
MORE_CACHE = "PRAGMA cache_size=-24000"

# Each statement is put together from these parts once, at import; values are always bound.
IDS = "SELECT m.id"
ROOTS = "SELECT m.id, coalesce(s.root_id, s.id)"
TEXTS = "SELECT m.id, m.content, m.content_kind, m.tool_name, m.tool_calls"
# CROSS JOIN keeps the order of the loops: rows come as the outermost table gives them, and reading stops at the limit.
OF_INDEX = """FROM messages_fts_words f CROSS JOIN messages m ON m.id = f.rowid
    CROSS JOIN sessions s ON s.id = m.session_id"""
OF_ROWS = "FROM messages m CROSS JOIN sessions s ON s.id = m.session_id"
OF_CHANGED = """FROM changed_messages c CROSS JOIN messages m ON m.id = c.message_id
    CROSS JOIN sessions s ON s.id = m.session_id"""
MATCHING = "WHERE f.messages_fts_words MATCH ?1"
BY: dict[Order, str] = {
    "relevance": "ORDER BY f.rank",
    "newest": "ORDER BY f.rowid DESC",
    "oldest": "ORDER BY f.rowid",
}
INDEXED = {order: " ".join((IDS, OF_INDEX, MATCHING, ALLOWED, by)) for order, by in BY.items()}
INDEXED_TEXTS = {order: " ".join((TEXTS, OF_INDEX, MATCHING, ALLOWED, by)) for order, by in BY.items()}
NEWEST_FIRST = " ".join((TEXTS, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
OLDEST_FIRST = " ".join((TEXTS, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id"))
LATEST = " ".join((ROOTS, OF_ROWS, "WHERE m.id <= ?1 AND m.id > ?17", ALLOWED, "ORDER BY m.id DESC"))
TEXT = " ".join((TEXTS, "FROM messages m WHERE m.id = ?"))
LAST = " ".join((TEXTS, "FROM messages m WHERE m.id <= ? ORDER BY m.id DESC LIMIT 64"))
ABOVE = " ".join((TEXTS, OF_ROWS, "WHERE m.id > ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED = " ".join((TEXTS, OF_CHANGED, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
SHOWN = """SELECT m.id, m.session_id, m.role, m.content, m.content_kind, m.tool_name, m.tool_calls, m.timestamp,
    s.source, s.model, s.started_at, (SELECT b.id FROM messages b
        WHERE b.session_id = m.session_id AND b.id < m.id AND b.active = 1 ORDER BY b.id DESC LIMIT 1),
    (SELECT a.id FROM messages a
        WHERE a.session_id = m.session_id AND a.id > m.id AND a.active = 1 ORDER BY a.id LIMIT 1)
    FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value CROSS JOIN sessions s ON s.id = m.session_id"""
# The beginning of a text is enough. It is short of that also where a NUL ends it early for SQL: then all is read.
NEIGHBOURS = """SELECT m.id, m.role, CASE WHEN length(substr(m.content, 1, 200)) = 200
    THEN substr(m.content, 1, 200) ELSE m.content END, m.content_kind
    FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"""
ROOT = """SELECT coalesce(s.root_id, s.id) FROM messages m CROSS JOIN sessions s ON s.id = m.session_id
    WHERE m.id = ?"""
CHANGED_IDS = "SELECT message_id FROM changed_messages"
NO_TERM = "("
"""What no message holds: a term is made of letters and digits."""
COUNT_LATELY = """SELECT count(*) FROM
    (SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? AND rowid > ? LIMIT ?)"""
COUNT = "SELECT count(*) FROM (SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? LIMIT 10000)"


def search(
    reader: SqliteReader,
    tree: Node,
    wanted: MessageFilter,
    limit: int,
    offset: int,
    order: Order,
    standing: index.Standing,
    texts: Texts,
    *,
    once: bool = False,
) -> SearchAnswer:
    """The matching messages of this snapshot. By relevance, what is not indexed yet comes first, newest first.

    With `once` the first message of each conversation, of as many messages as are worth walking.
    """
    allowed = values_of(wanted)
    mark, above, changed = standing
    make_room(reader, mark)
    tail, unseen = _tail(reader, tree, allowed, mark, above, changed, texts)
    skip = {row[0] for row in reader.rows(CHANGED_IDS)} if changed else frozenset[int]()
    first: dict[str, int] | None = {} if once else None
    found = _Indexed(reader, tree, allowed, mark, skip, texts, first)
    if order == "relevance":
        rare = found.rare_part()
        order = "newest" if rare is None else order
    else:
        rare = None
    if rare is None:
        newest = order == "newest"
        tail.sort(reverse=newest)
        found_ids: Iterator[int] = merge(tail, found.walk(order), reverse=newest)
    elif rare is found.tree:
        found_ids = chain(tail, found.walk(order))
    else:
        found_ids = chain(tail, found.rare_first(rare))
    if first is not None:
        taken, capped = _first_of_each(reader, found_ids, limit, first)
    elif limit < 0:
        taken, capped = list(islice(found_ids, offset, None)), False
    else:
        taken = list(islice(found_ids, offset, offset + limit + 1))
        capped = len(taken) > limit
        del taken[limit:]
    total = int(reader.value(index.HIGHEST) or 0) if unseen else 0
    return SearchAnswer(hits_of(reader, taken), unseen, total, order=order, capped=capped)


def _first_of_each(
    reader: SqliteReader, ids: Iterator[int], limit: int, first: dict[str, int]
) -> tuple[list[int], bool]:
    """The first message of each conversation, of so many; and whether there may be more. Fills in `first`."""
    for message_id in islice(ids, MOST_WALKED):
        first.setdefault(reader.value(ROOT, message_id), message_id)
        if len(first) > limit:
            return list(first.values())[:limit], True
    return list(first.values()), next(ids, None) is not None


def hits_of(reader: SqliteReader, ids: Sequence[int]) -> list[Hit]:
    """These messages as results show them, in this order, each with the messages before and after it."""
    if not ids:
        return []
    rows = {row[0]: row for row in reader.rows(SHOWN, to_json(ids))}
    near = [beside for row in rows.values() for beside in row[11:] if beside is not None]
    beside = {row[0]: (row[1], decode(row[2], row[3])) for row in reader.rows(NEIGHBOURS, to_json(near))}
    return [_hit(rows[one], beside) for one in ids if one in rows]


def _hit(row: Row, beside: dict[int, tuple[str, Any]]) -> Hit:
    message_id, session_id, role, content, kind, *rest, before, after = row
    hit = Hit(message_id, session_id, role, decode(content, kind), *rest)
    return hit._replace(before=beside.get(before), after=beside.get(after))


def make_room(reader: SqliteReader, mark: int) -> None:
    """Ranking looks up the length of each match: of so many messages that takes more pages than are usually kept."""
    if mark > LARGE:
        reader.rows(MORE_CACHE)


class _Indexed:
    """What the index finds, in any order, without rows that were changed since."""

    def __init__(
        self,
        reader: SqliteReader,
        tree: Node,
        allowed: tuple[Any, ...],
        mark: int,
        skip: Collection[int],
        texts: Texts,
        enough: dict[str, int] | None,
    ) -> None:
        self._enough = enough
        """Conversations of which no more is wanted; None if every message is."""
        self._reader, self._allowed = reader, allowed
        self._mark, self._skip, self._texts = mark, skip, texts
        self.tree = tree
        if mark >= VERY_COMMON and is_begun(tree):
            self.tree = by_text(tree, lambda leaf: self._share(leaf) >= DENSE)
        self._is_begun = mark >= VERY_COMMON and is_begun(self.tree)
        self._expression = fts5(self.tree)

    def rare_part(self) -> Node | None:
        """What of the tree is worth ranking: all of it, some branches of its OR, or, where all is common, nothing.

        None also where there is nothing that the index could narrow by: punctuation alone, or only exclusions.
        """
        if self._expression is None:
            return None
        if self._mark < VERY_COMMON or not self._is_common(self.tree, self._expression):
            return self.tree
        if not isinstance(self.tree, Or):
            return None
        branches = [(part, fts5(part)) for part in self.tree.of]
        rare = [part for part, found in branches if found is not None and not self._is_common(part, found)]
        return Or(tuple(rare)) if rare else None

    def _is_common(self, tree: Node, expression: str) -> bool:
        if self._is_begun and is_begun(tree) and self._share(tree) * self._mark >= 2 * VERY_COMMON:
            return True
        return matches_of(self._reader, expression, self._mark) >= VERY_COMMON

    def _share(self, tree: Node) -> float:
        """How many of the messages written last match, as far as they are short: what splitting them costs."""
        rows = [row for row in self._reader.rows(LAST, self._mark) if _size(row) <= SHORT]
        return sum(matches(tree, self._texts.of(row[0], row[1:]).text) for row in rows) / max(1, len(rows))

    def walk(self, order: Order) -> Iterator[int]:
        if self._expression is not None:
            begun = self._is_begun and order == "newest" and self._share(self.tree) >= DENSE
            return self._texts_first(self._expression) if begun else self._among(self._expression, order)
        rows = self._reader.each(
            OLDEST_FIRST if order == "oldest" else NEWEST_FIRST, self._mark, *self._allowed
        )
        return (row[0] for row in self._known(rows) if matches(self.tree, _text(row)))

    def _texts_first(self, expression: str) -> Iterator[int]:
        """Newest first: the last ones by their texts, while they are short, and only then by the index."""
        rest = self._mark - (BEFORE_INDEX if self._enough is None else BEFORE_INDEX_ONCE)
        for message_id, root in self._known(self._reader.each(LATEST, self._mark, *self._allowed, rest)):
            if self._enough is not None and root in self._enough:
                continue
            row = self._reader.row(TEXT, message_id)
            if row is None or _size(row) > SHORT:
                rest = message_id
                break
            if matches(self.tree, self._texts.of(row[0], row[1:]).text):
                yield message_id
        if rest > 0:
            yield from (message_id for message_id in self._among(expression, "newest") if message_id <= rest)

    def rare_first(self, rare: Node) -> Iterator[int]:
        seen: set[int] = set()
        expression = fts5(rare)
        assert expression is not None  # a branch that the index cannot find is not rare
        for message_id in self._among(expression, "relevance", matches):
            seen.add(message_id)
            yield message_id
        yield from (message_id for message_id in self.walk("newest") if message_id not in seen)

    def _among(
        self, expression: str, order: Order, holds: Callable[[Node, MessageText], bool] = confirms
    ) -> Iterator[int]:
        """What the index finds, as far as it is so; `holds` decides where the index cannot."""
        checked = needs_check(self.tree)
        sql = INDEXED_TEXTS[order] if checked else INDEXED[order]
        rows = self._known(self._reader.each(sql, expression, *self._allowed))
        return (row[0] for row in rows if not checked or holds(self.tree, _text(row)))

    def _known(self, rows: Iterator[Row]) -> Iterator[Row]:
        return (row for row in rows if row[0] <= self._mark and row[0] not in self._skip)


def matches_of(reader: SqliteReader, expression: str, mark: int) -> int:
    """About how many messages match, as far as it matters here: up to VERY_COMMON."""
    enough = 2 * VERY_COMMON * LATELY // max(1, mark) + 1
    lately = int(reader.value(COUNT_LATELY, expression, mark - LATELY, enough)) * mark // LATELY
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
) -> tuple[list[int], int]:
    """(matching rows the index does not know, how many of them there was no time to look at)."""
    found: list[int] = []
    seen, until = 0, time.monotonic() + TAIL_SECONDS
    if above:
        for row in reader.each(ABOVE, mark, *allowed):
            seen += 1
            if seen > TAIL_ROWS and time.monotonic() > until:
                return found, int(reader.value(index.HIGHEST)) - mark - seen
            if matches(tree, texts.of(row[0], row[1:]).text):
                found.append(row[0])
    if changed:
        found += [row[0] for row in reader.each(CHANGED, mark, *allowed) if matches(tree, _text(row))]
    return found, 0


def _size(row: Row) -> int:
    return len(row[1] or "") + len(row[4] or "")


def _text(row: Row) -> MessageText:
    return MessageText.of(*fields_of(*row[1:]))


def fts5(tree: Node) -> str | None:
    """The tree as an FTS5 expression that finds at least everything the tree matches; None if it finds all.

    Exclusions are passed on only where the index decides them exactly.
    """
    match tree:
        case Word() | Phrase():
            if not narrows(tree):
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
