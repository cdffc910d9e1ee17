"""`search_conversations`: search with a query typed at a prompt. Returns conversations, best first.

Conversations that match the whole query in one message or in the title come first (`exact`). For a query of
plain words, conversations that contain the words spread over several messages, or only most of the words,
follow. If nothing matches, the words are searched for as substrings of words (`partial`).

A query with operators, phrases, substrings (`*part*`) or fields must match as typed. If nothing matches such
a query, the most similar conversations are returned, and the result is marked `relaxed`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from hermes import clock
from hermes.message_content import read_text
from hermes.recall.deadline import within_deadline
from hermes.recall.message_search import make_result
from hermes.recall.query.prompt_language import Reading, read
from hermes.recall.query.search_arguments import exclude_hidden, intersect_filters, make_filter
from hermes.recall.query.substring_fallback import find_partial
from hermes.recall.ranking import question_words
from hermes.recall.ranking.matched_terms import find_matched_terms
from hermes.recall.ranking.question_words import Question
from hermes.recall.ranking.ranked_search import RankedSearch
from hermes.recall.ranking.result_rows import Found, explain_match, format_score, make_result_row, make_row
from hermes.store.arguments import check_integer
from hermes.store.engine import Access, Reader
from hermes.store.query_tree import EVERYTHING, And, Node, Word
from hermes.store.sessions.lineage import ROOT, find_tip
from hermes.store.values import Hit, MessageFilter, SearchRequest, SearchResults
from hermes.terms import fold

MOST_ROUNDS = 6
"""Maximum number of searches for one query. One conversation can contain thousands of matches, so each
further search excludes the conversations that were already found."""
MOST_TITLES = 1_000
MOST_HIDDEN, MOST_HIDDEN_YET = 500, 40
"""Maximum number of matches examined to count hidden conversations: for a complete query, and for a query
that is still being typed."""

SHORTEST_RANKED = 3
UNFINISHED = re.compile(r'(?:^|\s)\(*[^\s":*()]*\w$')
"""Matches a query that ends in an incomplete word."""
OPENED, CLOSED = re.compile(r"(?<!\S)\(+"), re.compile(r"\)+(?!\S)")
LONGEST_TITLE = 100
SPECIAL = re.compile("[!%_]")
"""Characters with a special meaning in a LIKE pattern."""

ROW = """SELECT source, kind, archived, started_at, coalesce(conversation_active, last_active, started_at) FROM sessions
    WHERE id = ? AND trashed_at IS NULL"""
# A non-ASCII title can match in a different Unicode form. SQL cannot compare those forms, so all non-ASCII
# titles are selected and compared in Python.
TITLES = """SELECT s.title, r.id, r.source, r.kind, r.archived, r.started_at,
    coalesce(r.conversation_active, r.last_active, r.started_at)
    FROM sessions s JOIN sessions r ON r.id = coalesce(s.root_id, s.id)
    WHERE s.title IS NOT NULL AND s.trashed_at IS NULL AND r.trashed_at IS NULL
    AND (lower(s.title) LIKE ? ESCAPE '!' OR octet_length(s.title) <> length(s.title))
    ORDER BY s.last_active DESC NULLS LAST, s.id DESC"""
TITLE = "SELECT title, coalesce(preview, '') FROM sessions WHERE id = ?"
SAID = """SELECT m.id, m.role, m.session_id FROM messages m JOIN sessions s ON s.id = m.session_id
    WHERE s.root_id = ? AND m.active = 1 AND m.role = 'user' ORDER BY m.id LIMIT 1"""


class FoundConversations(SearchResults):
    """Found conversations, one row each, and how the query was understood."""

    reading: Reading
    hidden: dict[str, int]
    """Number of hidden conversations that match, by reason: `child`, `tool`, `archived`, or the source of a
    job."""
    hidden_at_least: bool
    """Whether there may be more hidden conversations than counted, because only the first matches were
    examined."""

    is_question: bool = False
    """Whether the query is a question in plain words. For a question, an exact match is not expected."""
    contradiction: str | None = None
    """The reason why no message can match, if the fields and filters exclude each other."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.reading, self.hidden, self.hidden_at_least = reading, {}, False


