"""Snippets: the part of a text where a query matches best.

Invariant: a snippet is a piece of the text as written, with `>>>` and `<<<` around matches and `...` where it
was cut. Matches are found in the folded text by the rules of the index. Each folded character is mapped back
to its original, so a match that differs in case, accents or width is marked as well. For every text and
query, the work is bounded and no exception is raised.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import NamedTuple
from unicodedata import category

from hermes.recall.snippets.ascii_snippets import make_ascii_snippet
from hermes.recall.snippets.goals import CLOSE, CUT, OPEN, Goal, find_best_cluster, make_goals, may_match
from hermes.store.query_tree import Node
from hermes.terms import find_token_spans, fold, index_text, is_spaceless

__all__ = ["CLOSE", "CUT", "OPEN", "make_snippet", "may_match"]

_ROOM = 1024
"""Number of characters examined in detail. In a longer text, the best stretch of this length is
found first."""
_PATIENCE = 32_000_000
"""Maximum amount of text that is examined to find the best stretch, in characters. A non-ASCII character
counts as 16, because folding it is slow."""
_ENOUGH = 1_000
"""Maximum number of matches that are compared."""
_WIDEST, _USUAL = 16, 4
"""The maximum and the usual number of characters per token. The maximum is needed because a token can be a
whole file in base64."""


class _Hit(NamedTuple):
    start: int
    end: int
    goal: int


class _Origin(NamedTuple):
    """For each character of a folded text, its start and end in the original text."""

    starts: Sequence[int]
    ends: Sequence[int]
    length: int

    def start(self, at: int) -> int:
        return self.starts[at] if at < len(self.starts) else self.length

    def end(self, at: int) -> int:
        return self.ends[at - 1] if at else 0


def make_snippet(text: str, tree: Node, *, tokens: int = 40) -> str:
    """Return the snippet of a text for a query: the part with the most matches, and the words around it. It is about
    `tokens` words long."""
    goals = make_goals(tree)
    tokens = max(1, tokens)
    if text.isascii():
        return make_ascii_snippet(text, goals, tokens)
    start, past = _choose_stretch(text, goals, tokens)
    piece = text[start:past]
    folded, origin = _fold_with_origin(piece)
    spans = find_token_spans(folded)
    ordered = sorted(set(_find_hits(piece, folded, origin, spans, goals)))[:_ENOUGH]
    low, high = _choose_frame(_split_units(folded, spans), ordered, tokens, len(folded))
    inside = [hit for hit in ordered if hit.start < high and hit.end > low]
    marks = [(origin.start(max(hit.start, low)), origin.end(min(hit.end, high))) for hit in inside]
    first, last = origin.start(low), origin.end(high)
    before = CUT if text[max(0, start + first - _ROOM) : start + first].strip() else ""
    after = CUT if text[start + last : start + last + _ROOM].strip() else ""
    return f"{before}{_mark_hits(piece, first, last, marks)}{after}"


def _choose_stretch(text: str, goals: Sequence[Goal], tokens: int) -> tuple[int, int]:
    """Return the start and the end of the part of a long text in which matches are looked for exactly. It is chosen by
    a faster, less exact search."""
    margin = tokens * _USUAL
    if len(text) > 2 * margin:
        # Lower-casing a long text takes most of the time, and most scripts without spaces have no case.
        lower = text if all(goal.is_caseless for goal in goals) else text.lower()
        if len(lower) == len(text) and (hits := _find_plain(lower, goals)):
            low, high = find_best_cluster(hits, margin)
            near = text[max(0, low - margin) : low + margin]
            if is_spaceless(lower[low]) and len(near.encode(errors="replace")) > 2 * len(near):
                margin = tokens * 2  # a token is one character here
            return _snap_to_word(text, low - margin), _snap_to_word(text, min(high, low + _ROOM) + margin)
    start = _find_best_stretch(text, goals) if len(text) > _ROOM else 0
    return start, _snap_to_word(text, start + _ROOM)


def _find_plain(lower: str, goals: Sequence[Goal]) -> list[tuple[int, int, int]]:
    """Return (start, end, index of the goal) for each occurrence of a goal in the text, ignoring only case.
    If any goal does not occur, return an empty list."""
    hits: list[tuple[int, int, int]] = []
    for number, goal in enumerate(goals):
        found = islice(_compile_likely(goal).finditer(lower), _ENOUGH) if goal.needle in lower else ()
        places = [(*match.span(), number) for match in found]
        if not places:
            return []
        hits += places
    return sorted(hits)


@lru_cache(256)
def _compile_likely(goal: Goal) -> re.Pattern[str]:
    """Return a regular expression that finds likely matches of a goal, without splitting the text into tokens."""
    if goal.literal:
        return goal.literal
    head = "" if is_spaceless(goal.tokens[0]) else r"(?<![a-z0-9])"
    tail = "" if goal.prefix or is_spaceless(goal.tokens[-1]) else r"(?![a-z0-9])"
    return re.compile(head + r"[\W_]*".join(map(re.escape, goal.tokens)) + tail)


def _find_best_stretch(text: str, goals: Sequence[Goal]) -> int:
    """Return the position in a long text at which to begin the exact search for matches. It is shortly before the first
    match in the part of the text that contains the most goals."""
    best, most, spent = 0, 0, 0
    # Stretches overlap by half, so that each cluster lies completely in at least one of them.
    for start in range(0, len(text), _ROOM // 2):
        piece = text[start : start + _ROOM]
        spent += len(piece) if piece.isascii() else 16 * len(piece)
        folded = fold(piece)
        present = [goal for goal in goals if goal.needle in folded]
        # A match at an edge may be half a word. Another stretch contains the whole word.
        inner = (_compile_likely(goal).search(folded, 1 if start else 0) for goal in present)
        found = [
            match.start()
            for match in inner
            if match and (match.end() < len(folded) or start + _ROOM >= len(text))
        ]
        if len(present) + len(found) > most:
            most = len(present) + len(found)
            best = start + min(found or [folded.index(present[0].needle)])
        if len(found) == len(goals) or spent > _PATIENCE:
            break
    return _snap_to_word(text, best - _ROOM // 4)


def _snap_to_word(text: str, at: int) -> int:
    """Return a position at or shortly before `at` that is not inside a word. If there is no space shortly
    before `at`, return `at` itself."""
    if not 0 < at < len(text):
        return max(0, at)
    gap = text.rfind(" ", max(0, at - 256), at)
    return at if gap < 0 else gap


def _find_hits(
    piece: str, folded: str, origin: _Origin, spans: list[tuple[int, int]], goals: Sequence[Goal]
) -> Iterator[_Hit]:
    """Yield every match of a goal in `piece`, a part of the text. The positions refer to `folded`, the folded form of
    the piece."""
    by_first: dict[str, list[int]] = {}
    loose: list[int] = []  # goals whose first token can be part of a word
    for number, goal in enumerate(goals):
        literals = (
            [_Hit(*match.span(), number) for match in goal.literal.finditer(folded)] if goal.literal else []
        )
        yield from literals
        if literals or not goal.tokens:
            continue
        single = len(goal.tokens) == 1
        if not is_spaceless(goal.tokens[0]):
            if single and goal.prefix:
                loose.append(number)
            else:
                by_first.setdefault(goal.tokens[0], []).append(number)
        elif not single:
            loose.append(number)
        elif goal.needle in folded:
            runs = re.finditer(re.escape(goal.needle), folded)
            yield from (_Hit(*match.span(), number) for match in runs)

    sequences = [
        ([folded[start:end] for start, end in spans], spans),
        *_find_identifiers(
            piece, folded, origin, spans, {goals[n].tokens[0] for n in loose} | by_first.keys()
        ),
    ]
    for words, bounds in sequences:
        for at, word in enumerate(words):
            first = by_first.get(word, ())
            for number in (*first, *loose) if loose else first:
                if hit := _match_side_by_side(words, bounds, at, goals[number]):
                    yield _Hit(*hit, number)


def _find_identifiers(
    piece: str, folded: str, origin: _Origin, spans: list[tuple[int, int]], firsts: Iterable[str]
) -> Iterator[tuple[list[str], list[tuple[int, int]]]]:
    """Yield each identifier in the text that contains one of the tokens in `firsts`, as its parts and the positions of
    the parts."""
    if piece == piece.lower():
        return  # the usual case, and fast to check
    starts = [start for start, _ in spans]
    holding: set[int] = set()
    for token in firsts:
        at = folded.find(token)
        while at >= 0:
            holding.add(bisect_right(starts, at) - 1)
            at = folded.find(token, at + 1)
    for start, end in (spans[number] for number in sorted(holding) if number >= 0):
        written = piece[origin.start(start) : origin.end(end)]
        inner = written[1:]
        if inner == inner.lower():
            continue
        parts = index_text(written)[1].split()
        bounds = list(pairwise(accumulate(map(len, parts), initial=start)))
        if bounds and bounds[-1][1] == end:
            # Use the folded text itself. A mark after an identifier can change how the identifier is folded.
            yield [folded[first:past] for first, past in bounds], bounds


def _match_side_by_side(
    words: list[str], spans: list[tuple[int, int]], at: int, goal: Goal
) -> tuple[int, int] | None:
    """Compare the tokens of a goal with the words of a text from word number `at` on. If they are equal one by one,
    return the start and the end of the match, otherwise None.

    In a script without spaces, the first word may begin before the match, and the last word may end after it.
    """
    count = len(goal.tokens)
    if at + count > len(words):
        return None
    for offset, token in enumerate(goal.tokens):
        word = words[at + offset]
        if word == token:
            continue
        outwards = is_spaceless(token)
        last = offset == count - 1
        if last and (goal.prefix or outwards) and word.startswith(token):
            continue
        if not last and offset == 0 and outwards and word.endswith(token):
            continue
        return None
    start = spans[at][1] - len(goal.tokens[0]) if count > 1 else spans[at][0]
    return start, spans[at + count - 1][0] + len(goal.tokens[-1])


def _split_units(folded: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans (start, end) of the units in which the length of a snippet is measured: tokens or, in
    a script without spaces, single characters."""
    if folded.isascii():
        return spans
    units: list[tuple[int, int]] = []
    for start, end in spans:
        if is_spaceless(folded[start]):
            units += [(at, at + 1) for at in range(start, end)]
        else:
            units.append((start, end))
    return units


