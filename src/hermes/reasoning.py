"""Reasoning that a model writes into its answer: `<think>…</think>` at the beginning of the text.

The store keeps the text as the model sent it. Everything that shows an answer, or takes words from it, splits it here.
A block that is never closed reaches to the end of the text. Tags that come after the answer has begun are text.

Some providers put the opening tag into the prompt, so that the text holds only the closing one. What stands before it
is reasoning, too; see `_EndFinder` for which tags count. In a stream this is known only when the tag comes: what was
given out as the answer until then is taken back by a `Recast`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


class _Found(NamedTuple):
    reasoning: str
    rest: str


class _EndFinder:
    """Finds the end of reasoning that has no opening tag, in a text that comes in pieces.

    A closing tag ends reasoning if it is the first tag of the text and stands where models write it: at the beginning
    of a line, or directly behind a character that ends a sentence or a word. These are text:

    - a tag in code: a fenced block, an indented line or inline code
    - a tag behind a space, a quotation mark, a bracket or another mark, as in "the </think> tag"
    - every tag behind an opening one

    A text may be written so that looking at it takes long. So only the first tags are looked at, and inline code only
    near a tag. The result does not depend on where the pieces were cut.
    """

    def __init__(self) -> None:
        self._text = ""
        self._looked_at = 0
        self._tags = 0
        self._place: _Place | None = None  # of the next tag, once it is known
        self._is_over = False

    def find(self, more: str, *, is_end: bool = False) -> _Found | None:
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
                return _Found(self._text[: tag.start()], self._text[tag.end() :])
        if tag is not None or is_end:
            self._is_over = True
            self._text = ""
            return None
        begun = self._text.rfind("<", self._looked_at)  # a tag that is not whole yet begins here
        self._looked_at = begun if begun >= 0 else len(self._text)
        return None


def _may_have_end(text: str) -> bool:
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


_OPENING = re.compile(rf"\s*<({'|'.join(TAGS)})>", re.IGNORECASE)
_PARTIAL = re.compile(
    rf"\s*(?:</?(?:{'|'.join(rf'{tag[:end]}' for tag in TAGS for end in range(len(tag) + 1))})?)?\Z",
    re.IGNORECASE,
)
"""Text that may become a tag."""
_BLANK = re.compile(r"(?:[^\S\n]*\n)*")
"""Blank lines. The indentation of the first line that says something belongs to it."""


class SplitText(NamedTuple):
    reasoning: str
    answer: str


class Piece(NamedTuple):
    text: str
    is_reasoning: bool


class Recast(NamedTuple):
    """Everything that was given out as the answer is reasoning: this text, without the tag that ends it."""

    text: str


class ReasoningSplitter:
    """Splits a text that comes in pieces. The result does not depend on where the pieces were cut."""

    def __init__(self) -> None:
        self._held = ""
        self._closing: re.Pattern[str] | None = None
        """The end of the block that is open."""
        self._blocks = 0
        self._is_answer = False
        self._ends = _EndFinder()
        """Looks for a closing tag in an answer that began without reasoning."""

    def add(self, text: str) -> list[Piece | Recast]:
        """More of the text. What is given out as the answer may be taken back by a later `Recast`."""
        if self._is_answer:
            return self._add_to_answer(text)
        self._held += text
        made: list[Piece | Recast] = []
        while self._take_part(made):
            pass
        return made

    def end(self) -> list[Piece | Recast]:
        """The text has ended: what was held back."""
        made: list[Piece | Recast] = []
        if self._is_answer and not self._blocks:
            made = self._add_to_answer("", is_end=True)
        rest, self._held = self._held, ""
        if self._closing is not None:
            return [*made, Piece(rest, True)] if rest else made
        if self._blocks:
            rest = rest[_find_blank_end(rest) :] if rest.strip() else ""
        return [*made, Piece(rest, False)] if rest else made

    def _add_to_answer(self, text: str, *, is_end: bool = False) -> list[Piece | Recast]:
        """More of the answer. If it holds the end of reasoning, what follows is split anew."""
        found = None if self._blocks else self._ends.find(text, is_end=is_end)
        if found is None:
            return [Piece(text, False)] if text else []
        reasoning, self._held = found
        made: list[Piece | Recast] = [Recast(reasoning)]
        self._is_answer, self._blocks = False, 1
        while self._take_part(made):
            pass
        return made

    def _take_part(self, made: list[Piece | Recast]) -> bool:
        """Take one part from what is held; False if more text is needed."""
        return self._take_reasoning(made) if self._closing is not None else self._take_opening(made)

    def _take_opening(self, made: list[Piece | Recast]) -> bool:
        found = _OPENING.match(self._held)
        if found is not None:
            self._closing = re.compile(rf"</{found[1]}>", re.IGNORECASE)
            self._held = self._held[found.end() :]
            self._blocks += 1
            if self._blocks > 1:
                made.append(Piece("\n\n", True))
            return True
        if _PARTIAL.match(self._held):
            return False
        self._is_answer = True
        answer, self._held = self._held, ""
        if self._blocks:
            made.append(Piece(answer[_find_blank_end(answer) :], False))
        else:
            made += self._add_to_answer(answer)
        return False

    def _take_reasoning(self, made: list[Piece | Recast]) -> bool:
        assert self._closing is not None
        found = self._closing.search(self._held)
        if found is not None:
            text, self._held = self._held[: found.start()], self._held[found.end() :]
            self._closing = None
        else:
            kept = self._held.rfind("<", max(0, len(self._held) - len(self._closing.pattern) + 1))
            kept = len(self._held) if kept < 0 else kept
            text, self._held = self._held[:kept], self._held[kept:]
        if text:
            made.append(Piece(text, True))
        return found is not None


def split_reasoning(text: str) -> SplitText:
    """The reasoning at the beginning of an answer, without its tags, and the answer. Without reasoning: the text."""
    if _OPENING.match(text) is None and not _may_have_end(text):
        return SplitText("", text)
    splitter = ReasoningSplitter()
    return join_pieces([*splitter.add(text), *splitter.end()])


def join_pieces(pieces: Iterable[Piece | Recast]) -> SplitText:
    reasoning = answer = ""
    for piece in pieces:
        if isinstance(piece, Recast):
            reasoning, answer = piece.text, ""
        elif piece.is_reasoning:
            reasoning += piece.text
        else:
            answer += piece.text
    return SplitText(reasoning, answer)


def strip_reasoning(content: object, role: object = "assistant") -> object:
    """The content of a message without its reasoning; that of others, and structured content, as it is."""
    return split_reasoning(content).answer if role == "assistant" and isinstance(content, str) else content


def extract_reasoning(message: Mapping[str, Any]) -> str:
    """All reasoning of a stored message: what came beside the text, and what stands at its beginning."""
    beside = [message.get(name) for name in ("reasoning_content", "reasoning")]
    found = [text for text in beside if isinstance(text, str) and text.strip()][:1]
    content = message.get("content")
    if message.get("role") == "assistant" and isinstance(content, str):
        found += [text for text in (split_reasoning(content).reasoning,) if text.strip()]
    return "\n\n".join(found)


def _find_blank_end(text: str) -> int:
    found = _BLANK.match(text)
    return found.end() if found is not None else 0
