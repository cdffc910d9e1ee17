"""Reasoning that a model writes into its answer: `<think>…</think>` at the beginning of the text.

The store keeps the text as the model sent it. Everything that shows an answer, or takes words from it, splits it here.
A block that is never closed reaches to the end of the text. Tags that come after the answer has begun are text.

Some providers put the opening tag into the prompt, so that the text holds only the closing one. What stands before it
is reasoning, too; see `reasoning_end` for which tags count. In a stream this is known only when the tag comes: what was
given out as the answer until then is taken back by a `Recast`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hermes.reasoning_end import TAGS, EndFinder, may_have_end

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
        self._ends = EndFinder()
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
    if _OPENING.match(text) is None and not may_have_end(text):
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