def _choose_frame(
    units: list[tuple[int, int]], hits: list[_Hit], tokens: int, length: int
) -> tuple[int, int]:
    """Return the start and the end of the snippet: the best cluster of matches and the words before and after it,
    `tokens` words in total."""
    widest = tokens * _WIDEST
    starts = [start for start, _ in units]
    low, high = _find_cluster(units, starts, hits, tokens)
    left, right = 0, length
    if units:
        first, past = max(0, bisect_right(starts, low) - 1), bisect_left(starts, high)
        begin = max(0, first - max(0, tokens - (past - first)) // 2)
        end = min(len(units), begin + tokens)
        begin = max(0, min(begin, end - tokens))
        left = min(low, starts[begin]) if begin else 0
        right = max(high, units[end - 1][1]) if end < len(units) else length
    if right - left > widest:
        left = max(left, low - widest // 4)
        right = min(right, left + widest)
    return left, right


def _find_cluster(
    units: list[tuple[int, int]], starts: list[int], hits: list[_Hit], tokens: int
) -> tuple[int, int]:
    """Return the start and the end of the best cluster of matches: the one with the most different goals, then the one
    with the most matches, then the first one."""
    best, low, high = (0, 0), 0, 0
    for number, hit in enumerate(hits):
        last = min(max(0, bisect_right(starts, hit.start) - 1) + tokens, len(units)) - 1
        reach = min(units[last][1] if units else 0, hit.start + tokens * _WIDEST)
        near = [hit, *[other for other in hits[number + 1 : number + tokens] if other.end <= reach]]
        score = (len({other.goal for other in near}), len(near))
        if score > best:
            best, low, high = score, hit.start, max(other.end for other in near)
    return low, high


def _mark_hits(piece: str, first: int, last: int, marks: list[tuple[int, int]]) -> str:
    """Return the text of `piece` from the position `first` to `last`, with `>>>` and `<<<` around its matches.
    Overlapping matches are merged."""
    out: list[str] = []
    at = first
    joined: list[list[int]] = []
    for start, end in sorted(marks):
        if joined and start < joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        elif end > start:
            joined.append([start, end])
    for start, end in joined:
        out += [piece[at:start], OPEN, piece[start:end], CLOSE]
        at = end
    return "".join([*out, piece[at:last]])


# Either ASCII text, or a run of other characters with one preceding ASCII character that its first mark may
# combine with.
_PIECES = re.compile("[\0-\x7f]+(?=[\0-\x7f]|\\Z)|[\0-\x7f]?[^\0-\x7f]+")


def _fold_with_origin(text: str) -> tuple[str, _Origin]:
    """Return the folded form of a text, and for each of its characters the position in the original text."""
    folded = fold(text)
    if len(folded) == len(text) and all(map(_is_folded_alone, set(text))):
        return folded, _Origin(range(len(text)), range(1, len(text) + 1), len(text))
    forms: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in (match.span() for match in _PIECES.finditer(text)):
        form = fold(text[start:end])
        if len(form) == end - start:
            forms.append(form)
            starts += range(start, end)
            ends += range(start + 1, end + 1)
            continue
        edges = [start, *[at for at in range(start + 1, end) if not _is_joining(text[at])], end]
        for first, past in pairwise(edges):
            form = fold(text[first:past])
            forms.append(form)
            starts += [first] * len(form)
            ends += [past] * len(form)
    return "".join(forms), _Origin(starts, ends, len(text))


@lru_cache(8192)
def _is_folded_alone(char: str) -> bool:
    """Return whether a character always folds to a single character, whatever its neighbours are."""
    return len(fold(char)) == 1 and not _is_joining(char)


def _is_joining(char: str) -> bool:
    """Return whether folding merges a character with the previous one. This is so for marks, and for parts of
    a composed syllable."""
    composes = "\u1160" <= char <= "\u11ff" or char in "\uff9e\uff9f"
    return char >= "\u0300" and (composes or category(char)[0] == "M")
