"""`search_conversations`: what a person types at a prompt, and the conversations it finds, best first.

Those come first that hold what was typed, in a message or in their title (`exact`). Plain words also bring those that
hold them spread over several messages, or hold most of them. Where nothing holds the words, they are looked for as
parts of words (`partial`). An expression (operators, phrases, parts, fields) means
what it says: only where nothing matches it are the nearest shown instead, and the answer says so (`relaxed`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from hermes import clock
from hermes.recall.deadline import within_deadline
from hermes.recall.message_search import result_of
from hermes.recall.query.prompt_language import Reading, read
from hermes.recall.query.search_arguments import both, filter_of, visible
from hermes.recall.query.substring_fallback import find_partial
from hermes.recall.ranking import question_words as questions
from hermes.recall.ranking.matched_terms import held
from hermes.recall.ranking.question_words import Question
from hermes.recall.ranking.ranking import ConversationSearch
from hermes.recall.ranking.result_rows import Found, row_of, shown, why
from hermes.store.arguments import whole
from hermes.store.engine import Access, Reader
from hermes.store.matching import EVERYTHING, And, Node, Word
from hermes.store.sessions.lineage import ROOT, tip
from hermes.store.values import Hit, MessageFilter, SearchResults
from hermes.terms import fold
from hermes.text import text_of

MOST_ROUNDS = 6
"""How often it is searched again without the conversations that were found: one of them may hold thousands."""
MOST_TITLES = 1_000
MOST_HIDDEN, MOST_HIDDEN_YET = 500, 40
"""Conversations looked at to count what is hidden; and while it is still being typed."""

SHORTEST_RANKED = 3
UNFINISHED = re.compile(r'(?:^|\s)\(*[^\s":*()]*\w$')
"""Ends in a word that may go on."""
OPENED, CLOSED = re.compile(r"(?<!\S)\(+"), re.compile(r"\)+(?!\S)")
LONGEST_TITLE = 100
SPECIAL = re.compile("[!%_]")
"""What LIKE would not take literally."""

ROW = """SELECT source, kind, archived, started_at, coalesce(conversation_active, last_active, started_at) FROM sessions
    WHERE id = ? AND trashed_at IS NULL"""
# A title that is not ASCII may be written otherwise and mean the same: that is not for SQL to tell.
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
    """One row per conversation, and how the query was understood."""

    reading: Reading
    hidden: dict[str, int]
    """How many more match but are left out, by the reason: `child`, `tool`, `archived`, or the source of a job."""
    hidden_at_least: bool
    """Whether there may be more of those: only the first that match were counted."""

    is_question: bool = False
    """Whether it was a question in plain words, which nobody expects to find word for word."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.reading, self.hidden, self.hidden_at_least = reading, {}, False


