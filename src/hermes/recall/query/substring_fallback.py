"""Substring search: what is looked for where no message matches the words of a query.

Each word that no message holds is tried as a part of a word: `serById` is found in `getUserByIdAndName`. Words that
some message holds stay words; phrases, prefixes and exclusions stay as they were typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes.store.engine import Access
from hermes.store.query_tree import And, Node, Or, Word, make_part
from hermes.store.values import MessageFilter, Order, SearchAnswer
from hermes.terms import fold

SHORTEST = 3
MOST_WORDS = 16
"""A query of more words is a text, whose words are not worth trying one by one."""


class PartialQuery(NamedTuple):
    tree: Node
    parts: tuple[str, ...]
    """The words that are looked for as parts, as they were typed."""


def search_partial(
    engine: Access,
    tree: Node,
    message_filter: MessageFilter,
    limit: int,
    offset: int,
    order: Order = "relevance",
) -> tuple[PartialQuery, SearchAnswer] | None:
    """What the words find as parts, for a query that nothing matches; None if that is nothing, either."""
    partial = find_partial(engine, tree, message_filter)
    if partial is None:
        return None
    answer = engine.search(partial.tree, message_filter, limit, offset, order)
    if answer.hits or (offset and engine.search(partial.tree, message_filter, 1, 0, order).hits):
        return partial, answer
    return None


def find_partial(engine: Access, tree: Node, message_filter: MessageFilter) -> PartialQuery | None:
    """The query with those words as parts that no message holds; None if there are none of them.

    Call it only if nothing matches the query itself: of several words it searches for each.
    """
    words = _collect_words(tree)
    if len(words) > MOST_WORDS:
        return None
    tried = {
        word: as_part
        for word in dict.fromkeys(words)
        if len(fold(word.text)) >= SHORTEST
        and (as_part := make_part(word.text)) not in (None, word)
        and (word is tree or not engine.search(word, message_filter, 1, 0, "newest").hits)
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
