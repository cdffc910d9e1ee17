"""Snippets of ASCII text: a faster implementation, which is sufficient for nearly all texts.

The rules are those of `snippets`, but simpler: folding does not change positions, and a token is a run of
letters and digits. Only the text around the best cluster is split into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice

from hermes.recall.snippets.goals import CLOSE, CUT, OPEN, Goal, find_best_cluster
from hermes.terms import MAX_TERM, index_text

_TOKEN = re.compile("[0-9a-z]+")
_ENOUGH = 1_000
"""Maximum number of matches that are compared for each goal."""
_SOME = 50
"""Maximum number of identifiers examined for each goal. Also the number of partial-word matches after which
the search switches to a regular expression."""
_PER_TOKEN = 16
"""Maximum number of characters shown per token. A token can be a whole file in base64."""
_USUAL, _LOOKED_AT = 7, 10
"""`_USUAL` is the average length of a token with the space after it, in characters. `_LOOKED_AT` is the
number of characters that are split into words for each token shown."""
_ROOM = 1024

Hit = tuple[int, int, int]
"""The start and the end of a match, and the number of its goal."""


def make_ascii_snippet(text: str, goals: Sequence[Goal], tokens: int) -> str:
    """Return the snippet of an ASCII text: the part with the most matches of the goals, and the words around it. It is
    about `tokens` words long."""
    folded = text.lower()
    hits = sorted(
        {hit for number, goal in enumerate(goals) for hit in _find_hits(text, folded, goal, number)}
    )
    low, high = find_best_cluster(hits, tokens * _USUAL)
    left, right = _choose_frame(folded, low, min(high, low + tokens * _PER_TOKEN), tokens)
    out: list[str] = [CUT] if text[max(0, left - _ROOM) : left].strip() else []
    at = left
    for start, end in _merge_hits(hits, left, right):
        out += (text[at:start], OPEN, text[start:end], CLOSE)
        at = end
    out.append(text[at:right])
    if text[right : right + _ROOM].strip():
        out.append(CUT)
    return "".join(out)


def _find_hits(text: str, folded: str, goal: Goal, number: int) -> Iterator[Hit]:
    """Yield the position of every match of a goal in the text. If the goal has a literal that the text contains, only
    the literal is matched. Otherwise the tokens of the goal are matched."""
    if goal.literal is not None:
        spans = [match.span() for match in islice(goal.literal.finditer(folded), _ENOUGH)]
        if spans or not goal.tokens:
            yield from ((start, end, number) for start, end in spans)
            return
    if not goal.tokens[0].isascii():
        return
    found = _find_whole_words(folded, goal) or _find_in_identifiers(text, folded, goal)
    yield from ((start, end, number) for start, end in found)


def _find_whole_words(folded: str, goal: Goal) -> list[tuple[int, int]]:
    """Return the spans (start, end) in which the tokens of the goal occur as adjacent whole words. If the
    goal is a prefix, the last token may be the beginning of a word."""
    if len(goal.tokens) > 1:
        return [match.span() for match in islice(_compile_pattern(goal).finditer(folded), _ENOUGH)]
    token = goal.tokens[0]
    length, others = len(token), 0
    found: list[tuple[int, int]] = []
    at = folded.find(token)
    while at >= 0:
        end = at + length
        if (at and folded[at - 1].isalnum()) or (not goal.prefix and folded[end : end + 1].isalnum()):
            others += 1
            if (
                others > _SOME
            ):  # a short word occurs inside many others: a pattern finds the whole words faster
                rest = islice(_compile_pattern(goal).finditer(folded, at), _ENOUGH)
                return found + [match.span() for match in rest]
        else:
            found.append((at, end))
            if len(found) == _ENOUGH:
                break
        at = folded.find(token, end)
    return found


@lru_cache(256)
def _compile_pattern(goal: Goal) -> re.Pattern[str]:
    inner = "[^0-9a-z]+".join(map(re.escape, goal.tokens))
    return re.compile(f"(?<![0-9a-z]){inner}" + ("" if goal.prefix else "(?![0-9a-z])"))


def _find_in_identifiers(text: str, folded: str, goal: Goal) -> list[tuple[int, int]]:
    """Return the spans (start, end) of the text in which the tokens of the goal are adjacent parts of an identifier.
    For example, `user name` occurs in `getUserName`."""
    joined = "".join(goal.tokens)
    found, tries = [], 0
    at = folded.find(joined)
    while at >= 0 and tries < _SOME:
        tries += 1
        end = at + len(joined)
        first, past = _find_token(folded, at, end)
        parts = index_text(text[first:past])[1].split() if past - first <= MAX_TERM else []
        places = list(accumulate(map(len, parts), initial=first))
        edges = list(accumulate(map(len, goal.tokens), initial=at))
        if goal.prefix:
            edges.pop()
        if parts and set(edges) <= set(places):
            found.append((at, end))
        at = folded.find(joined, end)
    return found


def _find_token(folded: str, at: int, end: int) -> tuple[int, int]:
    first, past = at, end
    while first and at - first <= MAX_TERM and folded[first - 1].isalnum():
        first -= 1
    while past - end <= MAX_TERM and folded[past : past + 1].isalnum():
        past += 1
    return first, past


def _choose_frame(folded: str, low: int, high: int, tokens: int) -> tuple[int, int]:
    """Return the start and the end of the snippet in the text. It consists of the matches from `low` to `high` and of
    the words before and after them, `tokens` words in total."""
    room = max(0, tokens - len(_TOKEN.findall(folded, low, high)))
    reach = max(room * _LOOKED_AT // 2, _PER_TOKEN)
    first = max(0, low - (reach if high + reach < len(folded) else 2 * reach))
    if first and folded[first - 1].isalnum():  # do not cut words
        while first < low and folded[first].isalnum():
            first += 1
    past = min(len(folded), high + (reach if low > reach else 2 * reach))
    if folded[past : past + 1].isalnum():
        while past > high and folded[past - 1].isalnum():
            past -= 1
    starts = [match.start() for match in _TOKEN.finditer(folded, first, low)]
    ends = [match.end() for match in _TOKEN.finditer(folded, high, past)]
    before = min(len(starts), max(room // 2, room - len(ends)))
    after = min(len(ends), room - before)
    left = starts[-before] if before else low
    right = ends[after - 1] if after else high
    # Include punctuation at the very beginning or end of the text.
    return (
        0 if before == len(starts) and not first else left,
        past if after == len(ends) and past == len(folded) else right,
    )


def _merge_hits(hits: Sequence[Hit], left: int, right: int) -> list[tuple[int, int]]:
    """Return the spans (start, end) to mark in the snippet, which is the text from `left` to `right`. Overlapping
    matches are merged into one span."""
    joined: list[tuple[int, int]] = []
    for start, end, _ in hits:
        start, end = max(start, left), min(end, right)
        if start >= end:
            continue
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
