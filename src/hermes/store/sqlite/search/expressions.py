"""What the indexes are asked for some words: everything that holds any of them or, where that is too much, the likely.

Of many words the rare ones say most, and what holds one of them is always ranked. Of the others two must be together,
for what answers a question mostly holds several of its words. Whatever is found so is ranked by all words: the others
stand once more beside those that it was found by, where FTS5 counts them and is not led by them. What holds several
thereby counts a little more.

On recorded questions, with these figures in proportion to a million messages, nearly as many conversations are found as
when ranking thirty times as much (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.search.index_walk import COUNT, COUNT_LATELY, LATELY, VERY_COMMON
from hermes.terms import is_spaceless

MOST_OF_RAREST, MOST_OF_RARE = 6_000, 2_000
"""So many messages may hold the rarest word; and so many all of the rare ones, if they are more than one."""
MOST_TOGETHER, PAIRED = 2_500, 4
"""So many may hold two of the others, by a guess; so many words are paired."""
MEETING = 3
"""Words of one subject meet so much more often than by chance."""
OFTEN, AT_LEAST = 0.08, 3
"""A word in more of all messages than that says nothing, if so many others remain."""
COUNTED = 6
"""So many words besides the rare ones count in a message, and in a block those that are paired."""
TOGETHER_IN_BLOCK = 3
"""Of the paired words so many must be in one block, which is much longer than a message."""


class ChosenTerms(NamedTuple):
    terms: list[str]
    """The words that count."""
    messages: str | None
    """An FTS5 expression; None if every word is very common, so that there is nothing to rank by."""
    blocks: str | None
    is_all: bool
    """Whether whatever holds any of the words is asked for."""


def choose_terms(reader: SqliteReader, terms: Sequence[str], mark: int) -> ChosenTerms:
    """What to ask for these words of an index that has reached `mark`."""
    everything = join_any(terms)
    if mark < VERY_COMMON:
        return ChosenTerms(list(terms), everything, everything, True)
    counts = {term: _count(reader, term, mark) for term in terms}
    rarest = sorted(terms, key=lambda term: counts[term])
    kept = [term for term in rarest if counts[term] <= mark * OFTEN]
    kept = kept if len(kept) >= AT_LEAST else rarest[:AT_LEAST]
    rare = _choose_rare(kept, counts)
    others = kept[len(rare) :]
    if not others:
        return ChosenTerms(kept, join_any(kept), join_any(kept), len(kept) == len(terms))
    alone = [format_term(term) for term in rare]
    paired = [
        f"({format_term(term)} AND {join_any(more)})" for term, more in _pair_terms(others, counts, mark)
    ]
    in_block = [join_all(several) for several in combinations(others[:PAIRED], TOGETHER_IN_BLOCK)]
    messages = _join_led(alone, paired, others[:COUNTED])
    if messages is None:
        return ChosenTerms(kept, None, None, False)
    return ChosenTerms(kept, messages, _join_led(alone, in_block or paired, others[:PAIRED]), False)


def _choose_rare(kept: Sequence[str], counts: dict[str, int]) -> list[str]:
    rare: list[str] = []
    matched = 0
    for term in kept:
        matched += counts[term]
        if matched > (MOST_OF_RARE if rare else MOST_OF_RAREST):
            break
        rare.append(term)
    return rare


def _pair_terms(others: Sequence[str], counts: dict[str, int], mark: int) -> list[tuple[str, list[str]]]:
    """Words, each with those that it is paired with, the rarest pairs first. The first of all is worth more."""
    pairs: dict[str, list[str]] = {}
    left = MOST_TOGETHER
    by_rarity = sorted(combinations(others[:PAIRED], 2), key=lambda pair: counts[pair[0]] * counts[pair[1]])
    for first, second in by_rarity:
        together = MEETING * counts[first] * counts[second] // mark
        if together > (left if pairs else 2 * MOST_TOGETHER):
            break
        pairs.setdefault(first, []).append(second)
        left -= together
    return list(pairs.items())


def _join_led(alone: list[str], together: list[str], others: Sequence[str]) -> str | None:
    """What holds one of the rare words, or some of the others together; ranked by all of them."""
    led = alone + together
    return (
        "(" + " OR ".join([*alone, f"(({' OR '.join(led)}) AND {join_any(others)})"]) + ")" if led else None
    )


def _count(reader: SqliteReader, term: str, mark: int) -> int:
    """About how many messages hold a word."""
    expression = format_term(term)
    lately = int(reader.value(COUNT_LATELY, expression, mark - LATELY, LATELY)) * mark // LATELY
    if lately <= VERY_COMMON // 2 or lately >= 2 * VERY_COMMON:
        return lately
    return int(reader.value(COUNT, expression))


def join_any(terms: Sequence[str]) -> str:
    return "(" + " OR ".join(map(format_term, terms)) + ")"


def join_all(terms: Sequence[str]) -> str:
    return "(" + " AND ".join(map(format_term, terms)) + ")"


def format_term(term: str) -> str:
    """A lone character of a script without spaces is found wherever it begins a pair."""
    return f'"{term}"*' if len(term) == 1 and is_spaceless(term) else f'"{term}"'
