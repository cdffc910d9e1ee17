"""`search_messages`: what was typed, over every message, exactly; with a snippet and the neighbours of each hit.

Where no message holds the words, they are looked for as parts of words, and the answer is marked as partial. A sentence
in plain words that is not found so either is answered with the messages nearest to it, marked as such; so is anything
else if the caller wishes. An answer without a mark is an exact set, always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hermes.reasoning import answer_in
from hermes.recall.deadline import within_deadline
from hermes.recall.query.operators import parse
from hermes.recall.query.search_arguments import filter_of, order_of
from hermes.recall.snippets.snippets import may_match, snippet
from hermes.store.arguments import whole
from hermes.store.engine import Access
from hermes.store.matching import Node, Or, word
from hermes.store.values import Hit, MessageFilter, SearchResults
from hermes.text import text_of, text_of_tool_calls

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
        limit, offset = whole("limit", limit), max(0, whole("offset", offset))
        order = order_of(sort)
        wanted = filter_of(source_filter, exclude_sources, role_filter, after, before)
        tree = parse(query) if isinstance(query, str) else None
        if tree is None or limit == 0:
            return results
        answer = self._engine.search(tree, wanted, limit, offset, order)
        if not answer.hits and relax is not False and self._is_unmatched(tree, wanted, offset):
            found = search_partial(self._engine, tree, wanted, limit, offset, order)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial, results.cut = True, answer.cut
            elif isinstance(query, str) and (relax or is_question(query)):
                near, marks = self.nearest(query, wanted, limit, offset)
                results.relaxed = bool(near)
                answer, tree = answer._replace(hits=near), marks or tree
        results.order, results.capped = answer.order, answer.capped
        results.extend(result_of(tree, hit) for hit in answer.hits)
        return results

    def _is_unmatched(self, tree: Node, wanted: MessageFilter, offset: int) -> bool:
        """Whether nothing matches at all, and not only nothing after an offset."""
        return not offset or not self._engine.search(tree, wanted, 1, 0).hits

    def nearest(
        self, query: str, wanted: MessageFilter, limit: int, offset: int
    ) -> tuple[list[Hit], Node | None]:
        """The messages that are nearest to a question, best first, and what to mark in them."""
        from hermes.recall.ranking.question_words import read
        from hermes.recall.ranking.ranking import ConversationSearch

        question = read(query)._replace(must=None)
        ranked = ConversationSearch(self._engine).rank(question, wanted)
        worth = {
            message.id: value + ranked.conversations[message.root_id].score
            for value, message in ranked.messages
        }
        for found in ranked.conversations.values():  # a day that was named brings in what was said then
            if found.message_id is not None:
                worth.setdefault(found.message_id, found.score)
        ordered = sorted(worth, key=lambda message_id: (-worth[message_id], -message_id))
        end = offset + limit if limit > 0 else None
        leaves = tuple(leaf for term in question.terms if (leaf := word(term)) is not None)
        return self._engine.hits_of(ordered[offset:end]), Or(leaves) if leaves else None


def result_of(tree: Node, hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "session_id": hit.session_id,
        "role": hit.role,
        "snippet": snippet(_text(hit, tree), tree),
        "timestamp": hit.timestamp,
        "tool_name": hit.tool_name,
        "source": hit.source,
        "model": hit.model,
        "session_started": hit.session_started,
        "context": _context(hit),
    }


def _text(hit: Hit, tree: Node) -> str:
    """What a match may stand in. Tool calls are JSON inside JSON, and most can be told to hold nothing of it."""
    content = text_of(answer_in(hit.content, hit.role))
    if not may_match(content, tree):  # it may stand in the reasoning before the answer
        content = text_of(hit.content)
    fields = [content]
    if hit.tool_name and (not content or may_match(hit.tool_name, tree)):
        fields.append(hit.tool_name)
    if hit.tool_calls and (not content or may_match(hit.tool_calls, tree, encoded=True)):
        fields.append(text_of_tool_calls(hit.tool_calls))
    return "\n".join(field for field in fields if field)


def _context(hit: Hit) -> list[dict[str, Any]]:
    """The message before, the hit and the one after, as far as there are any."""
    said = (hit.before, (hit.role, hit.content), hit.after)
    return [{"role": one[0], "content": _shown(answer_in(one[1], one[0]))} for one in said if one is not None]


def _shown(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text_parts(content))[:CONTEXT_LENGTH] or SHOWN_STRUCTURE
    if isinstance(content, dict):
        return text_of(content)[:CONTEXT_LENGTH] or SHOWN_STRUCTURE
    return "" if content is None else str(content)[:CONTEXT_LENGTH]


def _text_parts(content: list[Any]) -> Iterator[str]:
    """What is said in structured content; where its pictures lie is not."""
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and text:
            yield text
