"""Markdown as it comes: which blocks of it are finished, so that they never have to be drawn again."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hermes.rendering_check import keep_indentation

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SHORT, LATER = 4_000, 1.25
"""A block that is longer than this is looked at again when it has grown by a quarter: all looks together stay cheap."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as the parser counts them: other characters that end lines elsewhere are text."""


class Blocks:
    """Takes text piece by piece. What it gives back is finished; `open` is what may still change."""

    def __init__(self) -> None:
        self.open = ""
        self._looked_at = 0

    def add(self, text: str) -> str:
        """More of the text; the blocks that it finished, or nothing."""
        self.open += text
        if "\n" not in text or len(self.open) < self._looked_at * LATER:  # a block ends with a line
            return ""
        line = _find_last_block(self.open)
        if line == 0:
            self._looked_at = len(self.open) if len(self.open) > SHORT else 0
            return ""
        self._looked_at = 0
        lines = _LINE.findall(self.open)
        self.open = "".join(lines[line:])
        return "".join(lines[:line])

    def take_rest(self) -> str:
        """The text has ended: what was open."""
        last, self.open = self.open, ""
        return last


def _find_last_block(text: str) -> int:
    """The line on which the last block at the top level begins; the one before it may only grow until then."""
    starts = [token.map[0] for token in make_parser().parse(text) if token.level == 0 and token.map]
    return starts[-1] if len(starts) > 1 else 0


@cache
def make_parser() -> MarkdownIt:
    """Reads the Markdown of answers: HTML, entities and definitions of link targets are text."""
    from hermes.chat.view.links import LinkParser

    parser = LinkParser("commonmark", {"html": False, "maxNesting": 60}).enable(["strikethrough", "table"])
    parser.disable(["reference", "html_block", "html_inline", "entity"])
    keep_indentation(parser)
    return parser
