"""The matches of a query in the index, as lazy iterators of ids in any order.

Ranking costs a microsecond per match, and iterating over matches a twentieth of that. If all words of a query
are very common, BM25 cannot distinguish the matches, so they are not ranked but returned newest first: FTS5
iterates over row ids in descending order, and reading stops at the limit. If only some branches of an OR are
common, the matches of the other branches are ranked, and the remaining matches come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from hermes.store.engine import Row
from hermes.store.query_tree import (
    And,
    Literal,
    MessageText,
    Node,
    Not,
    Or,
    Part,
    Phrase,
    Word,
    can_narrow,
    confirms,
    has_short_prefix,
    leave_to_text,
    matches,
    needs_check,
)
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.search.row_filters import ALLOWED
from hermes.store.sqlite.search.split_texts import Texts, fields_of
from hermes.store.values import Order

VERY_COMMON = 10_000
"""A query with at least this many matches is very common, and its matches are not ranked."""
LATELY = 2048
"""The number of newest messages in which matches are counted first, to estimate how common a query is.

If the estimate for all messages is clearly below or above `VERY_COMMON`, it is used. Otherwise all matches
are counted, which is expensive.
"""
BEFORE_INDEX, BEFORE_INDEX_ONCE, SHORT = 512, 20_000, 20_000
"""How many of the newest messages are read before the index is used, for a prefix of one or two letters.

Reading stops at a message longer than SHORT characters. With `once`, the second number applies. It is higher,
because messages of conversations that were already found are skipped. The index is slow for a short prefix:
FTS5 merges the postings of all matching terms before it returns a row. For one letter that takes 25 ms in a
store of 70,000 messages.
"""
DENSE = 0.25
"""A prefix of one or two letters is dense if at least this share of messages matches it.

