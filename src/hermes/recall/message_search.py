"""`search_messages`: exact search over all messages. Each result has a snippet and the neighbouring messages.

If no message contains the words, they are searched for as substrings of words, and the result is marked
`partial`. If that finds nothing either, a question in plain words returns the most similar messages, marked
`relaxed`. The caller can also request such messages for other queries. A result without these marks contains
exact matches only.
"""

from __future__ import annotations

from typing import Any

from hermes import clock
from hermes.message_content import describe_tool_calls, read_text
from hermes.recall.deadline import within_deadline
from hermes.recall.query.operators import parse
from hermes.recall.query.prompt_language import Reading, read
from hermes.recall.query.substring_fallback import search_partial
from hermes.recall.snippets.snippets import make_snippet, may_match
from hermes.store.arguments import check_integer
from hermes.store.engine import Access
from hermes.store.query_tree import EVERYTHING, Node, Or, make_word
from hermes.store.values import Hit, SearchRequest, SearchResults
from hermes.text import extract_tool_call_text

CONTEXT_LENGTH = 200
SHOWN_STRUCTURE = "[multimodal content]"


class MessageSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def search(self, query: object, request: SearchRequest, relax: bool | None = None) -> SearchResults:
        """Search for messages.

        If nothing matches, the words are searched for as substrings, unless `relax` is False. If that finds
        nothing either, the most similar messages are returned. With `relax=True`, this is done for any query;
        with `relax=None`, for questions only.
        """
        from hermes.recall.ranking.question_words import is_question

        results = SearchResults()
        tree = parse(query) if isinstance(query, str) else None
        if tree is None or request.limit == 0:
            return results
        answer = self._engine.search(tree, request)
        if not answer.hits and relax is not False and _is_unmatched(self._engine, tree, request):
            found = search_partial(self._engine, tree, request)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial, results.cut = True, answer.cut
            elif isinstance(query, str) and (relax or is_question(query)):
                near, marks = self.find_nearest(query, request)
                results.relaxed = bool(near)
                answer, tree = answer._replace(hits=near), marks or tree
        results.order, results.capped = answer.order, answer.capped
        results.extend(make_result(tree, hit) for hit in answer.hits)
        return results

    def find_nearest(self, query: str, request: SearchRequest) -> tuple[list[Hit], Node | None]:
        """Return the hits most similar to a question, best first, and a query tree of the words to mark in their
        snippets. The tree is None if the question has no words to mark."""
        from hermes.recall.ranking.question_words import read_question
        from hermes.recall.ranking.ranked_search import RankedSearch

        question = read_question(query)._replace(must=None)
        ranked = RankedSearch(self._engine).rank(question, request.message_filter)
        worth = {
            message.id: value + ranked.conversations[message.root_id].score
            for value, message in ranked.messages
        }
        for found in ranked.conversations.values():  # a named day adds conversations of that day
            if found.message_id is not None:
                worth.setdefault(found.message_id, found.score)
        ordered = sorted(worth, key=lambda message_id: (-worth[message_id], -message_id))
        end = request.offset + request.limit if request.limit > 0 else None
        leaves = tuple(leaf for term in question.terms if (leaf := make_word(term)) is not None)
        return self._engine.hits_of(ordered[request.offset : end]), Or(leaves) if leaves else None


def _is_unmatched(engine: Access, tree: Node, request: SearchRequest) -> bool:
    """Return whether no message at all matches the query. Called when a page of results is empty, which can also mean
    that all matches are before the page."""
    return not request.offset or not engine.search(tree, SearchRequest(request.message_filter, 1)).hits


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
    """Return the text of a hit from which its snippet is made: the content, the tool name and the tool calls of the
    message.

    Tool calls are stored as JSON inside JSON and are slow to decode. They are left out if they cannot contain a match.
    """
    content = read_text(hit.content, hit.role)
    if not may_match(content, tree):  # the match may be in the reasoning before the answer
        content = read_text(hit.content)
    fields = [content]
    if hit.tool_name and (not content or may_match(hit.tool_name, tree)):
        fields.append(hit.tool_name)
    if hit.tool_calls and (not content or may_match(hit.tool_calls, tree, encoded=True)):
        calls = describe_tool_calls(hit.tool_calls)
        if not may_match(calls, tree):  # the match may be in a technical field, such as the id of a call
            every_field = extract_tool_call_text(hit.tool_calls)
            calls = every_field if may_match(every_field, tree) else calls
        fields.append(calls)
    return "\n".join(field for field in fields if field)


def _make_context(hit: Hit) -> list[dict[str, Any]]:
    """Return the previous message, the hit and the next message, as far as they exist."""
    messages = (hit.before, (hit.role, hit.content), hit.after)
    return [
        {"role": message[0], "content": _shorten_content(message[1], message[0])}
        for message in messages
        if message is not None
    ]


def _shorten_content(content: Any, role: str) -> str:
    """Return the beginning of a message's text. The addresses of attachments are left out."""
    text = read_text(content, role, detail="words")[:CONTEXT_LENGTH]
    return text or (SHOWN_STRUCTURE if isinstance(content, list | dict) else "")


class FoundMessages(SearchResults):
    """Found messages, and how the query was understood."""

    reading: Reading

    def __init__(self) -> None:
        super().__init__()
        self.nearest: list[dict[str, Any]] = []
        """If nothing matches: the messages that contain some of the words, best first."""


class PromptSearch:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def messages(self, query: object, limit: int = 20, offset: int = 0) -> FoundMessages:
        """Return the messages that match a query, best first. For a query of fields only, return all messages
        that the fields allow, newest first.

        If no message contains the words, they are searched for as substrings of words (`partial`). If that
        finds nothing either, the list is empty, and `nearest` holds the messages most similar to the query.
        """
        limit, offset = check_integer("limit", limit), max(0, check_integer("offset", offset))
        results = FoundMessages()
        results.reading = reading = read(query if isinstance(query, str) else "", clock.now())
        if reading.is_empty or limit == 0:
            return results
        tree = EVERYTHING if reading.tree is None else reading.tree
        request = SearchRequest(reading.message_filter, limit, offset)
        answer = self._engine.search(tree, request)
        near: list[Hit] = []
        marks: Node | None = None
        if not answer.hits and _is_unmatched(self._engine, tree, request):
            found = search_partial(self._engine, tree, request)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial = True
        results.cut, results.order, results.capped = answer.cut, answer.order, answer.capped
        if not answer.hits and not results.partial and not offset and reading.words:
            near, marks = MessageSearch(self._engine).find_nearest(" ".join(reading.words), request)
        results.extend(make_result(tree, hit) for hit in answer.hits)
        results.nearest = [make_result(marks or tree, hit) for hit in near]
        return results
