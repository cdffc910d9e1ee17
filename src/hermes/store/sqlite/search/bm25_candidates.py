"""The best messages and blocks for some words, scored by BM25. Conversations are ranked from these candidates.

Ranking costs one or two microseconds per match. So in a large store, not every match is ranked: only messages with a
rare word, or with two of the other words together (see `_choose_terms`). The score of a ranked message counts all
words. Unindexed messages are scored here with the same formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from hermes.store.engine import Row
from hermes.store.query_tree import MessageText, Node, list_parts, matches, needs_check
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.search import blocks, index
from hermes.store.sqlite.search.exact_search import make_room
from hermes.store.sqlite.search.index_walk import COUNT, COUNT_LATELY, LATELY, VERY_COMMON, format_fts5
from hermes.store.sqlite.search.row_filters import ALLOWED, OF_MESSAGE, OF_SESSION, is_of_messages, values_of
from hermes.store.sqlite.search.split_texts import fields_of
from hermes.store.sqlite.search.unindexed_tail import Deadline, rarity, score
from hermes.store.values import Candidates, DayOf, MessageFilter, Order, RankedBlock, RankedMessage
from hermes.terms import fold, index_texts, is_spaceless

MOST_FOUND, MOST_OF_ONE = 150, 10
"""The limits for returned messages, which also apply to returned blocks: in total, and per conversation.

Without the limit per conversation, a conversation with many matches would hide the others.
"""
MOST_OF_PART = 32
LARGE_TAIL = 500
"""If more messages than this are unindexed, the result is marked as approximate.

The reason is that unindexed messages have no blocks.
"""


# Structured content begins with NUL, at which `length` stops.
MESSAGE = """SELECT m.id, m.session_id, coalesce(s.root_id, s.id), s.kind, m.role,
    coalesce(nullif(length(m.content), 0), octet_length(m.content), 0), m.timestamp"""
OF_INDEX = """FROM messages_fts_words f CROSS JOIN messages m ON m.id = f.rowid
    CROSS JOIN sessions s ON s.id = m.session_id WHERE f.messages_fts_words MATCH ?1"""
NOT_CHANGED = "AND m.id NOT IN (SELECT message_id FROM changed_messages)"
MESSAGES = " ".join(
    (MESSAGE, ", -f.rank", OF_INDEX, ALLOWED, NOT_CHANGED, "ORDER BY f.rank LIMIT 1500"),
)
NEWEST = " ".join((MESSAGE, ", 0.0", OF_INDEX, ALLOWED, NOT_CHANGED, "ORDER BY f.rowid DESC LIMIT 300"))
# Rows that are not indexed, or whose indexed state is outdated.
UNKNOWN = """SELECT m.id, coalesce(s.root_id, s.id), m.content, m.content_kind, m.tool_name, m.tool_calls
    FROM messages m CROSS JOIN sessions s ON s.id = m.session_id"""
TAIL = " ".join((UNKNOWN, "WHERE m.id > ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED = " ".join(
    (UNKNOWN, "WHERE m.id IN (SELECT message_id FROM changed_messages) AND m.id <= ?1", ALLOWED)
)
FACTS = " ".join((MESSAGE, "FROM messages m CROSS JOIN sessions s ON s.id = m.session_id WHERE m.id = ?"))
# A block counts if none of its messages has changed since it was indexed, and the filter allows at least one of them.
# The messages are looked up only if the filter depends on them.
BLOCK = """SELECT r.session_id, coalesce(s.root_id, s.id), s.kind, r.first_id, r.last_id, -b.rank
    FROM messages_fts_blocks b CROSS JOIN messages_fts_ranges r ON r.block_id = b.rowid
    CROSS JOIN sessions s ON s.id = r.session_id WHERE b.messages_fts_blocks MATCH ?1"""
HOLDING_ONE = " ".join(
    (
        """AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = r.session_id
        AND m.id BETWEEN r.first_id AND r.last_id""",
        OF_MESSAGE,
        ")",
    )
)
AS_INDEXED = """AND r.block_id NOT IN (SELECT e.block_id FROM changed_messages c
    JOIN messages_fts_members e ON e.message_id = c.message_id) ORDER BY b.rank LIMIT 1500"""
BLOCKS = " ".join((BLOCK, OF_SESSION, AS_INDEXED))
CHOSEN_BLOCKS = " ".join((BLOCK, HOLDING_ONE, OF_SESSION, AS_INDEXED))
# ?1 is the beginning of the period, ?6 its end. SQLite takes the timestamp from the row with the lowest id.
SAID_THEN = " ".join(
    (
        """SELECT s.id, coalesce(s.root_id, s.id), s.kind, min(m.id), m.timestamp FROM sessions s
        CROSS JOIN messages m ON m.session_id = s.id
        WHERE s.last_active >= ?1 AND s.started_at < ?6 AND m.timestamp >= ?1 AND m.timestamp < ?6""",
        ALLOWED,
        "GROUP BY s.id ORDER BY s.last_active DESC LIMIT 300",
    )
)
TEXT = "SELECT content, content_kind, tool_name, tool_calls FROM messages WHERE id = ?"
HAS_BLOCKS = "SELECT 1 FROM sqlite_master WHERE name = 'messages_fts_ranges'"
MOST_OF_RAREST, MOST_OF_RARE = 6_000, 2_000
"""The number of messages up to which words count as rare: for the rarest word alone, and for all rare words
together if there are several."""
MOST_TOGETHER, PAIRED = 2_500, 4
"""`PAIRED`: how many of the words that are not rare are combined into pairs. `MOST_TOGETHER`: how many
messages all pairs together may match, by an estimate. The first pair alone may match twice as many."""
MEETING = 3
"""The estimated factor by which two words of one question occur together more often than by chance."""
OFTEN, AT_LEAST = 0.08, 3
"""A word in more than the share OFTEN of all messages is ignored, if at least AT_LEAST words remain."""
COUNTED = 6
"""How many words, in addition to the rare ones, count for the score of a message.