For a dense prefix, the newest messages are read before the index is used. If the query also has a selective
condition, the index is used for that condition, and the dense prefix is checked in the texts. For other
prefixes the index is used at once, because FTS5 merges their postings quickly.
"""

# The statements are built from these parts once, at import. Values are always bound.
IDS = "SELECT m.id"
ROOTS = "SELECT m.id, coalesce(s.root_id, s.id)"
TEXTS = "SELECT m.id, m.content, m.content_kind, m.tool_name, m.tool_calls"
# CROSS JOIN fixes the order of the loops: rows come in the order of the outermost table, and reading stops at the
# limit.
OF_INDEX = """FROM messages_fts_words f CROSS JOIN messages m ON m.id = f.rowid
    CROSS JOIN sessions s ON s.id = m.session_id"""
OF_ROWS = "FROM messages m CROSS JOIN sessions s ON s.id = m.session_id"
MATCHING = "WHERE f.messages_fts_words MATCH ?1"
BY: dict[Order, str] = {
    "relevance": "ORDER BY f.rank",
    "newest": "ORDER BY f.rowid DESC",
    "oldest": "ORDER BY f.rowid",
}
INDEXED = {order: " ".join((IDS, OF_INDEX, MATCHING, ALLOWED, by)) for order, by in BY.items()}
INDEXED_ROOTS = {order: " ".join((ROOTS, OF_INDEX, MATCHING, ALLOWED, by)) for order, by in BY.items()}
INDEXED_TEXTS = {order: " ".join((TEXTS, OF_INDEX, MATCHING, ALLOWED, by)) for order, by in BY.items()}
SCORES = " ".join((ROOTS, ", -f.rank", OF_INDEX, MATCHING, ALLOWED, BY["relevance"]))
NEWEST_FIRST = " ".join((TEXTS, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
OLDEST_FIRST = " ".join((TEXTS, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id"))
LATEST = " ".join((ROOTS, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "AND m.id > ? ORDER BY m.id DESC"))
TEXT = " ".join((TEXTS, "FROM messages m WHERE m.id = ?"))
LAST = " ".join((TEXTS, "FROM messages m WHERE m.id <= ? ORDER BY m.id DESC LIMIT 64"))
NO_TERM = "("
"""A term that no message contains, because terms consist of letters and digits."""
COUNT_LATELY = """SELECT count(*) FROM
    (SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? AND rowid > ? LIMIT ?)"""
COUNT = "SELECT count(*) FROM (SELECT 1 FROM messages_fts_words WHERE messages_fts_words MATCH ? LIMIT 10000)"


class Indexed:
    """The matches of one query in the index, as iterators in any order. Messages that were changed since they were
    indexed are left out, because they belong to the unindexed tail.
    """

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
        """The conversations that need no more messages.

        None if all messages of every conversation are needed.
        """
        self._reader, self._allowed = reader, allowed
        self._mark, self._skip, self._texts = mark, skip, texts
        self.tree = tree
        if mark >= VERY_COMMON and has_short_prefix(tree):
            self.tree = leave_to_text(tree, lambda leaf: self._share(leaf) >= DENSE)
        self._is_begun = mark >= VERY_COMMON and has_short_prefix(self.tree)
        self._expression = format_fts5(self.tree)

    def rare_part(self) -> Node | None:
        """Return the part of the query tree whose matches are worth ranking: the whole tree, or some branches of its
        OR.

        Return None if every part of the tree matches so many messages that ranking them is not worth its cost. Return
        None too if the tree consists only of punctuation or only of exclusions, because the index cannot search for
        these.
        """
        if self._expression is None:
            return None
        if self._mark < VERY_COMMON or not self._is_common(self.tree, self._expression):
            return self.tree
        if not isinstance(self.tree, Or):
            return None
        branches = [(part, format_fts5(part)) for part in self.tree.of]
        rare = [part for part, found in branches if found is not None and not self._is_common(part, found)]
        return Or(tuple(rare)) if rare else None

    def _is_common(self, tree: Node, expression: str) -> bool:
        if self._is_begun and has_short_prefix(tree) and self._share(tree) * self._mark >= 2 * VERY_COMMON:
            return True
        return count_matches(self._reader, expression, self._mark) >= VERY_COMMON

    def _share(self, tree: Node) -> float:
        """Return which share of the newest indexed messages matches `tree`, as a number from 0 to 1. It is an
        estimate for the whole store.

        Long messages are left out, because splitting them into words is expensive.
        """
        rows = [row for row in self._reader.rows(LAST, self._mark) if _size(row) <= SHORT]
        return sum(matches(tree, self._texts.get_text(row[0], row[1:]).text) for row in rows) / max(
            1, len(rows)
        )

    def walk(self, order: Order) -> Iterator[int]:
        if self._expression is not None:
            begun = self._is_begun and order == "newest" and self._share(self.tree) >= DENSE
            return self._texts_first(self._expression) if begun else self._among(self._expression, order)
        rows = self._reader.each(
            OLDEST_FIRST if order == "oldest" else NEWEST_FIRST, self._mark, *self._allowed
        )
        return (row[0] for row in self._drop_unindexed(rows) if matches(self.tree, parse_text(row)))

    def _texts_first(self, expression: str) -> Iterator[int]:
        """Yield the ids of the matching messages, newest first. The newest messages are matched by reading their
        texts, and older ones with `expression` in the index.

        The reading of texts stops at the first long message.
        """
        rest = self._mark - (BEFORE_INDEX if self._enough is None else BEFORE_INDEX_ONCE)
        for message_id, root in self._drop_unindexed(
            self._reader.each(LATEST, self._mark, *self._allowed, rest)
        ):
            if self._enough is not None and root in self._enough:
                continue
            row = self._reader.row(TEXT, message_id)
            if row is None or _size(row) > SHORT:
                rest = message_id
                break
            if matches(self.tree, self._texts.get_text(row[0], row[1:]).text):
                yield message_id
        if rest > 0:
            yield from (message_id for message_id in self._among(expression, "newest") if message_id <= rest)

    def rank(self, rare: Node, *, scored: bool) -> Iterator[tuple[float, int]]:
        """Yield (score, message id) for each match of `rare`, which is the result of `rare_part`. The best match
        comes first.

        If `scored` is false, all scores are 0. The caller needs real scores only to merge these matches with others.
        """
        expression = format_fts5(rare)
        assert expression is not None  # a branch that the index cannot select by is not rare
        holds = confirms if rare is self.tree else matches
        if not scored:
            yield from ((0.0, message_id) for message_id in self._among(expression, "relevance", holds))
            return
        checked = needs_check(self.tree)
        for message_id, root, score in self._drop_unindexed(
            self._reader.each(SCORES, expression, *self._allowed)
        ):
            if self._enough is not None and root in self._enough:
                continue
            row = self._reader.row(TEXT, message_id) if checked else None
            if row is None or holds(self.tree, parse_text(row)):
                yield score, message_id

    def _among(
        self, expression: str, order: Order, holds: Callable[[Node, MessageText], bool] = confirms
    ) -> Iterator[int]:
        """Yield the ids of the messages that the FTS5 expression finds in the index and that match the query.

        If the index alone cannot decide whether a message matches, its text is read and `holds` decides.
        """
        checked = needs_check(self.tree)
        if self._enough is not None:
            for message_id, root in self._drop_unindexed(
                self._reader.each(INDEXED_ROOTS[order], expression, *self._allowed)
            ):
                if root in self._enough:  # its text need not be read
                    continue
                row = self._reader.row(TEXT, message_id) if checked else None
                if row is None or holds(self.tree, parse_text(row)):
                    yield message_id
            return
        sql = INDEXED_TEXTS[order] if checked else INDEXED[order]
        rows = self._drop_unindexed(self._reader.each(sql, expression, *self._allowed))
        yield from (row[0] for row in rows if not checked or holds(self.tree, parse_text(row)))

    def _drop_unindexed(self, rows: Iterator[Row]) -> Iterator[Row]:
        return (row for row in rows if row[0] <= self._mark and row[0] not in self._skip)


def count_matches(reader: SqliteReader, expression: str, mark: int) -> int:
    """Return the approximate number of indexed messages that match the FTS5 expression. `mark` is the watermark of
    the index.

    A number above `VERY_COMMON` may be returned as `VERY_COMMON`.
    """
    enough = 2 * VERY_COMMON * LATELY // max(1, mark) + 1
    lately = int(reader.value(COUNT_LATELY, expression, mark - LATELY, enough)) * mark // LATELY
    if lately >= 2 * VERY_COMMON or lately <= VERY_COMMON // 2:
        return min(lately, VERY_COMMON)
    return int(reader.value(COUNT, expression))


def _size(row: Row) -> int:
    return len(row[1] or "") + len(row[4] or "")


def parse_text(row: Row) -> MessageText:
    return MessageText.of(*fields_of(*row[1:]))


def format_fts5(tree: Node) -> str | None:
    """Return an FTS5 expression that finds at least everything the tree matches, or None if it would find all
    messages.

    An exclusion is part of the expression only if the index can decide it exactly.
    """
    match tree:
        case Word() | Phrase():
            if not can_narrow(tree):
                return None
            return _quote(" ".join(tree.terms)) + (" *" if tree.prefix_last else "")
        case Part(terms=terms):
            return None if terms is None else "(" + " OR ".join(map(_quote, terms or (NO_TERM,))) + ")"
        case Literal():
            return None
        case And(of=parts):
            kept = [
                found
                for part in parts
                if not isinstance(part, Not) and (found := format_fts5(part)) is not None
            ]
            if not kept:
                return None
            joined = "(" + " AND ".join(kept) + ")"
            exact = [part for part in parts if isinstance(part, Not) and not needs_check(part)]
            barred = [found for part in exact if (found := format_fts5(part.of)) is not None]
            # A single NOT for all of them, because FTS5 limits the nesting depth.
            return "(" + joined + " NOT (" + " OR ".join(barred) + "))" if barred else joined
        case Or(of=parts):
            every = [format_fts5(part) for part in parts]
            return None if None in every else "(" + " OR ".join(found for found in every if found) + ")"
        case _:
            return None


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
