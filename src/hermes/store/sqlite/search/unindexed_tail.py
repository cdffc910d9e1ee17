"""The unindexed tail: messages that are not in the search index yet, matched by their text within a deadline.

The tail is every row above the watermark of the index, and every lower row that was changed since it was indexed. A
search reads all of it or raises `SearchTimeout`; it never omits rows. Only ids and term counts are kept while
reading, so that memory use does not grow with the size of the texts.

Matches are scored by BM25, the formula of the index, so that indexed and unindexed matches can be merged. The length
of a text is ignored, because SQL cannot read the average length from the index.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from hermes import errors
from hermes.store.engine import Row
from hermes.store.query_tree import Leaf, Literal, MessageText, Node, Part, list_positive_leaves, matches
from hermes.store.sqlite.connection import SqliteReader, upkeep_command
from hermes.store.sqlite.search import index
from hermes.store.sqlite.search.index_walk import COUNT, OF_ROWS, TEXTS, format_fts5, parse_text
from hermes.store.sqlite.search.row_filters import ALLOWED
from hermes.store.sqlite.search.split_texts import Texts

K1 = 1.2
"""The BM25 parameter k1 of FTS5."""
LEAST_RARITY = 1e-6

OF_CHANGED = """FROM changed_messages c CROSS JOIN messages m ON m.id = c.message_id
    CROSS JOIN sessions s ON s.id = m.session_id"""
ABOVE = " ".join((TEXTS, OF_ROWS, "WHERE m.id > ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED = " ".join((TEXTS, OF_CHANGED, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
COUNT_ROWS = "SELECT count(*) FROM messages WHERE id > ?"
COUNT_CHANGED = "SELECT count(*) FROM changed_messages WHERE message_id <= ?"


class Deadline(NamedTuple):
    """The time until which a search may read the unindexed tail."""

    at: float
    seconds: float
    path: Path

    @classmethod
    def after(cls, seconds: float, path: Path) -> Deadline:
        return cls(time.monotonic() + seconds, seconds, path)

    def check(self, reader: SqliteReader, mark: int) -> None:
        if time.monotonic() > self.at:
            unindexed = int(reader.value(COUNT_ROWS, mark)) + int(reader.value(COUNT_CHANGED, mark))
            raise errors.make_error(
                errors.SearchTimeout,
                f"the search stopped after {self.seconds:g} s: {unindexed:,} messages are not indexed yet and could"
                f" not all be read; run `{upkeep_command(self.path, 'optimize')}` to index them, then search again",
            )


class Match(NamedTuple):
    """A matching row of the unindexed tail."""

    id: int
    counts: tuple[int, ...]
    """The number of occurrences of each leaf of the ranked tree.

    Empty if the row does not match the ranked tree.
    """


def find_matches(
    reader: SqliteReader,
    tree: Node,
    ranked: Node | None,
    allowed: tuple[Any, ...],
    standing: index.Standing,
    texts: Texts,
    deadline: Deadline,
) -> list[Match]:
    """Read all messages of the unindexed tail and return those that match the query `tree`.

    `ranked` is the part of the query that counts for the score, or None if no scores are needed. For each message
    that matches `ranked`, the occurrences of its leaves are counted. `allowed` are the values of the search filter.
    `standing` is the state of the index (see `index.measure_lag`). Raise `SearchTimeout` after `deadline`.
    """
    mark, above, changed = standing
    leaves = () if ranked is None else _scored_leaves(ranked)
    found: list[Match] = []

    def add(message_id: int, text: MessageText) -> None:
        if matches(tree, text):
            is_ranked = ranked is not None and (ranked is tree or matches(ranked, text))
            found.append(Match(message_id, tuple(_count(leaf, text) for leaf in leaves) if is_ranked else ()))

    if above:
        for row in _until(deadline, reader, mark, reader.each(ABOVE, mark, *allowed)):
            add(row[0], texts.get_text(row[0], row[1:]).text)
    if changed:
        for row in _until(deadline, reader, mark, reader.each(CHANGED, mark, *allowed)):
            add(row[0], parse_text(row))
    return found


def score_matches(
    reader: SqliteReader, ranked: Node, found: Sequence[Match], mark: int
) -> list[tuple[float, int]]:
    """Return (score, message id) for each message of the unindexed tail in `found` that matches the query `ranked`,
    the best first.

    Messages with equal scores are sorted by id, newest first. `mark` is the watermark of the index.
    """
    leaves = _scored_leaves(ranked)
    counted = [match for match in found if match.counts or not leaves]
    rows = mark + int(reader.value(COUNT_ROWS, mark))
    rarities = [
        rarity(
            rows,
            _count_indexed(reader, leaf) + sum(match.counts[at] > 0 for match in counted),
        )
        for at, leaf in enumerate(leaves)
    ]
    return sorted(((score(match.counts, rarities), match.id) for match in counted), reverse=True)


def rarity(rows: int, holding: int) -> float:
    """Return the inverse document frequency of a term, as FTS5 computes it."""
    return (
        max(LEAST_RARITY, log((rows - holding + 0.5) / (holding + 0.5))) if holding < rows else LEAST_RARITY
    )


def score(counts: Iterable[int], rarities: Iterable[float]) -> float:
    return sum(
        rare * often * (K1 + 1) / (often + K1) for often, rare in zip(counts, rarities, strict=True) if often
    )


def _until(deadline: Deadline, reader: SqliteReader, mark: int, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        deadline.check(reader, mark)
        yield row


def _scored_leaves(tree: Node) -> tuple[Leaf, ...]:
    """Return the words, phrases and other leaves of a query tree that count for the score of a message.

    Excluded leaves do not count. Punctuation does not count either, because the index cannot count it.
    """
    return tuple(leaf for leaf in dict.fromkeys(list_positive_leaves(tree)) if not isinstance(leaf, Literal))


def _count(leaf: Leaf, text: MessageText) -> int:
    match leaf:
        case Part(piece=piece):
            return sum(stream.count(piece) for stream in text.split)
        case Literal():
            return 0
        case _:
            count = _counter(leaf.terms, leaf.prefix_last)
            return sum(count(stream) for stream in text.split)


@lru_cache(64)
def _counter(terms: tuple[str, ...], prefix_last: bool) -> Callable[[str], int]:
    phrase = re.compile(rf"(?<!\S){re.escape(' '.join(terms))}" + ("" if prefix_last else r"(?!\S)"))
    return lambda stream: sum(1 for _ in phrase.finditer(stream))


def _count_indexed(reader: SqliteReader, leaf: Leaf) -> int:
    expression = format_fts5(leaf)
    return 0 if expression is None else int(reader.value(COUNT, expression))
