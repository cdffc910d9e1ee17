"""Long pastes stand in the prompt as a short mark, so that a megabyte can be typed around; sending puts them back."""

from __future__ import annotations

import re

LONGEST_SHOWN, MOST_LINES_SHOWN = 2000, 12

_MARK = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class Pastes:
    def __init__(self) -> None:
        self._kept: list[str] = []

    def shown(self, text: str) -> str:
        """What stands in the prompt for a paste: itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_SHOWN and lines <= MOST_LINES_SHOWN:
            return text
        self._kept.append(text)
        return f"[pasted #{len(self._kept)}: {lines:,} lines, {len(text):,} characters]"

    def whole(self, text: str) -> str:
        """What was typed, with every paste in its place. A mark that stands for nothing is left as it is."""
        if not self._kept:
            return text
        return _MARK.sub(self._paste, text)

    def _paste(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._kept[number - 1] if 0 < number <= len(self._kept) else mark[0]