For a block, only the paired words count.
"""
TOGETHER_IN_BLOCK = 3
"""How many of the paired words must occur in one block.

Two are not enough, because a block is much longer than a message.
"""


class Unindexed(NamedTuple):
    """A message of the unindexed tail, with its conversation and the number of occurrences of each term of
    the search.
    """

    id: int
    root_id: str
    counts: tuple[int, ...]


Ranked = TypeVar("Ranked", RankedMessage, RankedBlock, Unindexed)


def candidates(
    reader: SqliteReader,
    terms: Sequence[str],
    message_filter: MessageFilter,
    must: Node | None,
    days: Sequence[tuple[float, float]],
    deadline: Deadline,
) -> Candidates:
    mark, above, changed = index.measure_lag(reader, 1 << 60)
    dated = [found for begin, end in days for found in _find_days(reader, message_filter, begin, end)]
    # A read-only store of an older version may have no blocks yet.
    has_blocks = reader.value(HAS_BLOCKS) is not None
    unblocked = mark - int(reader.value(blocks.WATERMARK) or 0) if has_blocks else 0
    waiting = (above if above > LARGE_TAIL else 0) + max(0, unblocked)
    candidates_found = Candidates([], [], dated, waiting=waiting, total=mark + above)
    if must is not None:  # a substring is ranked by the terms that contain it
        terms = [*terms, *[term for leaf in list_parts(must) for term in (leaf.terms or ())[:MOST_OF_PART]]]
    if not terms:
        return candidates_found
    make_room(reader, mark)
    allowed = values_of(message_filter)
    strictly = None if must is None else format_fts5(must)
    query = _choose_terms(reader, terms, mark)
    messages: list[RankedMessage] = []
    if query.messages is not None:
        expression = query.messages if strictly is None else f"{query.messages} AND {strictly}"
        likely = map(RankedMessage._make, reader.each(MESSAGES, expression, *allowed))
        messages = _limit_per_conversation(likely if must is None else _confirm_matches(reader, must, likely))
    found: list[RankedBlock] = []
    if has_blocks and query.blocks is not None:
        sql = CHOSEN_BLOCKS if is_of_messages(message_filter) else BLOCKS
        found = _limit_per_conversation(map(RankedBlock._make, reader.each(sql, query.blocks, *allowed)))
    # Blocks do not support phrases, exclusions and roles, so they only add to conversations found by messages.
    if must is not None or message_filter.roles:
        within = {message.root_id for message in messages}
        found = [block for block in found if block.root_id in within]
    # If every word is very common and no two occur together, there is nothing to rank.
    order: Order = "relevance" if messages or found or query.is_all else "newest"
    if order == "newest":
        messages = _find_newest(reader, terms, allowed, strictly)
        messages = messages if must is None else list(_confirm_matches(reader, must, messages))
    if above or changed:
        messages += _rank_unindexed(reader, query.terms, allowed, must, mark, order, deadline)
    if order == "newest":
        messages.sort(key=lambda message: -message.id)
    return candidates_found._replace(messages=messages, blocks=found, order=order)


def _find_newest(
    reader: SqliteReader, terms: Sequence[str], allowed: tuple[object, ...], strictly: str | None
) -> list[RankedMessage]:
    """Return the newest indexed messages that match an FTS5 expression. `allowed` are the values of the search
    filter.

    The expression is `strictly`. If `strictly` is None, return the newest messages that contain all of `terms`. If
    there are none, return the newest messages that contain any of them.
    """
    loosely = (_join_all(terms), _join_any(terms))
    for expression in loosely if strictly is None else (strictly,):
        if rows := reader.rows(NEWEST, expression, *allowed):
            return [RankedMessage(*row) for row in rows]
    return []


def _confirm_matches(
    reader: SqliteReader, must: Node, found: Iterable[RankedMessage]
) -> Iterable[RankedMessage]:
    """Return the messages in `found` that match the query tree `must`.

    The texts of the messages are read only if the index alone cannot decide whether they match.
    """
    if not needs_check(must):
        return found
    return (
        message
        for message in found
        if matches(must, MessageText.of(*fields_of(*_read_columns(reader, message.id))))
    )


def _read_columns(reader: SqliteReader, message_id: int) -> Row:
    return reader.row(TEXT, message_id) or (None, None, None, None)


def _limit_per_conversation(found: Iterable[Ranked]) -> list[Ranked]:
    """Return the first `MOST_FOUND` of the ranked messages or blocks in `found`, but at most `MOST_OF_ONE` of each
    conversation.
    """
    kept: list[Ranked] = []
    count_by_conversation: dict[str, int] = {}
    for hit in found:
        count_by_conversation[hit.root_id] = count_by_conversation.get(hit.root_id, 0) + 1
        if count_by_conversation[hit.root_id] <= MOST_OF_ONE:
            kept.append(hit)
            if len(kept) == MOST_FOUND:
                break
    return kept


def _rank_unindexed(
    reader: SqliteReader,
    terms: Sequence[str],
    allowed: tuple[object, ...],
    must: Node | None,
    mark: int,
    order: Order,
    deadline: Deadline,
) -> list[RankedMessage]:
    """Return the unindexed messages with any of `terms`: the best ones or the newest ones, depending on `order`.
    Their scores are close to those that the index would give.

    `must` is a query tree that the messages must match too, or None. `mark` is the watermark of the index. All
    unindexed messages are read. Raise `SearchTimeout` if that takes longer than `deadline` allows.
    """
    rows, found = 0, list[Unindexed]()
    for sql in (TAIL, CHANGED):
        for message_id, root_id, *columns in reader.each(sql, mark, *allowed):
            deadline.check(reader, mark)
            rows += 1
            fields = fields_of(*columns)
            counts = _counts(terms, fields)
            if any(counts) and (must is None or matches(must, MessageText.of(*fields))):
                found.append(Unindexed(message_id, root_id, counts))
    rarities = [
        rarity(
            mark + rows,
            int(reader.value(COUNT, _format_term(term))) + sum(match.counts[at] > 0 for match in found),
        )
        for at, term in enumerate(terms)
    ]
    scored = {match.id: score(match.counts, rarities) for match in found}
    found.sort(key=lambda match: (scored[match.id] if order == "relevance" else 0.0, match.id), reverse=True)
    chosen = ((reader.row(FACTS, match.id), scored[match.id]) for match in _limit_per_conversation(found))
    return [RankedMessage._make((*row, worth)) for row, worth in chosen if row is not None]


def _counts(terms: Sequence[str], fields: Sequence[str]) -> tuple[int, ...]:
    """Return, for each of `terms`, how often it occurs in a message, whose searchable texts are `fields`. Words and
    the parts of identifiers are counted.
    """
    # Splitting is expensive. It is not needed if no term is in the folded text, which is certain for ASCII terms.
    folded = [fold(field) for field in fields]
    if not any(not term.isascii() or any(term in text for text in folded) for term in terms):
        return (0,) * len(terms)
    counts = Counter(" ".join(index_texts(*fields)).split())
    return tuple(_count_term(term, counts) for term in terms)


def _count_term(term: str, counts: Counter[str]) -> int:
    if len(term) == 1 and is_spaceless(term):
        return sum(times for word, times in counts.items() if word.startswith(term))
    return counts[term]


def _find_days(reader: SqliteReader, message_filter: MessageFilter, begin: float, end: float) -> list[DayOf]:
    after = begin if message_filter.after is None else max(begin, message_filter.after)
    before = end if message_filter.before is None else min(end, message_filter.before)
    allowed = values_of(message_filter._replace(after=after, before=before))
    return [DayOf(*row) for row in reader.rows(SAID_THEN, after, *allowed)]


# ---------------------------------------------------------------- the FTS5 expressions


class ChosenTerms(NamedTuple):
    terms: list[str]
    """The words that count for the score."""
    messages: str | None
    """An FTS5 expression for messages.

    None if every word is very common: a ranking would then not distinguish the messages.
    """
    blocks: str | None
    is_all: bool
    """Whether the expression matches every message with any of the words."""


def _choose_terms(reader: SqliteReader, terms: Sequence[str], mark: int) -> ChosenTerms:
    """Choose the FTS5 expressions for these words, for an index whose watermark is `mark`.

    In a small store, the expression matches every message with any of the words. In a large store, it matches
    each message with a rare word, because rare words carry the most information. It also matches messages
    with two of the other words, because a relevant message usually contains several words of the question.

    The score counts all words. For this, the expression repeats the other words in a second clause, which
    makes FTS5 count them without matching more messages. As a side effect, messages with several words get a
    slightly higher score.

    This was measured with recorded questions, with the limits scaled to a store of a million messages. It
    finds nearly as many conversations as ranking thirty times as many messages
    (docs/internals/performance-experiments.md).
    """
    everything = _join_any(terms)
    if mark < VERY_COMMON:
        return ChosenTerms(list(terms), everything, everything, True)
    counts = {term: _count(reader, term, mark) for term in terms}
    rarest = sorted(terms, key=lambda term: counts[term])
    kept = [term for term in rarest if counts[term] <= mark * OFTEN]
    kept = kept if len(kept) >= AT_LEAST else rarest[:AT_LEAST]
    rare = _choose_rare(kept, counts)
    others = kept[len(rare) :]
    if not others:
        return ChosenTerms(kept, _join_any(kept), _join_any(kept), len(kept) == len(terms))
    alone = [_format_term(term) for term in rare]
    paired = [
        f"({_format_term(term)} AND {_join_any(more)})" for term, more in _pair_terms(others, counts, mark)
    ]
    in_block = [_join_all(several) for several in combinations(others[:PAIRED], TOGETHER_IN_BLOCK)]
    messages = _join_led(alone, paired, others[:COUNTED])
    if messages is None:
        return ChosenTerms(kept, None, None, False)
    return ChosenTerms(kept, messages, _join_led(alone, in_block or paired, others[:PAIRED]), False)


def _choose_rare(kept: Sequence[str], counts: dict[str, int]) -> list[str]:
    rare: list[str] = []
    matched = 0
    for term in kept:
        matched += counts[term]
        if matched > (MOST_OF_RARE if rare else MOST_OF_RAREST):
            break
        rare.append(term)
    return rare


def _pair_terms(others: Sequence[str], counts: dict[str, int], mark: int) -> list[tuple[str, list[str]]]:
    """Choose pairs of the common words `others`. A message that contains both words of a pair is then ranked.

    `counts` is the number of messages with each word, and `mark` is the watermark of the index. Return each first
    word with a list of its second words. Pairs are chosen from the rarest on, until they are expected to match too
    many messages. For the first pair alone, this limit is twice as high.
    """
    pairs: dict[str, list[str]] = {}
    left = MOST_TOGETHER
    by_rarity = sorted(combinations(others[:PAIRED], 2), key=lambda pair: counts[pair[0]] * counts[pair[1]])
    for first, second in by_rarity:
        together = MEETING * counts[first] * counts[second] // mark
        if together > (left if pairs else 2 * MOST_TOGETHER):
            break
        pairs.setdefault(first, []).append(second)
        left -= together
    return list(pairs.items())


def _join_led(alone: list[str], together: list[str], others: Sequence[str]) -> str | None:
    """Return an FTS5 expression that matches each message that any expression in `alone` or in `together` matches.

    The words `others` do not change what is matched. They are in the expression only so that FTS5 counts them for the
    score. Return None if both lists are empty.
    """
    led = alone + together
    return (
        "(" + " OR ".join([*alone, f"(({' OR '.join(led)}) AND {_join_any(others)})"]) + ")" if led else None
    )


def _count(reader: SqliteReader, term: str, mark: int) -> int:
    """Return the approximate number of indexed messages that contain `term`. `mark` is the watermark of the index."""
    expression = _format_term(term)
    lately = int(reader.value(COUNT_LATELY, expression, mark - LATELY, LATELY)) * mark // LATELY
    if lately <= VERY_COMMON // 2 or lately >= 2 * VERY_COMMON:
        return lately
    return int(reader.value(COUNT, expression))


def _join_any(terms: Sequence[str]) -> str:
    return "(" + " OR ".join(map(_format_term, terms)) + ")"


def _join_all(terms: Sequence[str]) -> str:
    return "(" + " AND ".join(map(_format_term, terms)) + ")"


def _format_term(term: str) -> str:
    """Return the FTS5 string that searches for `term`.

    A single character of a script that is written without spaces, such as Chinese, becomes a prefix query.
    """
    return f'"{term}"*' if len(term) == 1 and is_spaceless(term) else f'"{term}"'
