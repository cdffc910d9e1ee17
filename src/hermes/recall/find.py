"""`search`: messages, asked for in the language of every surface (see `hermes.recall.language`)."""

from __future__ import annotations

from hermes import clock
from hermes.recall.language import Reading, read
from hermes.recall.messages import _result
from hermes.store.arguments import whole
from hermes.store.engine import Access
from hermes.store.matching import EVERYTHING
from hermes.store.values import SearchResults


class FoundMessages(SearchResults):
    """The results, and how the query was understood."""

    reading: Reading


class Find:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def messages(self, query: object, limit: int = 20, offset: int = 0) -> FoundMessages:
        """What a query finds, best first; fields alone find everything they allow, newest first."""
        limit, offset = whole("limit", limit), max(0, whole("offset", offset))
        results = FoundMessages()
        results.reading = reading = read(query if isinstance(query, str) else "", clock.now())
        if reading.is_empty or limit == 0:
            return results
        tree = EVERYTHING if reading.tree is None else reading.tree
        answer = self._engine.search(tree, reading.wanted, limit, offset)
        results.cut = answer.cut
        if answer.waiting:
            results.indexing = (answer.total - answer.waiting, answer.total)
        with self._engine.read() as reader:
            results.extend(_result(reader, tree, hit) for hit in answer.hits)
        return results
