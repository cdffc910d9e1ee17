"""Whether a rendering of Markdown says all that its source says, apart from the marks of Markdown itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

MARKS = frozenset("\\`*_[]()<>#+-.!|~:=\"'")
"""What Markdown uses as marks. Whether one of them was a mark or text only a parser can tell."""


def has_same_text(source: str, rendered: str) -> bool:
    """Whether all that can be no mark (letters, digits, most signs) is in the rendering, in its order."""
    found = iter(rendered)
    return all(char in found for char in source if char not in MARKS and not char.isspace() and char != "\0")


def keep_indentation(parser: MarkdownIt, space: str = " ") -> None:
    """Make a parser keep the spaces at the beginning of the further lines of a paragraph: XML is read by them.

    `space` stands for one of them, where the rendering would drop a plain one.
    """
    from markdown_it.rules_inline import newline

    def break_line(state: StateInline, silent: bool) -> bool:
        at = state.pos
        if not newline(state, silent):
            return False
        if not silent:
            state.pending += state.src[at + 1 : state.pos].expandtabs(4).replace(" ", space)
        return True

    parser.inline.ruler.at("newline", break_line)