class InteractiveQuery(NamedTuple):
    """A parsed query, with its query tree, its question words and its filter, which different steps of the search
    use."""

    reading: Reading
    tree: Node
    question: Question
    message_filter: MessageFilter
    is_plain: bool
    """Whether the query consists of plain words only. If so, approximate matches are returned as well."""
    is_question: bool
    """Whether the query is a question in plain words. For a question, an exact match is not expected."""


class InteractiveSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def search(
        self,
        query: str,
        limit: int = 20,
        *,
        sources: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        include_hidden: bool = False,
        unfinished: bool = False,
        trash: bool = False,
    ) -> FoundConversations:
        """Search for conversations. With `unfinished`, the query is still being typed, so its last word also
        matches as a prefix. With `trash`, the field `is:trashed` searches the trash."""
        limit = check_integer("limit", limit)
        closing = _close_groups(query) if unfinished else ""
        reading = read(query + closing, clock.now(), trash=trash)
        results = FoundConversations(reading)
        if reading.is_empty or limit <= 0:
            return results
        parsed = _make_query(query, reading, sources, after, before, include_hidden)
        results.contradiction = _find_contradiction(parsed.message_filter)
        if unfinished and UNFINISHED.search(query):
            parsed = _extend_last_word(query, closing, parsed)
        results.is_question = parsed.is_question
        exact = self._search_exact(parsed, limit, results)
        titled = self._search_titles(parsed) if not reading.fields else {}
        if not exact and not titled and reading.tree is not None:
            partial = find_partial(self._engine, reading.tree, parsed.message_filter)
            if partial is not None:
                as_parts = parsed._replace(tree=partial.tree)
                exact = self._search_exact(as_parts, limit, results)
                if exact:
                    parsed, results.partial, results.parts = as_parts, True, partial.parts
        ranked: dict[str, Found] = {}
        if parsed.question.terms and (parsed.is_plain or not exact):
            question = parsed.question._replace(must=None)
            ranked = RankedSearch(self._engine).rank(question, parsed.message_filter).conversations
        matching = sorted(
            {**titled, **exact}, key=lambda root: _compute_score(root, ranked, titled), reverse=True
        )
        near = sorted(ranked.keys() - exact.keys() - titled.keys(), key=lambda root: -ranked[root].score)
        scores = _compute_scores(matching, near, ranked, titled)
        with self._engine.read() as reader:
            for root, score in scores.items():
                row = self._make_row(reader, root, parsed, exact.get(root), ranked.get(root))
                if row is not None:
                    matches = root in exact or root in titled
                    row |= {"score": format_score(score), "exact": matches}
                    results.append(row | {"partial": matches and results.partial})
                if len(results) == limit:
                    break
        results.relaxed = not matching and bool(results)
        results.capped = results.capped or len(matching) > limit
        if results.order == "newest" and any(row["score"] for row in results):
            results.order = "relevance"
        if not include_hidden:
            most = MOST_HIDDEN_YET if unfinished else MOST_HIDDEN
            results.hidden, results.hidden_at_least = self._search_hidden(parsed, most)
        return results

    def _search_exact(
        self, parsed: InteractiveQuery, limit: int, results: FoundConversations
    ) -> dict[str, Hit]:
        """Return the best exact match of each conversation, best first. The keys are the first sessions of
        the conversations."""
        found: dict[str, Hit] = {}
        message_filter = parsed.message_filter
        for _ in range(MOST_ROUNDS):
            request = SearchRequest(message_filter, limit - len(found), once=True)
            answer = self._engine.search(parsed.tree, request)
            results.cut, results.order, results.capped = answer.cut, answer.order, answer.capped
            with self._engine.read() as reader:
                for hit in answer.hits:
                    found.setdefault(reader.value(ROOT, hit.session_id) or hit.session_id, hit)
            if len(found) >= limit or not answer.capped:
                break
            message_filter = message_filter._replace(
                but_conversations=(*parsed.message_filter.but_conversations, *found)
            )
        return found

    def _search_titles(self, parsed: InteractiveQuery) -> dict[str, None]:
        """Return the conversations whose titles contain all the words, most recent activity first."""
        words = [fold(word) for word in parsed.reading.words]
        if not words or not parsed.is_plain:
            return {}
        longest = max(words, key=len)[:LONGEST_TITLE]
        pattern = "".join(("%", SPECIAL.sub(r"!\g<0>", longest), "%"))
        named: dict[str, None] = {}
        with self._engine.read(settled=True, wait=False) as reader:
            for title, root, *row in reader.each(TITLES, pattern):
                if _is_allowed(parsed.message_filter, row) and all(
                    word in fold(str(title)) for word in words
                ):
                    named[root] = None
                    if len(named) == MOST_TITLES:
                        break
        return named

    def _search_hidden(self, parsed: InteractiveQuery, most: int) -> tuple[dict[str, int], bool]:
        """Return how many hidden conversations match the query, by the reason why they are hidden. Also return whether
        some matches were not examined."""
        named = parsed.reading.message_filter
        everything = parsed.message_filter._replace(kinds=named.kinds, archived=named.archived)
        if everything == parsed.message_filter:
            return {}, False
        request = SearchRequest(everything, most, order="newest", once=True)
        hits = self._engine.search(parsed.tree, request).hits
        saw_all = len(hits) < most
        hidden: dict[str, int] = {}
        with self._engine.read() as reader:
            for root in dict.fromkeys(reader.value(ROOT, hit.session_id) or hit.session_id for hit in hits):
                reason = _explain_hidden(reader.row(ROW, root), parsed.message_filter)
                if reason is not None:
                    hidden[reason] = hidden.get(reason, 0) + 1
        return hidden, not saw_all

    def _make_row(
        self, reader: Reader, root: str, parsed: InteractiveQuery, hit: Hit | None, ranked: Found | None
    ) -> dict[str, Any] | None:
        if hit is None or (ranked is not None and ranked.message_id is not None and parsed.is_question):
            row = None if ranked is None else make_result_row(reader, ranked)
            return row or _make_title_row(reader, root)
        found = ranked or Found(root, 0.0, parsed.question)
        matched = find_matched_terms(read_text(hit.content), parsed.question.terms) if found.score else []
        reason = explain_match(matched, found) if matched else "matches the query"
        excerpt = make_result(parsed.tree, hit)["snippet"]
        return make_row(reader, found, (hit.id, hit.session_id, hit.role), excerpt, reason)


