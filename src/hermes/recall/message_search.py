"""`search_messages`: what was typed, over every message, exactly; with a snippet and the neighbours of each hit.

Where no message holds the words, they are looked for as parts of words, and the answer is marked as partial. A sentence
in plain words that is not found so either is answered with the messages nearest to it, marked as such; so is anything
else if the caller wishes. An answer without a mark is an exact set, always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes import clock
from hermes.message_content import read_text
from hermes.recall.deadline import within_deadline
from hermes.recall.query.operators import parse
from hermes.recall.query.prompt_language import Reading, read
from hermes.recall.query.search_arguments import make_filter, parse_order
from hermes.recall.query.substring_fallback import search_partial
from hermes.recall.snippets.snippets import make_snippet, may_match
from hermes.store.arguments import check_integer
from hermes.store.engine import Access
from hermes.store.query_tree import EVERYTHING, Node, Or, make_word
from hermes.store.values import Hit, MessageFilter, SearchResults
from hermes.text import extract_tool_call_text

CONTEXT_LENGTH = 200
SHOWN_STRUCTURE = "[multimodal content]"


class MessageSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def search(
        self,
        query: object,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        *,
        sort: str = "relevance",
        after: float | None = None,
        before: float | None = None,
        relax: bool | None = None,
    ) -> SearchResults:
        """`relax` says whether nothing may be answered with what is nearest; None: for questions.

        Before that, words that no message holds are looked for as parts of words, unless `relax` is False.
        """
        from hermes.recall.query.substring_fallback import search_partial
        from hermes.recall.ranking.question_words import is_question

        results = SearchResults()
        limit, offset = check_integer("limit", limit), max(0, check_integer("offset", offset))
        order = parse_order(sort)
        message_filter = make_filter(source_filter, exclude_sources, role_filter, after, before)
        tree = parse(query) if isinstance(query, str) else None
        if tree is None or limit == 0:
            return results
        answer = self._engine.search(tree, message_filter, limit, offset, order)
        if not answer.hits and relax is not False and self._is_unmatched(tree, message_filter, offset):
            found = search_partial(self._engine, tree, message_filter, limit, offset, order)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial, results.cut = True, answer.cut
            elif isinstance(query, str) and (relax or is_question(query)):
                near, marks = self.find_nearest(query, message_filter, limit, offset)
                results.relaxed = bool(near)
                answer, tree = answer._replace(hits=near), marks or tree
        results.order, results.capped = answer.order, answer.capped
        results.extend(make_result(tree, hit) for hit in answer.hits)
        return results

    def _is_unmatched(self, tree: Node, message_filter: MessageFilter, offset: int) -> bool:
        """Whether nothing matches at all, and not only nothing after an offset."""
        return not offset or not self._engine.search(tree, message_filter, 1, 0).hits

    def find_nearest(
        self, query: str, message_filter: MessageFilter, limit: int, offset: int
    ) -> tuple[list[Hit], Node | None]:
        """The messages that are nearest to a question, best first, and what to mark in them."""
        from hermes.recall.ranking.question_words import read_question
        from hermes.recall.ranking.ranked_search import RankedSearch

        question = read_question(query)._replace(must=None)
        ranked = RankedSearch(self._engine).rank(question, message_filter)
        worth = {
            message.id: value + ranked.conversations[message.root_id].score
            for value, message in ranked.messages
        }
        for found in ranked.conversations.values():  # a day that was named brings in what was said then
            if found.message_id is not None:
                worth.setdefault(found.message_id, found.score)
        ordered = sorted(worth, key=lambda message_id: (-worth[message_id], -message_id))
        end = offset + limit if limit > 0 else None
        leaves = tuple(leaf for term in question.terms if (leaf := make_word(term)) is not None)
        return self._engine.hits_of(ordered[offset:end]), Or(leaves) if leaves else None


def make_result(tree: Node, hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "session_id": hit.session_id,
        "role": hit.role,
        "snippet": make_snippet(_extract_match_text(hit, tree), tree),
        "timestamp": hit.timestamp,
        "tool_name": hit.tool_name,
        "source": hit.source,
        "model": hit.model,
        "session_started": hit.session_started,
        "context": _make_context(hit),
    }


def _extract_match_text(hit: Hit, tree: Node) -> str:
    """What a match may stand in. Tool calls are JSON inside JSON, and most can be told to hold nothing of it."""
    content = read_text(hit.content, hit.role)
    if not may_match(content, tree):  # it may stand in the reasoning before the answer
        content = read_text(hit.content)
    fields = [content]
    if hit.tool_name and (not content or may_match(hit.tool_name, tree)):
        fields.append(hit.tool_name)
    if hit.tool_calls and (not content or may_match(hit.tool_calls, tree, encoded=True)):
        fields.append(extract_tool_call_text(hit.tool_calls))
    return "\n".join(field for field in fields if field)


def _make_context(hit: Hit) -> list[dict[str, Any]]:
    """The message before, the hit and the one after, as far as there are any."""
    messages = (hit.before, (hit.role, hit.content), hit.after)
    return [
        {"role": message[0], "content": _shorten_content(message[1], message[0])}
        for message in messages
        if message is not None
    ]


def _shorten_content(content: Any, role: str) -> str:
    """What is said in a message; where its pictures lie is not."""
    text = read_text(content, role, detail="words")[:CONTEXT_LENGTH]
    return text or (SHOWN_STRUCTURE if isinstance(content, list | dict) else "")


class FoundMessages(SearchResults):
    """The results, and how the query was understood."""

    reading: Reading

    def __init__(self) -> None:
        super().__init__()
        self.nearest: list[dict[str, Any]] = []
        """Where nothing matches: messages that hold some of the words, best first."""


class PromptSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def messages(self, query: object, limit: int = 20, offset: int = 0) -> FoundMessages:
        """What a query finds, best first; fields alone find everything they allow, newest first.

        Where no message holds the words, they are found as parts of words (`partial`). Where there are none either, the
        list is empty, and what is nearest to the words is offered in `nearest`.
        """
        limit, offset = check_integer("limit", limit), max(0, check_integer("offset", offset))
        results = FoundMessages()
        results.reading = reading = read(query if isinstance(query, str) else "", clock.now())
        if reading.is_empty or limit == 0:
            return results
        tree = EVERYTHING if reading.tree is None else reading.tree
        answer = self._engine.search(tree, reading.message_filter, limit, offset)
        near: list[Hit] = []
        marks: Node | None = None
        if not answer.hits and (
            not offset or not self._engine.search(tree, reading.message_filter, 1, 0).hits
        ):
            found = search_partial(self._engine, tree, reading.message_filter, limit, offset)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial = True
        results.cut, results.order, results.capped = answer.cut, answer.order, answer.capped
        if not answer.hits and not results.partial and not offset and reading.words:
            near, marks = MessageSearch(self._engine).find_nearest(
                " ".join(reading.words), reading.message_filter, limit, 0
            )
        results.extend(make_result(tree, hit) for hit in answer.hits)
        results.nearest = [make_result(marks or tree, hit) for hit in near]
        return results
