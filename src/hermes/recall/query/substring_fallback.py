"""Substring search: the fallback if no message matches the words of a query.

A word that no message contains is searched for as a substring of words: `serById` is found in
`getUserByIdAndName`. A word that some message contains must still match as a word. Phrases, prefixes and
exclusions are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes.store.engine import Access
from hermes.store.query_tree import And, Node, Or, Word, make_part
from hermes.store.values import MessageFilter, SearchAnswer, SearchRequest
from hermes.terms import fold

SHORTEST = 3
MOST_WORDS = 16
"""If a query has more words than this, its words are not searched for as substrings, because a search for
each word would take too long."""


class PartialQuery(NamedTuple):
    tree: Node
    parts: tuple[str, ...]
    """The words that are searched for as substrings, as typed."""


def search_partial(
    engine: Access, tree: Node, request: SearchRequest
) -> tuple[PartialQuery, SearchAnswer] | None:
    """Search for the words of a query as substrings, after the query itself matched nothing. Return (changed
    query, its results), or None if this finds nothing either."""
    partial = find_partial(engine, tree, request.message_filter)
    if partial is None:
        return None
    answer = engine.search(partial.tree, request)
    if answer.hits or (
        request.offset and engine.search(partial.tree, request._replace(limit=1, offset=0)).hits
    ):
        return partial, answer
    return None


def find_partial(engine: Access, tree: Node, message_filter: MessageFilter) -> PartialQuery | None:
    """Return the query with the words that no message contains replaced by substrings. Return None if there
    are no such words.

    Call this only if nothing matches the query itself, because it searches for each word separately.
    """
    words = _collect_words(tree)
    if len(words) > MOST_WORDS:
        return None
    only_one = SearchRequest(message_filter, 1, order="newest")
    tried = {
        word: as_part
        for word in dict.fromkeys(words)
        if len(fold(word.text)) >= SHORTEST
        and (as_part := make_part(word.text)) not in (None, word)
        and (word is tree or not engine.search(word, only_one).hits)
    }
    if not tried:
        return None
    return PartialQuery(_replace_words(tree, tried), tuple(word.text for word in tried))


def _collect_words(tree: Node) -> list[Word]:
    match tree:
        case Word(prefix_last=False):
            return [tree]
        case And(of=several) | Or(of=several):
            return [word for node in several for word in _collect_words(node)]
        case _:
            return []


def _replace_words(tree: Node, replaced: Mapping[Word, Node | None]) -> Node:
    match tree:
        case Word():
            return replaced.get(tree) or tree
        case And(of=several):
            return And(tuple(_replace_words(node, replaced) for node in several))
        case Or(of=several):
            return Or(tuple(_replace_words(node, replaced) for node in several))
        case _:
            return tree
