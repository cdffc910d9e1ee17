"""Long pasted texts. The prompt shows a short placeholder, here called mark, for each paste. When the input is
sent, the marks are replaced by the pastes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LONGEST_SHOWN, MOST_LINES_SHOWN = 2000, 12
"""A paste with more characters or more lines than this is abbreviated."""
LONGEST_EDITED = 10 * LONGEST_SHOWN
"""A text longer than this is abbreviated even if it was not pasted, because editing such a long line is slow.
"""

_MARK = re.compile(r"\[pasted (?P<earlier>earlier )?#(?P<number>\d+): [^\]\n]*\]")

Range = tuple[int, int]
"""The start and the end of a paste in a text."""


class Expanded(NamedTuple):
    text: str
    ranges: list[Range]
    """The places of the pastes in the text."""


class Pastes:
    def __init__(self) -> None:
        self._pastes: list[str] = []
        self._earlier: list[str] = []
        """Pastes from the input history of earlier processes. They are numbered separately from the pastes of
        this process."""

    def abbreviate(self, text: str) -> str:
        """Return the text that the prompt shows for a pasted text: a short paste as it is, and a mark for a
        long one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= LONGEST_SHOWN and text.count("\n") < MOST_LINES_SHOWN:
            return text
        return self._add(text)

    def expand(self, text: str) -> Expanded:
        """Return `text` with each mark replaced by its paste, and the positions of the pastes in the result. An
        unknown mark is left unchanged."""
        parts, ranges, at, length = list[str](), list[Range](), 0, 0
        for mark in _MARK.finditer(text):
            paste = self._find_paste(mark)
            if paste is not None:
                before = text[at : mark.start()]
                length += len(before)
                ranges.append((length, length + len(paste)))
                length += len(paste)
                parts += [before, paste]
                at = mark.end()
        return Expanded("".join([*parts, text[at:]]), ranges)

    def collapse(self, text: str) -> str:
        """Return `text` in a form that the person can edit at the prompt: a mark replaces each known paste. If
        the result is still very long, one mark replaces the whole text."""
        if len(text) <= LONGEST_SHOWN and text.count("\n") < MOST_LINES_SHOWN:
            return text
        for number, paste in enumerate(self._pastes, 1):
            text = text.replace(paste, _format_mark(number, paste))
        return text if len(text) <= LONGEST_EDITED else self._add(text)

    def collapse_ranges(self, text: str, ranges: Iterable[Range]) -> str:
        """Return `text`, an input from the history file, with a mark in place of each paste. `ranges` are the
        positions of the pastes in `text`."""
        parts, at = list[str](), 0
        for start, end in ranges:
            if at <= start < end <= len(text):
                self._earlier.append(text[start:end])
                mark = _format_mark(len(self._earlier), text[start:end], "earlier ")
                parts += [text[at:start], mark]
                at = end
        return "".join([*parts, text[at:]])

    def _add(self, text: str) -> str:
        self._pastes.append(text)
        return _format_mark(len(self._pastes), text)

    def _find_paste(self, mark: re.Match[str]) -> str | None:
        pastes, number = self._earlier if mark["earlier"] else self._pastes, int(mark["number"])
        return pastes[number - 1] if 0 < number <= len(pastes) else None


def _format_mark(number: int, text: str, kind: str = "") -> str:
    return f"[pasted {kind}#{number}: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters]"
