"""Reasoning that a model writes into its answer: `<think>…</think>` at the beginning of the text.

The store keeps the text as the model sent it. All code that shows or uses an answer splits it with this
module. A block that is never closed extends to the end of the text. Tags after the beginning of the answer
are text.

Some providers put the opening tag into the prompt, so that the text contains only the closing tag. The text
before it is reasoning too; `_EndFinder` describes which tags count. In a stream this is known only when the
tag arrives. A `Recast` then turns the text already emitted as the answer into reasoning.
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
"""If one of these characters is directly before a tag, the text only mentions the tag."""
_MOST_TAGS = 16
_NEAR = 4_000
"""Number of characters before and after a tag in which backticks of inline code are searched for."""
_DEEPEST = 3
"""Maximum number of spaces before a tag at the beginning of a line. With more spaces, the line is code."""


class _Place(NamedTuple):
    """What surrounds a position in a text: whether the position is in a fenced block, and where its paragraph
    starts."""

    is_in_fence: bool
    paragraph: int
    """The position at which the paragraph starts."""


class _Found(NamedTuple):
    reasoning: str
    rest: str


class _EndFinder:
    """Finds the end of reasoning that has no opening tag, in a text that arrives in pieces.

    A closing tag ends reasoning if it is the first tag of the text and is at the beginning of a line, or
    directly after a character that ends a sentence or a word. These tags are text:

    - a tag in code: a fenced block, an indented line or inline code
    - a tag after a space, a quotation mark, a bracket or another mark, as in "the </think> tag"
    - every tag after an opening tag

    To bound the work for hostile text, only the first tags are examined, and inline code only near a tag. The
    result does not depend on where the pieces were cut.
    """

    def __init__(self) -> None:
        self._text = ""
        self._looked_at = 0
        self._tags = 0
        self._place: _Place | None = None  # the place of the next tag, once known
        self._is_over = False

    def find(self, more: str, *, is_end: bool = False) -> _Found | None:
        """Add more text. Return the reasoning and the text after it if the end of the reasoning was found.
        Return None if it was not found, or if the decision depends on text that has not arrived yet."""
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
                break  # after an opening tag, closing tags are not considered
            if not tag[2] and _is_reasoning_end(self._text, tag.start()):
                self._is_over = True
                return _Found(self._text[: tag.start()], self._text[tag.end() :])
        if tag is not None or is_end:
            self._is_over = True
            self._text = ""
            return None
        begun = self._text.rfind("<", self._looked_at)  # an incomplete tag begins here
        self._looked_at = begun if begun >= 0 else len(self._text)
        return None


def _may_have_end(text: str) -> bool:
    """Return whether a text contains any tag that could end reasoning."""
    return "</" in text and _CLOSING.search(text) is not None


def _is_reasoning_end(text: str, at: int) -> bool:
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if not before.strip():
        return len(before.expandtabs(4)) <= _DEEPEST
    return not before[-1].isspace() and before[-1] not in _BEFORE_A_MENTION


def _is_code(text: str, at: int, place: _Place, *, is_end: bool) -> bool | None:
    """Return whether the position `at` is in code, or None if that depends on text that has not arrived
    yet."""
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
            start += 1  # a backslash escapes the first backtick
        partners = (
            later for later in range(number + 1, len(runs)) if runs[later][1] - runs[later][0] == end - start
        )
        partner = next(partners, None) if start < end else None
        if partner is not None and not is_finished and runs[partner][1] == len(paragraph):
            return None  # the run may become longer
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
"""Matches the beginning of a text that may become a tag when more text arrives."""
_BLANK = re.compile(r"(?:[^\S\n]*\n)*")
"""Blank lines. The indentation of the first non-blank line belongs to that line."""


class SplitText(NamedTuple):
    reasoning: str
    answer: str


class Piece(NamedTuple):
    text: str
    is_reasoning: bool


class Recast(NamedTuple):
    """Reports that all text emitted as the answer so far was reasoning. `text` is that reasoning, without the
    closing tag."""

    text: str


class ReasoningSplitter:
    """Splits the text of an answer, which arrives in pieces, into reasoning and answer. The result does not
    depend on where the pieces were cut."""

    def __init__(self) -> None:
        self._held = ""
        self._closing: re.Pattern[str] | None = None
        """The closing tag of the open block."""
        self._blocks = 0
        self._is_answer = False
        self._ends = _EndFinder()
        """Searches for a closing tag in an answer that began without reasoning."""

    def add(self, text: str) -> list[Piece | Recast]:
        """Add more text. Return the pieces that can already be identified as reasoning or answer. A later
        `Recast` may turn pieces of the answer into reasoning."""
        if self._is_answer:
            return self._add_to_answer(text)
        self._held += text
        made: list[Piece | Recast] = []
        while self._take_part(made):
            pass
        return made

    def end(self) -> list[Piece | Recast]:
        """Tell this splitter that the text is complete. Return the pieces that it has held back until now."""
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
        """Add more text of the answer. If it ends reasoning that had no opening tag, return a `Recast` and
        split the rest as new text."""
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
        """Take one part from the beginning of the text that is held back, and append the resulting pieces to
        `made`. Return False if more text must arrive first."""
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
    """Return the reasoning at the beginning of an answer, without its tags, and the answer."""
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
    """Return the content of an answer without its reasoning. Other messages and structured content are
    returned unchanged."""
    return split_reasoning(content).answer if role == "assistant" and isinstance(content, str) else content


def extract_reasoning(message: Mapping[str, Any]) -> str:
    """Return all reasoning of a stored message: the separate fields, and the reasoning at the beginning of
    its text."""
    beside = [message.get(name) for name in ("reasoning_content", "reasoning")]
    found = [text for text in beside if isinstance(text, str) and text.strip()][:1]
    content = message.get("content")
    if message.get("role") == "assistant" and isinstance(content, str):
        found += [text for text in (split_reasoning(content).reasoning,) if text.strip()]
    return "\n\n".join(found)


def _find_blank_end(text: str) -> int:
    found = _BLANK.match(text)
    return found.end() if found is not None else 0
