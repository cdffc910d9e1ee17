"""Ranked search: conversations, best first, each with its best matching message.

The score of a conversation is the score of its best message plus the score of its best block. The size of the
conversation has no influence, so very long conversations, logs and repetitions do not rank higher. Messages
of people and of the agent weigh more than tool output. Chats weigh more than jobs and subagents.

If the question names a day, the scores of that day's conversations are doubled. Conversations of that day are
included even if they match no word. The best conversations are then ranked again by the text of their best
messages (`reranking`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from math import inf, log
from typing import NamedTuple

from hermes import clock
from hermes.recall.deadline import within_deadline
from hermes.recall.query.named_days import Stretch, get_year
from hermes.recall.query.search_arguments import exclude_hidden, intersect_filters
from hermes.recall.query.substring_fallback import find_partial
from hermes.recall.ranking import question_words
from hermes.recall.ranking.question_words import Question
from hermes.recall.ranking.reranking import rerank
from hermes.recall.ranking.result_rows import Found, format_score, make_result_row
from hermes.store.engine import Access, Reader
from hermes.store.query_tree import EVERYTHING, Node
from hermes.store.sessions.lineage import ROOT
from hermes.store.values import (
    Candidates,
    MessageFilter,
    Order,
    RankedBlock,
    RankedMessage,
    SearchRequest,
    SearchResults,
)

MOST_PHRASINGS = 8
PERSON, AGENT, OTHERS = 1.2, 1.0, 0.5
"""Weights of a message by its author. If the question is about what the agent said, the weights of person and
agent are swapped."""
KIND_WEIGHT = {"chat": 1.0, "child": 0.7, "job": 0.5, "tool": 0.5}
SHORT, LONG, OF_LONG = 400, 3_000, 0.5
"""An answer of at most `SHORT` characters has its full weight. The weight falls to `OF_LONG` at `LONG`
characters, because long answers contain many common words."""
PASTED, WHOLE_LOG, OF_LOG = 2_000, 20_000, 0.3
"""A message of a person with at most `PASTED` characters has its full weight. The weight falls to `OF_LOG` at
`WHOLE_LOG` characters, because a long message is mostly pasted text."""
OF_THE_DAY, OF_THE_MONTH, UNMATCHED = 2.0, 1.2, 1e-3
"""The factors for the scores of conversations of a day or a month that the question names, and the score of a
conversation of such a day that matches no word."""
NEARLY = 0.5
"""When results are sorted by time, only those with at least this fraction of the best score are returned."""
MOST_YEARS = 10
MOST_NEWEST = 300
"""Maximum number of messages examined for a query that consists of fields only."""

FIRST_START = "SELECT min(started_at) FROM sessions"
LAST_ACTIVE = "SELECT coalesce(conversation_active, last_active, started_at) FROM sessions WHERE id = ?"


class Ranked(NamedTuple):
    """The result of the search for one phrasing of a question."""

    conversations: dict[str, Found]
    messages: list[tuple[float, RankedMessage]]
    """The messages with their own scores, which do not include the score of the conversation."""
    candidates: Candidates


class RankedSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def search(
        self,
        query: object,
        request: SearchRequest,
        *,
        exclude_session: str | None = None,
        include_hidden: bool = False,
    ) -> SearchResults:
        """Return one result row for each conversation that matches the query, best first. The offset of the request is
        not used."""
        limit, order = request.limit, request.order
        results = SearchResults()
        results.order = order
        if limit <= 0:
            return results
        with self._engine.read(settled=True, wait=False) as reader:
            root = reader.value(ROOT, exclude_session) if isinstance(exclude_session, str) else None
        if exclude_session is not None:
            message_filter = request.message_filter._replace(
                but_conversations=(root or str(exclude_session),)
            )
            request = request._replace(message_filter=message_filter)
        found: dict[str, Found] = {}
        for text in list_phrasings(query):
            question = question_words.parse_question(text, clock.now())
            ranked = self._search_phrasing(question, request, include_hidden)
            _note_indexing(results, ranked.candidates)
            for root_id, conversation in ranked.conversations.items():
                if root_id not in found or _is_better(conversation, found[root_id]):
                    found[root_id] = conversation
        with self._engine.read() as reader:
            # A conversation deleted in the meantime is replaced by the next one.
            rows = (
                make_result_row(reader, conversation)
                for conversation in _select_best(reader, found.values(), order)
            )
            results.extend(islice((row for row in rows if row is not None), limit))
            if order == "relevance":
                _lower_scores(results)
            returned = [found[row["conversation_id"]] for row in results]
            results.relaxed = bool(results) and all(conversation.near for conversation in returned)
            results.parts = tuple(
                dict.fromkeys(part for conversation in returned for part in conversation.question.parts)
            )
            results.partial = bool(results.parts)
        if order == "relevance" and results and all(row["order"] == "newest" for row in results):
            results.order = "newest"
        return results

    def _search_phrasing(self, question: Question, request: SearchRequest, include_hidden: bool) -> Ranked:
        """Return the result for one phrasing of the question, within the caller's filter and without hidden
        conversations."""
        message_filter = request.message_filter
        if question.fields is not None:
            message_filter = intersect_filters(message_filter, question.fields)
        if not include_hidden:
            message_filter = exclude_hidden(message_filter)
        if question.fields is not None and not question.terms and question.must is None:
            newest = SearchRequest(message_filter, MOST_NEWEST, order="newest", once=True)
            return self._search_exact(question, EVERYTHING, newest)
        ranked = self.rank(question, message_filter)
        if ranked.messages or question.tree is None or (question.must is None and ranked.conversations):
            return ranked
        # A query without words to rank by (punctuation or substrings) is searched for exactly.
        best = SearchRequest(message_filter, request.limit, once=True)
        found = self._search_exact(question, question.tree, best)
        if found.conversations:
            return found
        partial = find_partial(self._engine, question.tree, message_filter)
        if partial is not None:
            as_parts = question._replace(tree=partial.tree, parts=partial.parts)
            found = self._search_exact(as_parts, partial.tree, best)
            if found.conversations:
                return found
        if question.must is None:
            return found
        return self.rank(question._replace(must=None), message_filter, near=True)

    def _search_exact(self, question: Question, tree: Node, request: SearchRequest) -> Ranked:
        """Return the conversations with a message that matches the query exactly, in the order of the search, without
        scores. If the query consists of fields only, every message that the fields allow is a match."""
        answer = self._engine.search(tree, request)
        found: dict[str, Found] = {}
        with self._engine.read() as reader:
            for hit in answer.hits:
                root = reader.value(ROOT, hit.session_id) or hit.session_id
                found[root] = Found(
                    root,
                    0.0,
                    question,
                    hit.id,
                    order=answer.order,
                    message_filter=request.message_filter,
                    at=_to_time(hit.timestamp),
                )
        return Ranked(found, [], Candidates([], [], [], order=answer.order))

    def rank(self, question: Question, message_filter: MessageFilter, *, near: bool = False) -> Ranked:
        """Return the ranked conversations and messages for one phrasing of a question. With `near`, the conversations
        are marked as approximate matches."""
        days, months = self._resolve_stretches(question.days), self._resolve_stretches(question.months)
        candidates = self._engine.candidates(question.terms, message_filter, must=question.must, days=days)
        ranked = _combine(question, candidates, months)
        with self._engine.read() as reader:
            conversations = rerank(reader, question, ranked.conversations, ranked.messages, KIND_WEIGHT)
        for root_id, conversation in conversations.items():
            conversations[root_id] = conversation._replace(message_filter=message_filter, near=near)
        return ranked._replace(conversations=conversations)

    def _resolve_stretches(self, stretches: Sequence[Stretch]) -> list[tuple[float, float]]:
        """Return the start and the end, as times, of each day or month that a question names. A date without a year
        yields one such range for every year that it can mean."""
        if not stretches:
            return []
        last = get_year(clock.now())
        with self._engine.read() as reader:
            first = reader.value(FIRST_START)
        oldest = get_year(first) if isinstance(first, int | float) and first > 0 else last
        years = (max(oldest, last - MOST_YEARS), last)
        return [span for stretch in stretches for span in stretch.within(*years)]


def list_phrasings(query: object) -> list[str]:
    """Return the phrasings in `query`, which is a text or several texts, at most `MOST_PHRASINGS`. Values that are not
    text are ignored."""
    several = [query] if isinstance(query, str) else query if isinstance(query, Iterable) else []
    return [text for text in several if isinstance(text, str) and text.strip()][:MOST_PHRASINGS]


# ---------------------------------------------------------------- scores


def _compute_score(message: RankedMessage, asks_agent: bool) -> float:
    if message.role == "user":
        share = _compute_share(message.length, PASTED, WHOLE_LOG, OF_LOG)
        return message.score * share * (AGENT if asks_agent else PERSON)
    share = _compute_share(message.length, SHORT, LONG, OF_LONG)
    if message.role == "assistant":
        return message.score * share * (PERSON if asks_agent else AGENT)
    return message.score * share * OTHERS


def _compute_share(length: int, whole: int, least_from: int, least: float) -> float:
    """Return the factor, at most 1, by which the weight of a message of this length is multiplied. It is 1 up to the
    length `whole`. For longer messages it falls with the logarithm of the length, to the value `least` at the length
    `least_from`."""
    if length <= whole:
        return 1.0
    return 1.0 - (1.0 - least) * min(1.0, log(length / whole) / log(least_from / whole))


def _combine(question: Question, candidates: Candidates, months: list[tuple[float, float]]) -> Ranked:
    worth = [(_compute_score(message, question.asks_agent), message) for message in candidates.messages]
    best: dict[str, tuple[float, RankedMessage]] = {}
    for value, message in worth:
        if message.root_id not in best or value > best[message.root_id][0]:
            best[message.root_id] = (value, message)
    blocks: dict[str, RankedBlock] = {}
    for block in candidates.blocks:
        if block.root_id not in blocks or block.score > blocks[block.root_id].score:
            blocks[block.root_id] = block
    in_month = {
        message.root_id
        for _, message in worth
        if any(begin <= message.timestamp < end for begin, end in months)
    }
    found: dict[str, Found] = {}
    for root_id in {**best, **blocks}:
        value, best_message = best.get(root_id) or (0.0, None)
        around = blocks.get(root_id)
        kind = best_message.kind if best_message is not None else blocks[root_id].kind
        score = (value + (around.score if around is not None else 0.0)) * KIND_WEIGHT.get(kind, 1.0)
        score *= OF_THE_MONTH if root_id in in_month else 1.0
        message_id, at = (
            (None, 0.0) if best_message is None else (best_message.id, _to_time(best_message.timestamp))
        )
        found[root_id] = Found(root_id, score, question, message_id, around, None, candidates.order, at=at)
    for that_day in candidates.days:
        known = found.get(that_day.root_id)
        if known is None:
            score = UNMATCHED * KIND_WEIGHT.get(that_day.kind, 1.0)
            known = Found(that_day.root_id, score, question, that_day.message_id)
        elif known.day is None:
            known = known._replace(score=known.score * OF_THE_DAY)
        found[that_day.root_id] = known._replace(day=clock.format_day(that_day.timestamp))
    return Ranked(found, worth, candidates)


def _is_better(found: Found, other: Found) -> bool:
    if found.near != other.near:
        return other.near
    if found.order != other.order:  # ranked results come before exact matches without a score
        return found.order == "relevance"
    if found.order == "newest":
        return (found.at, found.message_id or 0) > (other.at, other.message_id or 0)
    return found.score > other.score


def _select_best(reader: Reader, found: Iterable[Found], order: Order) -> list[Found]:
    """Return the conversations to show, in the requested order. Conversations without scores are sorted by
    the time of their message, latest first. Conversations whose displayed scores are equal are sorted by the
    id of their message, highest first."""
    ordered = sorted(
        found,
        key=lambda candidate: (
            not candidate.near,
            candidate.order == "relevance",
            format_score(candidate.score) if candidate.order == "relevance" else candidate.at,
            candidate.message_id or (candidate.block.last_id if candidate.block else 0),
        ),
        reverse=True,
    )
    if order == "relevance" or not ordered:
        return ordered
    least = ordered[0].score * NEARLY
    return sorted(
        (candidate for candidate in ordered if candidate.score >= least),
        key=lambda candidate: reader.value(LAST_ACTIVE, candidate.root_id) or 0.0,
        reverse=order == "newest",
    )


def _to_time(timestamp: object) -> float:
    """Return the timestamp of a message as a number. Another program may have stored a value that is not a number. For
    such a value, return a number that sorts last."""
    return timestamp if isinstance(timestamp, int | float) else -inf


def _lower_scores(results: SearchResults) -> None:
    """Change the scores of the result rows so that no row has a higher score than the row before it. With several
    phrasings of a question, an exact match of one phrasing is listed before an approximate match of another, even if
    its score is lower. Without this correction, scores could rise down the list."""
    for before, row in pairwise(results):
        row["score"] = min(row["score"], before["score"])


def _note_indexing(results: SearchResults, candidates: Candidates) -> None:
    if candidates.waiting:
        results.indexing = (candidates.total - candidates.waiting, candidates.total)
