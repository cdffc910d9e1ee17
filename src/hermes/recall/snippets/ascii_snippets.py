"""Snippets of ASCII text, which nearly all text is: the work is finding the words, and what is shown.

The same rules as in `snippets`, without its detours: a folded character stands where the written one does, and a token
is a run of letters and digits. Only the neighbourhood of the best cluster is split into words, to measure it.
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
"""Matches weighed against each other, of each goal."""
_SOME = 50
"""Identifiers looked into, of each goal, and words that only hold a goal before a pattern takes over."""
_PER_TOKEN = 16
"""Characters shown for each token at most: one may be a whole file in base64."""
_USUAL, _LOOKED_AT = 7, 10
"""Characters that a token and what follows it take; and how many are split into words for each that may be shown."""
_ROOM = 1024

Hit = tuple[int, int, int]
"""Where it begins and ends, and which goal it is of."""


def make_ascii_snippet(text: str, goals: Sequence[Goal], tokens: int) -> str:
    """The best cluster of matches with what stands around it, about `tokens` words long."""
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
    """Every place where a goal matches. What was typed literally is marked as it stands, else its words are."""
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
    """Where the tokens stand side by side as whole words; the last may go on if it is a prefix."""
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
            if others > _SOME:  # a short word is inside of many: let one scan find the few that are whole
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
    """Where the tokens are parts of an identifier: `user name` in getUserName."""
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
    """Where the snippet begins and ends: the cluster, and around it what the measure leaves room for."""
    room = max(0, tokens - len(_TOKEN.findall(folded, low, high)))
    reach = max(room * _LOOKED_AT // 2, _PER_TOKEN)
    first = max(0, low - (reach if high + reach < len(folded) else 2 * reach))
    if first and folded[first - 1].isalnum():  # no half words
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
    # What stands at the very beginning or end belongs to it.
    return (
        0 if before == len(starts) and not first else left,
        past if after == len(ends) and past == len(folded) else right,
    )


def _merge_hits(hits: Sequence[Hit], left: int, right: int) -> list[tuple[int, int]]:
    """What is marked in the frame; matches that overlap are one."""
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
