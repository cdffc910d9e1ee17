"""Incremental Markdown: finds the finished blocks of a text stream, so that each block is drawn only once."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hermes.rendering_check import keep_indentation, show_definitions

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

SHORT, LATER = 4_000, 1.25
"""An unfinished block longer than SHORT is parsed again only when it has grown by a quarter. This keeps the
total parsing time linear."""

_REFERENCE = re.compile(r"\]\[([^\[\]\n]+)\]")
"""Matches the second half of a reference link such as `[text][1]`, and captures the label. A block with such
a link stays open until the definition of the label arrives, unless the open text reaches the length SHORT."""
_DEFINITION = re.compile(r"^[ >]*\[([^\[\]\n]+)\]:", re.MULTILINE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as the parser defines it. Other Unicode line separators are part of the text."""


class Blocks:
    """Splits a text stream into finished blocks. `open` is the part that may still change."""

    def __init__(self) -> None:
        self.open = ""
        self._looked_at = 0
        self._defined: set[str] = set()
        """The labels of the link definitions so far, in lower case."""

    def add(self, text: str) -> str:
        """Add text to the stream. Return the blocks that are finished now, or an empty string."""
        self.open += text
        if "\n" not in text or len(self.open) < self._looked_at * LATER:  # a block ends at a line end
            return ""
        line = _find_last_block(self.open)
        if line == 0:
            self._looked_at = len(self.open) if len(self.open) > SHORT else 0
            return ""
        self._looked_at = 0
        lines = _LINE.findall(self.open)
        finished = "".join(lines[:line])
        if len(self.open) < SHORT and self._has_undefined(finished):
            return ""
        self.open = "".join(lines[line:])
        return finished

    def _has_undefined(self, text: str) -> bool:
        """Return whether the text contains a Markdown reference link whose definition may still follow in the
        stream."""
        self._defined.update(map(str.casefold, _DEFINITION.findall(text)))
        return not self._defined.issuperset(map(str.casefold, _REFERENCE.findall(text)))

    def take_rest(self) -> str:
        """Return the part of the stream that is still open. Call this at the end of the stream."""
        last, self.open = self.open, ""
        return last


def _find_last_block(text: str) -> int:
    """Return the line on which the last top-level block begins. All blocks before it are finished."""
    starts = [token.map[0] for token in make_parser().parse(text) if token.level == 0 and token.map]
    return starts[-1] if len(starts) > 1 else 0


@cache
def make_parser() -> MarkdownIt:
    """Return the parser for answers. HTML, entities and link reference definitions are shown as text."""
    parser = _make_base()
    show_definitions(parser)
    keep_indentation(parser)
    return parser


@cache
def make_definition_parser() -> MarkdownIt:
    """Return a parser that only finds link reference definitions."""
    return _make_base().disable("inline")


def _make_base() -> MarkdownIt:
    from hermes.chat.view.links import LinkParser

    parser = LinkParser("commonmark", {"html": False, "maxNesting": 60}).enable(["strikethrough", "table"])
    return parser.disable(["html_block", "html_inline", "entity"])
