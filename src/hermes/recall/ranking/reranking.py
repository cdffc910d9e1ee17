"""Second ranking of the best conversations, by the text of their best messages.

The first ranking counts words. The second reads the beginning of a few messages of each conversation. It
raises the score if these messages contain the names in the question, or if words that are neighbours in the
question are close together in one message.

It is used only for questions in scripts with spaces. In other scripts, terms are pairs of characters, which
are neighbours already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from hermes.message_content import read_text
from hermes.recall.ranking.matched_terms import get_stem
from hermes.recall.ranking.question_words import Question
from hermes.recall.ranking.result_rows import Found
from hermes.store.content import decode
from hermes.store.engine import Reader
from hermes.store.values import RankedMessage
from hermes.terms import index_text, is_spaceless

MOST_CONVERSATIONS, MOST_MESSAGES = 30, 4
"""The number of conversations that are ranked again, and the maximum number of messages read from each."""
ROLES = ("user", "assistant")
"""The authors whose messages are read. Tool output often repeats the words of a question without being about
its subject."""
LENGTH = 600
"""The number of characters that are read from the beginning of a message."""
OF_NAMES, OF_NEIGHBOURS = 0.1, 0.2
"""The maximum amounts added to a score for names and for neighbouring words, as shares of the best score."""
WITHOUT_NAMES = 0.5
"""If the question contains no names, each conversation gets this share of the amount `OF_NAMES`."""
CLOSE = 4
"""Two words are close together if they are at most this many words apart."""
HEAD = 3
"""A word of a message is stemmed and compared only if its first `HEAD` letters are those of a word in the
question."""

# A very long message is not worth reading. `length` stops at the NUL with which structured content begins, so
# structured content is always read.
CONTENT = "SELECT role, content_kind, content FROM messages WHERE id = ? AND length(content) < 100000"


class _Wanted(NamedTuple):
    """The stems that the second ranking looks for in messages: the names in the question, and its pairs of neighbouring
    words."""

    names: frozenset[str]
    neighbours: tuple[tuple[str, str], ...]
    heads: frozenset[str]
    """The first `HEAD` letters of each of these words."""


def rerank(
    reader: Reader,
    question: Question,
    conversations: dict[str, Found],
    messages: Sequence[tuple[float, RankedMessage]],
    weights: Mapping[str, float],
) -> dict[str, Found]:
    """Return `conversations`, keyed by their first session, with higher scores for the best ones. `messages` are the
    ranked messages of the conversations. `weights` gives a weight for each kind of conversation. Only the best
    conversations are examined; the others keep their scores, so they stay below."""
    wanted = _make_wanted(question)
    if wanted is None:
        return conversations
    best = sorted(conversations.values(), key=lambda found: -found.score)[:MOST_CONVERSATIONS]
    read: dict[str, list[RankedMessage]] = {found.root_id: [] for found in best if found.order == "relevance"}
    for _, message in sorted(messages, key=lambda ranked: -ranked[0]):
        chosen = read.get(message.root_id)
        if chosen is not None and len(chosen) < MOST_MESSAGES and message.role in ROLES:
            chosen.append(message)
    reranked = dict(conversations)
    for root_id, chosen in read.items():
        found = conversations[root_id]
        share = _compute_share(wanted, [_locate_words(reader, message.id, wanted) for message in chosen])
        weight = weights.get(chosen[0].kind, 1.0) if chosen else 1.0
        reranked[root_id] = found._replace(score=found.score + share * weight * best[0].score)
    return reranked


def _make_wanted(question: Question) -> _Wanted | None:
    """Return the stems of the names and of the pairs of neighbouring words in the question. None if it has neither."""
    if any(map(is_spaceless, question.terms)):
        return None
    names = frozenset(map(_stem, question.names))
    neighbours = tuple(pairwise(map(_stem, question.terms)))
    if not names and not neighbours:
        return None
    words = {*names, *(stem for pair in neighbours for stem in pair)}
    return _Wanted(names, neighbours, frozenset(word[:HEAD] for word in words))


def _locate_words(reader: Reader, message_id: int, wanted: _Wanted) -> dict[str, list[int]]:
    """Return where the words of the question occur in the beginning of a message: for each stem, the numbers of the
    words."""
    places: dict[str, list[int]] = {}
    row = reader.row(CONTENT, message_id)
    if row is not None:
        role, kind, content = row
        text = read_text(decode(content, kind), role)[:LENGTH]
        for place, term in enumerate(index_text(text)[0].split()):
            if term[:HEAD] in wanted.heads:
                places.setdefault(_stem(term), []).append(place)
    return places


def _compute_share(wanted: _Wanted, messages: Sequence[dict[str, list[int]]]) -> float:
    known = {word for places in messages for word in places}
    names = len(wanted.names & known) / len(wanted.names) if wanted.names else WITHOUT_NAMES
    close = max((sum(_find_close(wanted, places)) for places in messages), default=0)
    return OF_NAMES * names + OF_NEIGHBOURS * (close / len(wanted.neighbours) if wanted.neighbours else 0.0)


def _find_close(wanted: _Wanted, places: dict[str, list[int]]) -> Iterator[bool]:
    """For each pair of neighbouring words in the question, yield whether they are close together in the
    message."""
    for first, second in wanted.neighbours:
        yield any(
            abs(place - other) <= CLOSE for place in places.get(first, ()) for other in places.get(second, ())
        )


def _stem(term: str) -> str:
    return get_stem(term) or term
