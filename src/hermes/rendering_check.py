"""Check that a rendering of Markdown contains all text of its source, apart from Markdown markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

MARKS = frozenset("\\`*_[]()<>#+-.!|~:=\"'")
"""Characters that Markdown uses as markup. Only a parser can decide whether one of them is markup or text."""


def has_same_text(source: str, rendered: str) -> bool:
    """Return whether all characters that cannot be markup occur in the rendering in the same order."""
    found = iter(rendered)
    return all(char in found for char in source if char not in MARKS and not char.isspace() and char != "\0")


def keep_indentation(parser: MarkdownIt, space: str = " ") -> None:
    """Make a parser keep the leading spaces of the further lines of a paragraph, so that XML stays readable.

    `space` replaces a leading space if the rendering would drop a plain one.
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
