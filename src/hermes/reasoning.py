"""Reasoning that a model writes into its answer: `<think>…</think>` at the beginning of the text.

The store keeps the text as the model sent it. Everything that shows an answer, or takes words from it, splits it here.
A block that is never closed reaches to the end of the text. Tags that come after the answer has begun are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

TAGS = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")
_OPENING = re.compile(rf"\s*<({'|'.join(TAGS)})>", re.IGNORECASE)
_PARTIAL = re.compile(
    rf"\s*(?:<(?:{'|'.join(rf'{tag[:end]}' for tag in TAGS for end in range(len(tag) + 1))})?)?\Z",
    re.IGNORECASE,
)
"""Text that may become an opening tag."""
_BLANK = re.compile(r"(?:[^\S\n]*\n)*")
"""Blank lines. The indentation of the first line that says something belongs to it."""


class Parted(NamedTuple):
    reasoning: str
    answer: str


class Piece(NamedTuple):
    text: str
    is_reasoning: bool


class ReasoningSplitter:
    """Splits a text that comes in pieces. The result does not depend on where the pieces were cut."""

    def __init__(self) -> None:
        self._held = ""
        self._closing: re.Pattern[str] | None = None
        """The end of the block that is open."""
        self._blocks = 0
        self._is_answer = False

    def add(self, text: str) -> list[Piece]:
        """More of the text; what of it is certain by now."""
        if self._is_answer:
            return [Piece(text, False)] if text else []
        self._held += text
        made: list[Piece] = []
        while self._step(made):
            pass
        return made

    def end(self) -> list[Piece]:
        """The text has ended: what was held back."""
        held, self._held = self._held, ""
        if self._closing is not None:
            return [Piece(held, True)] if held else []
        if self._blocks:
            held = held[_blank_end(held) :] if held.strip() else ""
        return [Piece(held, False)] if held else []

    def _step(self, made: list[Piece]) -> bool:
        """Take one part from what is held; False if more text is needed."""
        return self._take_reasoning(made) if self._closing is not None else self._take_opening(made)

    def _take_opening(self, made: list[Piece]) -> bool:
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
        made.append(Piece(answer[_blank_end(answer) :] if self._blocks else answer, False))
        return False

    def _take_reasoning(self, made: list[Piece]) -> bool:
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


def split_reasoning(text: str) -> Parted:
    """The reasoning at the beginning of an answer, without its tags, and the answer. Without reasoning: the text."""
    if _OPENING.match(text) is None:
        return Parted("", text)
    splitter = ReasoningSplitter()
    pieces = [*splitter.add(text), *splitter.end()]
    return Parted(
        "".join(piece.text for piece in pieces if piece.is_reasoning),
        "".join(piece.text for piece in pieces if not piece.is_reasoning),
    )


def answer_in(content: object, role: object = "assistant") -> object:
    """The content of a message without its reasoning; that of others, and structured content, as it is."""
    return split_reasoning(content).answer if role == "assistant" and isinstance(content, str) else content


def reasoning_in(message: Mapping[str, Any]) -> str:
    """All reasoning of a stored message: what came beside the text, and what stands at its beginning."""
    beside = [message.get(name) for name in ("reasoning_content", "reasoning")]
    found = [text for text in beside if isinstance(text, str) and text.strip()][:1]
    content = message.get("content")
    if message.get("role") == "assistant" and isinstance(content, str):
        found += [text for text in (split_reasoning(content).reasoning,) if text.strip()]
    return "\n\n".join(found)


def _blank_end(text: str) -> int:
    found = _BLANK.match(text)
    return found.end() if found is not None else 0
