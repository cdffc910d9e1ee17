"""Find the end of reasoning that has no opening tag.

A closing tag ends reasoning if it is the first tag of the text and stands where models write it: at the beginning of a
line, or directly behind a character that ends a sentence or a word. These are text:

- a tag in code: a fenced block, an indented line or inline code
- a tag behind a space, a quotation mark, a bracket or another mark, as in "the </think> tag"
- every tag behind an opening one

A text may be written so that looking at it takes long. So only the first tags are looked at, and inline code only near
a tag.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TAGS = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")
_TAG = re.compile(rf"<(/?)(?:{'|'.join(TAGS)})(\s[^<>]*)?>", re.IGNORECASE)
_CLOSING = re.compile(rf"</(?:{'|'.join(TAGS)})>", re.IGNORECASE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}|~{3,})([^\n]*)")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_TICKS = re.compile("`+")
_BEFORE_A_MENTION = frozenset("\"'`\\([{<|*_~=/«»‹›„‚“‘»「『（［")
"""What stands directly before a tag that is only mentioned."""
_MOST_TAGS = 16
_NEAR = 4_000
"""Characters before and behind a tag in which the backticks of inline code are looked for."""
_DEEPEST = 3
"""Spaces before a tag at the beginning of a line; more make it code."""


class _Place(NamedTuple):
    """What stands before a position."""

    is_in_fence: bool
    paragraph: int
    """Where the paragraph begins."""


class Found(NamedTuple):
    reasoning: str
    rest: str


class EndFinder:
    """Looks for the end in a text that comes in pieces. Gives the same for every cut of the text."""

    def __init__(self) -> None:
        self._text = ""
        self._looked_at = 0
        self._tags = 0
        self._place: _Place | None = None  # of the next tag, once it is known
        self._is_over = False

    def find(self, more: str, *, is_end: bool = False) -> Found | None:
        """Take more of the text. None if no end is found in it, or if that is not known yet."""
        if self._is_over:
            return None
        self._text += more
        if ">" not in more and "`" not in more and "\n" not in more and not is_end:
            return None
        while (tag := _TAG.search(self._text, self._looked_at)) is not None:
            self._place = self._place or _find_place(self._text, tag.start())
            is_code = _is_code(self._text, tag.start(), self._place, is_end=is_end)
            if is_code is None:
                return None
            self._looked_at, self._place = tag.end(), None
            self._tags += 1
            if self._tags > _MOST_TAGS:
                break
            if is_code:
                continue
            if not tag[1]:
                break  # an opening tag: what follows is not what this looks for
            if not tag[2] and _is_reasoning_end(self._text, tag.start()):
                self._is_over = True
                return Found(self._text[: tag.start()], self._text[tag.end() :])
        if tag is not None or is_end:
            self._is_over = True
            self._text = ""
            return None
        begun = self._text.rfind("<", self._looked_at)  # a tag that is not whole yet begins here
        self._looked_at = begun if begun >= 0 else len(self._text)
        return None


def may_have_end(text: str) -> bool:
    """Whether a text holds a closing tag at all."""
    return "</" in text and _CLOSING.search(text) is not None


def _is_reasoning_end(text: str, at: int) -> bool:
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if not before.strip():
        return len(before.expandtabs(4)) <= _DEEPEST
    return not before[-1].isspace() and before[-1] not in _BEFORE_A_MENTION


def _is_code(text: str, at: int, place: _Place, *, is_end: bool) -> bool | None:
    """Whether a position is in code; None if only the text to come can tell."""
    if place.is_in_fence:
        return True
    start, limit = max(place.paragraph, at - _NEAR), at + _NEAR
    blank = _BLANK_LINE.search(text, at, limit)
    stop = min(len(text), limit) if blank is None else blank.start()
    is_finished = is_end or blank is not None or len(text) >= limit
    return _is_inline_code(text[start:stop], at - start, is_finished)


def _find_place(text: str, at: int) -> _Place:
    fence = ""
    paragraph = 0
    for found in _LINE.finditer(text):
        mark = _FENCE.match(found[0])
        is_here = found.end() > at
        if fence:
            if is_here:
                return _Place(is_in_fence=True, paragraph=paragraph)
            if mark is not None and mark[1].startswith(fence) and not mark[2].strip():
                fence, paragraph = "", found.end()
        elif mark is not None and not (mark[1][0] == "`" and "`" in mark[2]):
            if is_here:
                return _Place(is_in_fence=True, paragraph=paragraph)
            fence = mark[1]
        elif not found[0].strip():
            paragraph = found.end()
        if is_here:
            break
    return _Place(is_in_fence=False, paragraph=paragraph)


def _is_inline_code(paragraph: str, at: int, is_finished: bool) -> bool | None:
    runs = [found.span() for found in _TICKS.finditer(paragraph)]
    is_open = False
    number = 0
    while number < len(runs) and runs[number][0] < at:
        start, end = runs[number]
        if (len(paragraph[:start]) - len(paragraph[:start].rstrip("\\"))) % 2:
            start += 1  # a backslash makes a character of the first backtick
        partners = (
            later for later in range(number + 1, len(runs)) if runs[later][1] - runs[later][0] == end - start
        )
        partner = next(partners, None) if start < end else None
        if partner is not None and not is_finished and runs[partner][1] == len(paragraph):
            return None  # it may become longer
        if partner is not None and runs[partner][0] > at:
            return True
        is_open = is_open or (partner is None and start < end)
        number = number + 1 if partner is None else partner + 1
    return None if is_open and not is_finished else False
