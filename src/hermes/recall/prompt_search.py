"""`search`: messages, asked for in the language of every surface (see `hermes.recall.query.prompt_language`)."""

from __future__ import annotations

from typing import Any

from hermes import clock
from hermes.recall.deadline import within_deadline
from hermes.recall.message_search import MessageSearch, result_of
from hermes.recall.query.prompt_language import Reading, read
from hermes.recall.query.substring_fallback import search_partial
from hermes.store.arguments import whole
from hermes.store.engine import Access
from hermes.store.matching import EVERYTHING, Node
from hermes.store.values import Hit, SearchResults


class FoundMessages(SearchResults):
    """The results, and how the query was understood."""

    reading: Reading

    def __init__(self) -> None:
        super().__init__()
        self.nearest: list[dict[str, Any]] = []
        """Where nothing matches: messages that hold some of the words, best first."""


class Find:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    @within_deadline
    def messages(self, query: object, limit: int = 20, offset: int = 0) -> FoundMessages:
        """What a query finds, best first; fields alone find everything they allow, newest first.

        Where no message holds the words, they are found as parts of words (`partial`). Where there are none either, the
        list is empty, and what is nearest to the words is offered in `nearest`.
        """
        limit, offset = whole("limit", limit), max(0, whole("offset", offset))
        results = FoundMessages()
        results.reading = reading = read(query if isinstance(query, str) else "", clock.now())
        if reading.is_empty or limit == 0:
            return results
        tree = EVERYTHING if reading.tree is None else reading.tree
        answer = self._engine.search(tree, reading.wanted, limit, offset)
        near: list[Hit] = []
        marks: Node | None = None
        if not answer.hits and (not offset or not self._engine.search(tree, reading.wanted, 1, 0).hits):
            found = search_partial(self._engine, tree, reading.wanted, limit, offset)
            if found is not None:
                (tree, results.parts), answer = found
                results.partial = True
        results.cut, results.order, results.capped = answer.cut, answer.order, answer.capped
        if not answer.hits and not results.partial and not offset and reading.words:
            near, marks = MessageSearch(self._engine).nearest(
                " ".join(reading.words), reading.wanted, limit, 0
            )
        results.extend(result_of(tree, hit) for hit in answer.hits)
        results.nearest = [result_of(marks or tree, hit) for hit in near]
        return results
