"""Read what somebody typed as a query. Every string is one; nothing here raises.

The grammar is the documented one and no more; `hermes.recall.query.prompt_language` adds what people type at a prompt:

    query   a OR b        either
            a AND b, a b  both
            a NOT b       the first without the second; NOT binds to the one word or phrase after it
    word    anything between spaces and quotes; with punctuation it is also looked up literally
            deploy*       stars at the end: the last token may go on
    phrase  "a b"         side by side

NOT binds tighter than AND, AND tighter than OR. Operators are upper case. What has no meaning is dropped: an operator
at either end or without an operand, a star alone, an empty phrase. A quote without a partner parts words and says
nothing else. The rest is text: `rm -rf`, `foo(bar)`, `std::vector<int>`, `50%`.
"""

from __future__ import annotations

import re

from hermes.store.matching import And, Leaf, Node, Not, Or, phrase, word
from hermes.text import clean_in

__all__ = ["PIECES", "leaf", "parse"]

PIECES = re.compile(r'"([^"]*)"|([^\s"]+)')


def parse(query: str) -> Node | None:
    """The tree of a query, or None if there is nothing to look for."""
    either: list[Node] = []
    both: list[Node] = []
    negated = False
    for quoted, bare in PIECES.findall(clean_in(query)):
        if bare == "NOT":
            negated = bool(both or either)
            continue
        if bare == "OR":
            if both:
                either.append(_joined(both))
                both = []
        elif bare != "AND":
            said = leaf(bare) if bare else phrase(quoted)
            if said is None:
                continue
            both.append(Not(said) if negated else said)
        negated = False
    if both:
        either.append(_joined(both))
    if not either:
        return None
    return either[0] if len(either) == 1 else Or(tuple(either))


def _joined(both: list[Node]) -> Node:
    return both[0] if len(both) == 1 else And(tuple(both))


def leaf(typed: str) -> Leaf | None:
    """One typed word, which may end in stars."""
    stem = typed.rstrip("*")
    return word(stem, prefix=stem != typed) if stem else None