def _make_query(
    query: str,
    reading: Reading,
    sources: Sequence[str] | None,
    after: float | None,
    before: float | None,
    include_hidden: bool,
) -> InteractiveQuery:
    message_filter = intersect_filters(
        make_filter(sources, None, None, after, before), reading.message_filter
    )
    if not include_hidden:
        message_filter = exclude_hidden(message_filter)
    is_plain = not reading.fields and _has_only_words(reading.tree)
    question = question_words.read_question(query if is_plain else " ".join(reading.words))
    tree = reading.tree or EVERYTHING
    return InteractiveQuery(
        reading, tree, question, message_filter, is_plain, is_plain and question_words.is_question(query)
    )


def _close_groups(query: str) -> str:
    """Return the closing parentheses that must be appended to a query so that each of its groups is closed."""
    opened = sum(map(len, OPENED.findall(query))) - sum(map(len, CLOSED.findall(query)))
    return ")" * opened


def _extend_last_word(query: str, closing: str, parsed: InteractiveQuery) -> InteractiveQuery:
    """Return `parsed` with the last word of the query as a prefix, because the person is still typing it. A last word
    of one or two letters is left out of the ranking. `closing` are the parentheses to append to the query."""
    *before, last = query.split()
    if parsed.is_plain and fold(last).isascii() and len(last) < SHORTEST_RANKED:
        parsed = parsed._replace(question=question_words.read_question(" ".join(before)))
    return parsed._replace(tree=read(f"{query}*{closing}", clock.now()).tree or parsed.tree)


