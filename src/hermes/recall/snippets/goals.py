"""The goals of a snippet are the words and phrases of a query that are marked in a text. This module makes the goals,
and finds the part of a text in which the most goals occur together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hermes.store.query_tree import Leaf, Literal, Node, Part, list_positive_leaves
from hermes.terms import find_token_spans, fold
from hermes.text import make_printable

OPEN, CLOSE, CUT = ">>>", "<<<", "..."
MARKED = re.compile(f"{OPEN}(.*?){CLOSE}")
_MARK = re.compile(f"{OPEN}|{CLOSE}")


class Goal(NamedTuple):
    """A word or phrase of the query that is marked in a text. It has tokens and may have a literal, which includes
    punctuation. If the text contains the literal, it is marked instead of the tokens."""

    tokens: tuple[str, ...]
    prefix: bool
    literal: re.Pattern[str] | None
    needle: str
    """The longest piece of the goal. A text that does not contain it cannot match, which is fast to check."""

    @property
    def is_caseless(self) -> bool:
        """Whether the script of the goal has no upper and lower case."""
        return not any(token.isascii() or token != token.upper() for token in (*self.tokens, self.needle))


@lru_cache(32)  # shared by the results of one search
def make_goals(tree: Node) -> tuple[Goal, ...]:
    return tuple(dict.fromkeys(_make_goal(leaf) for leaf in list_positive_leaves(tree)))


def _make_goal(leaf: Leaf) -> Goal:
    folded = fold(leaf.text)
    tokens = tuple(folded[start:end] for start, end in find_token_spans(folded))
    if isinstance(leaf, Part):
        return Goal(tokens, True, re.compile(re.escape(leaf.literal or leaf.piece)), leaf.piece)
    prefix = not isinstance(leaf, Literal) and leaf.prefix_last
    if not leaf.literal:
        return Goal(tokens, prefix, None, max(tokens, key=len))
    pieces = leaf.literal.split()
    return Goal(tokens, prefix, re.compile(r"\s+".join(map(re.escape, pieces))), max(pieces, key=len))


def may_match(text: str, tree: Node, *, encoded: bool = False) -> bool:
    """Return False if it is certain that no goal of the query occurs in the text, otherwise True.

    With `encoded`, the text is JSON. Then only letters and digits are compared, because JSON does not escape them.
    """
    if not text.isascii() or (encoded and "\\u" in text):
        return True
    folded = text.lower()
    return any(
        not goal.tokens or max(goal.tokens, key=len) in folded if encoded else goal.needle in folded
        for goal in make_goals(tree)
    )


def find_best_cluster(hits: Sequence[tuple[int, int, int]], reach: int) -> tuple[int, int]:
    """Return the start and the end of the best cluster of matches in a text. `hits` are the matches in order: their
    start, their end and the number of their goal.

    All matches of a cluster lie within `reach` characters. The best cluster is the one with the most different goals.
    If several have equally many, it is the one with the most matches, and then the first one.
    """
    if len(hits) == 1:
        return hits[0][:2]
    best, low, high = (0, 0), 0, 0
    counts: dict[int, int] = {}
    first = 0
    for last, (_, end, goal) in enumerate(hits):
        counts[goal] = counts.get(goal, 0) + 1
        while first < last and end - hits[first][0] > reach:
            left = hits[first][2]
            counts[left] -= 1
            if not counts[left]:
                del counts[left]
            first += 1
        score = (len(counts), last - first + 1)
        if score > best:
            best, low, high = score, hits[first][0], max(hit[1] for hit in hits[first : last + 1])
    return low, high


def fit_snippet(snippet: str, width: int, *, in_colour: bool) -> str:
    """Return the part of a snippet that contains its first match and is at most `width` columns wide. With `in_colour`,
    the marks around matches are shown as colour and take no space."""
    line = make_printable(snippet)
    unseen = len(OPEN) * len(_MARK.findall(line)) if in_colour else 0
    if make_printable(line, width_limit=width + unseen) == line:  # the whole snippet fits
        return line
    first = max(0, line.find(OPEN))
    start = 0 if first < width // 2 else first - width // 4
    marks = sum(map(len, _MARK.findall(line[start : start + width]))) if in_colour else 0
    fitted = make_printable(line[start:], width_limit=width - (1 if start else 0) + marks)
    if fitted.rfind(OPEN) > fitted.rfind(CLOSE):  # the closing mark was cut off
        fitted = f"{fitted[: fitted.rfind(OPEN)].rstrip()}…"
    return f"…{fitted}" if start else fitted