class Asked(NamedTuple):
    """What was asked, in every form in which it is looked for."""

    reading: Reading
    tree: Node
    question: Question
    wanted: MessageFilter
    is_plain: bool
    """Whether there are words only: then what is near is welcome, too."""
    is_question: bool
    """Whether it is a question in plain words, which nobody expects to find word for word."""


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
    ) -> FoundConversations:
        """`unfinished`: it is still being typed, so that its last word counts as the beginning of one, too."""
        limit = whole("limit", limit)
        closing = _unclosed(query) if unfinished else ""
        reading = read(query + closing, clock.now())
        results = FoundConversations(reading)
        if reading.is_empty or limit <= 0:
            return results
        asked = _asked(query, reading, sources, after, before, include_hidden)
        if unfinished and UNFINISHED.search(query):
            asked = _begun(query, closing, asked)
        results.is_question = asked.is_question
        exact = self._exact(asked, limit, results)
        titled = self._titled(asked) if not reading.fields else {}
        if not exact and not titled and reading.tree is not None:
            partial = find_partial(self._engine, reading.tree, asked.wanted)
            if partial is not None:
                as_parts = asked._replace(tree=partial.tree)
                exact = self._exact(as_parts, limit, results)
                if exact:
                    asked, results.partial, results.parts = as_parts, True, partial.parts
        ranked: dict[str, Found] = {}
        if asked.question.terms and (asked.is_plain or not exact):
            question = asked.question._replace(must=None)
            ranked = ConversationSearch(self._engine).rank(question, asked.wanted).conversations
        matching = sorted({**titled, **exact}, key=lambda root: _worth(root, ranked, titled), reverse=True)
        near = sorted(ranked.keys() - exact.keys() - titled.keys(), key=lambda root: -ranked[root].score)
        with self._engine.read() as reader:
            for root in (*matching, *near):
                row = self._row(reader, root, asked, exact.get(root), ranked.get(root))
                if row is not None:
                    matches = root in exact or root in titled
                    results.append(row | {"exact": matches, "partial": matches and results.partial})
                if len(results) == limit:
                    break
        results.relaxed = not matching and bool(results)
        results.capped = results.capped or len(matching) > limit
        if results.order == "newest" and any(row["score"] for row in results):
            results.order = "relevance"
        if not include_hidden:
            most = MOST_HIDDEN_YET if unfinished else MOST_HIDDEN
            results.hidden, results.hidden_at_least = self._hidden(asked, most)
        return results

    def _exact(self, asked: Asked, limit: int, results: FoundConversations) -> dict[str, Hit]:
        """The best message of each conversation that holds what was typed, the best conversation first."""
        found: dict[str, Hit] = {}
        wanted = asked.wanted
        for _ in range(MOST_ROUNDS):
            answer = self._engine.search(asked.tree, wanted, limit - len(found), 0, once=True)
            results.cut, results.order, results.capped = answer.cut, answer.order, answer.capped
            with self._engine.read() as reader:
                for hit in answer.hits:
                    found.setdefault(reader.value(ROOT, hit.session_id) or hit.session_id, hit)
            if len(found) >= limit or not answer.capped:
                break
            wanted = wanted._replace(but_conversations=(*asked.wanted.but_conversations, *found))
        return found

    def _titled(self, asked: Asked) -> dict[str, None]:
        """Conversations with all of the words in their title, newest activity first."""
        words = [fold(word) for word in asked.reading.words]
        if not words or not asked.is_plain:
            return {}
        longest = max(words, key=len)[:LONGEST_TITLE]
        pattern = "".join(("%", SPECIAL.sub(r"!\g<0>", longest), "%"))
        named: dict[str, None] = {}
        with self._engine.read(settled=True, wait=False) as reader:
            for title, root, *row in reader.each(TITLES, pattern):
                if _allows(asked.wanted, row) and all(word in fold(str(title)) for word in words):
                    named[root] = None
                    if len(named) == MOST_TITLES:
                        break
        return named

    def _hidden(self, asked: Asked, most: int) -> tuple[dict[str, int], bool]:
        """Of the conversations that are hidden, those that hold what was typed; and if one look did not see all."""
        if asked.wanted.kinds is None and not asked.wanted.hide_archived:
            return {}, False
        everything = asked.wanted._replace(kinds=asked.reading.wanted.kinds, hide_archived=False)
        hits = self._engine.search(asked.tree, everything, most, 0, "newest", once=True).hits
        saw_all = len(hits) < most
        hidden: dict[str, int] = {}
        with self._engine.read() as reader:
            for root in dict.fromkeys(reader.value(ROOT, hit.session_id) or hit.session_id for hit in hits):
                reason = _reason(reader.row(ROW, root), asked.wanted)
                if reason is not None:
                    hidden[reason] = hidden.get(reason, 0) + 1
        return hidden, not saw_all

    def _row(
        self, reader: Reader, root: str, asked: Asked, hit: Hit | None, ranked: Found | None
    ) -> dict[str, Any] | None:
        if hit is None or (ranked is not None and ranked.message_id is not None and asked.is_question):
            row = None if ranked is None else shown(reader, ranked)
            return row or _by_title(reader, root)
        found = ranked or Found(root, 0.0, asked.question)
        matched = held(text_of(hit.content), asked.question.terms) if found.score else []
        reason = why(matched, found) if matched else "matches what was typed"
        excerpt = result_of(asked.tree, hit)["snippet"]
        return row_of(reader, found, (hit.id, hit.session_id, hit.role), excerpt, reason)


def _asked(
    query: str,
    reading: Reading,
    sources: Sequence[str] | None,
    after: float | None,
    before: float | None,
    include_hidden: bool,
) -> Asked:
    wanted = both(filter_of(sources, None, None, after, before), reading.wanted)
    if not include_hidden:
        wanted = visible(wanted)
    is_plain = not reading.fields and _only_words(reading.tree)
    question = questions.read(query if is_plain else " ".join(reading.words))
    tree = reading.tree or EVERYTHING
    return Asked(reading, tree, question, wanted, is_plain, is_plain and questions.is_question(query))


def _unclosed(query: str) -> str:
    """What closes the groups that were opened so far."""
    opened = sum(map(len, OPENED.findall(query))) - sum(map(len, CLOSED.findall(query)))
    return ")" * opened


def _begun(query: str, closing: str, asked: Asked) -> Asked:
    """The same while its last word may go on. A letter or two of a word are not worth ranking by."""
    *before, last = query.split()
    if asked.is_plain and fold(last).isascii() and len(last) < SHORTEST_RANKED:
        asked = asked._replace(question=questions.read(" ".join(before)))
    return asked._replace(tree=read(f"{query}*{closing}", clock.now()).tree or asked.tree)


def _only_words(tree: Node | None) -> bool:
    leaves = tree.of if isinstance(tree, And) else (tree,)
    return all(isinstance(leaf, Word) and not leaf.prefix_last for leaf in leaves)


def _worth(root: str, ranked: dict[str, Found], titled: Container[str]) -> float:
    """A title was given to find the conversation by: it weighs as much again."""
    found = ranked.get(root)
    return (found.score if found is not None else 0.0) * (2.0 if root in titled else 1.0) + (root in titled)


def _allows(wanted: MessageFilter, row: Sequence[Any]) -> bool:
    return (
        (wanted.sources is None or row[0] in wanted.sources)
        and _reason(row, wanted) is None
        and (wanted.after is None or row[4] >= wanted.after)
        and (wanted.before is None or row[3] < wanted.before)
    )


def _reason(row: Any, wanted: MessageFilter) -> str | None:
    """Why a conversation is not shown; None if it may be."""
    if row is None:
        return None
    source, kind, archived, *_times = row
    if wanted.kinds is not None and kind not in wanted.kinds:
        return str(source if kind == "job" else kind)
    return "archived" if archived and wanted.hide_archived else None


def _by_title(reader: Reader, root: str) -> dict[str, Any] | None:
    """A conversation of which nothing but the title matches: it is shown with what was said first."""
    row = reader.row(ROW, root)
    if row is None:
        return None
    source, kind, _archived, started_at, last_active = row
    live = tip(reader, root)
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