def _has_only_words(tree: Node | None) -> bool:
    leaves = tree.of if isinstance(tree, And) else (tree,)
    return all(isinstance(leaf, Word) and not leaf.prefix_last for leaf in leaves)


def _compute_scores(
    matching: Sequence[str], near: Sequence[str], ranked: dict[str, Found], titled: Container[str]
) -> dict[str, float]:
    """Return the score of each conversation, keyed by its first session. Exact matches (`matching`) are listed before
    approximate ones (`near`). If the first approximate match has a higher score than the last exact match, the
    difference is added to the scores of all exact matches, so that the scores fall down the list."""
    scores = {root: _compute_score(root, ranked, titled) for root in (*matching, *near)}
    lift = max(0.0, scores[near[0]] - scores[matching[-1]]) if matching and near else 0.0
    return {**scores, **{root: scores[root] + lift for root in matching}}


def _compute_score(root: str, ranked: dict[str, Found], titled: Container[str]) -> float:
    """Return the score by which the conversation `root` is ranked. If its title matches the query, the score from its
    messages is doubled and 1 is added."""
    found = ranked.get(root)
    return (found.score if found is not None else 0.0) * (2.0 if root in titled else 1.0) + (root in titled)


def _is_allowed(message_filter: MessageFilter, row: Sequence[Any]) -> bool:
    return (
        (message_filter.sources is None or row[0] in message_filter.sources)
        and _explain_hidden(row, message_filter) is None
        and (message_filter.after is None or row[4] >= message_filter.after)
        and (message_filter.before is None or row[3] < message_filter.before)
    )


def _find_contradiction(message_filter: MessageFilter) -> str | None:
    """Return the reason why the filter allows no message at all, or None if it may allow some."""
    after, before = message_filter.after, message_filter.before
    if message_filter.sources == ():
        return "a role or a flag is both required and excluded"
    if after is not None and before is not None and after >= before:
        return f"no time is after {clock.format_iso(after)} and before {clock.format_iso(before)}"
    if message_filter.sources is not None and set(message_filter.sources) <= set(
        message_filter.exclude_sources
    ):
        return "no source is left"
    if message_filter.kinds == ():
        return "no kind is left"
    if tags := set(message_filter.tags).intersection(message_filter.exclude_tags):
        return f"the tag '{min(tags)}' is both required and excluded"
    return None


def _explain_hidden(row: Any, message_filter: MessageFilter) -> str | None:
    """Return the reason why the filter hides a conversation, such as `archived` or its kind. None if it is not hidden.
    `row` has the source, the kind and the archive flag of the conversation."""
    if row is None:
        return None
    source, kind, archived, *_times = row
    if message_filter.kinds is not None and kind not in message_filter.kinds:
        return str(source if kind == "job" else kind)
    return "archived" if archived and message_filter.archived is False else None


def _make_title_row(reader: Reader, root: str) -> dict[str, Any] | None:
    """Return the result row of a conversation whose title matches the query but none of whose messages does. The row
    shows the first message of the person."""
    row = reader.row(ROW, root)
    if row is None:
        return None
    source, kind, _archived, started_at, last_active = row
    live = find_tip(reader, root)
    title, preview = reader.row(TITLE, live) or (None, "")
    first, role, session_id = reader.row(SAID, root) or (None, None, live)
    return {
        "session_id": session_id,
        "conversation_id": root,
        "tip_id": live,
        "score": 0.0,
        "message_id": first,
        "role": role,
        "snippet": preview,
        "why": "in the title",
        "title": title,
        "source": source,
        "kind": kind,
        "started_at": started_at,
        "last_active": last_active,
        "order": "relevance",
    }
