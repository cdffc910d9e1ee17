"""The query language that the reference documents. Every string is a valid query; no function here raises.

This module parses only the grammar below. `hermes.recall.query.prompt_language` adds the extensions for
queries typed at a prompt.

    query   a OR b        either
            a AND b, a b  both
            a NOT b       the first without the second; NOT applies to the next word or phrase only
    word    anything between spaces and quotes; with punctuation it is also searched for literally
            budget?       the punctuation of a sentence around a word is not part of it
            deploy*       trailing stars: the last token is a prefix
    phrase  "a b"         adjacent words

NOT binds tighter than AND, AND tighter than OR. Operators are upper case. Parts without meaning are dropped:
an operator at either end or without an operand, a star alone, an empty phrase. A quote without a partner only
separates words. Everything else is text: `rm -rf`, `foo(bar)`, `std::vector<int>`, `50%`.
"""

from __future__ import annotations

import re

from hermes.store.arguments import require_text
from hermes.store.query_tree import And, Leaf, Node, Not, Or, make_phrase, make_word
from hermes.text import replace_surrogates

__all__ = ["PIECES", "parse", "parse_leaf", "trim_word"]

PIECES = re.compile(r'"([^"]*)"|([^\s"]+)')

QUOTATION_MARKS = "'`“”„‟‘’‚«»‹›"
ENDINGS = frozenset(f"?!,？！؟…。，、；：{QUOTATION_MARKS}")
"""Punctuation that ends a sentence, a clause or a quotation, even if it is repeated: `really?!`."""
SINGLE_ENDINGS = frozenset(".;:")
"""Punctuation that ends a sentence or a clause only if it is not repeated. In `std::` and `main..` it belongs
to the word. Three or more periods are an ellipsis and do not belong to the word."""
BEGINNINGS = frozenset(f"¿¡{QUOTATION_MARKS}")
BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）", "「": "」", "『": "』", "【": "】", "《": "》"}
OPENING_OF = {closing: opening for opening, closing in BRACKETS.items()}


def parse(query: str) -> Node | None:
    """Return the tree of a query, or None if the query contains nothing to search for."""
    either: list[Node] = []
    both: list[Node] = []
    negated = False
    for quoted, bare in PIECES.findall(replace_surrogates(query)):
        if bare == "NOT":
            negated = bool(both or either)
            continue
        if bare == "OR":
            if both:
                either.append(_join_nodes(both))
                both = []
        elif bare != "AND":
            node = parse_leaf(bare) if bare else make_phrase(quoted)
            if node is None:
                continue
            both.append(Not(node) if negated else node)
        negated = False
    if both:
        either.append(_join_nodes(both))
    if not either:
        return None
    return either[0] if len(either) == 1 else Or(tuple(either))


def _join_nodes(both: list[Node]) -> Node:
    return both[0] if len(both) == 1 else And(tuple(both))


def parse_leaf(typed: str) -> Leaf | None:
    """Parse one typed word. Trailing stars make it a prefix. Return None if nothing is left to search for."""
    word = trim_word(typed)
    stem = word.rstrip("*")
    return make_word(trim_word(stem), prefix=stem != word) if stem else None


def trim_word(word: str) -> str:
    """Return a word without the punctuation of the sentence around it: `budget` for `(budget?` or
    `«budget»,`.

    Brackets that are paired inside the word belong to it (`foo()`, `[x]`), except parentheses around the
    whole word. An opening bracket at the end of the word belongs to it too (`foo(`). A word without letters
    and digits is returned unchanged.
    """
    if not word or (word[0].isalnum() and word[-1].isalnum()):  # the usual case, quickly
        return word
    start, end = 0, len(word)
    counts = {bracket: word.count(bracket) for pair in BRACKETS.items() for bracket in pair}
    partners = _pair_parentheses(word)
    while start < end:
        first, last = word[start], word[end - 1]
        if ending := _measure_ending(word, end):
            end -= ending
        elif last in OPENING_OF and counts[last] > counts[OPENING_OF[last]]:
            counts[last] -= 1
            end -= 1
        elif first in BEGINNINGS:
            start += 1
        elif first in BRACKETS and counts[first] > counts[BRACKETS[first]]:
            counts[first] -= 1
            start += 1
        elif last == ")" and partners.get(end - 1) == start:
            counts["("], counts[")"] = counts["("] - 1, counts[")"] - 1
            start, end = start + 1, end - 1
        else:
            break
    trimmed = word[start:end]
    return trimmed if any(map(str.isalnum, trimmed)) else word


def _pair_parentheses(word: str) -> dict[int, int]:
    """Return the position of each closing parenthesis in a word, mapped to the position of the opening parenthesis that
    belongs to it. Parentheses without a partner are left out."""
    partners, opened = dict[int, int](), list[int]()
    for parenthesis in re.finditer(r"[()]", word):
        if parenthesis[0] == "(":
            opened.append(parenthesis.start())
        elif opened:
            partners[parenthesis.start()] = opened.pop()
    return partners


def _measure_ending(word: str, end: int) -> int:
    """Return how many characters of a word, directly before the position `end`, are punctuation of the sentence and not
    part of the word. One call counts only one kind of punctuation, so the caller repeats it until the result is 0."""
    last = word[end - 1]
    if last in ENDINGS:
        return 1
    if last not in SINGLE_ENDINGS:
        return 0
    length = 1
    while length < end and word[end - 1 - length] == last:
        length += 1
    return length if length == 1 or (last == "." and length >= 3) else 0


# The query sanitiser of the reference, for callers of `SessionDB._sanitize_fts5_query`. Our search never
# uses it. It makes a string that FTS5 mostly accepts, and it can change the meaning of the query. Its steps
# and their order are part of the contract, even where they are odd.

_PHRASE = re.compile(r'"[^"]*"')
_HELD = "\0"  # placeholder for a phrase while the rest is changed; a query cannot contain NUL
_SPECIAL = re.compile(r'[+{}()"^]')
_STARS = re.compile(r"\*+")
_LONE_STAR = re.compile(r"(?:^|(?<=\s))\*")
_LEADING = re.compile(r"^(?:AND|OR|NOT)\b\s*", re.IGNORECASE)
_TRAILING = re.compile(r"(?:^|\s+)(?:AND|OR|NOT)$", re.IGNORECASE)
_COMPOUND = re.compile(r"[^\W_]+(?:[._-]+[^\W_]+)+")


def sanitize_fts5_query(query: str) -> str:
    """Return the query in the form that the reference passes to FTS5. For example, `chat-send` becomes
    `"chat-send"`, and `hello AND` becomes `hello`."""
    query = require_text("query", query).replace(_HELD, "")
    phrases = iter(_PHRASE.findall(query))
    query = _SPECIAL.sub(" ", _PHRASE.sub(_HELD, query))
    query = _LONE_STAR.sub("", _STARS.sub("*", query))
    query = _LEADING.sub("", query.strip(), count=1)
    query = _TRAILING.sub("", query.strip(), count=1)
    query = _COMPOUND.sub(r'"\g<0>"', query)
    return re.sub(_HELD, lambda _: next(phrases), query).strip()
