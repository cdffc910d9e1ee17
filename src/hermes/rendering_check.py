"""Check that a rendering of Markdown contains all text of its source, apart from Markdown markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MARKS = frozenset("\\`*_[]()<>#+-.!|~:=\"'")
"""Characters that Markdown uses as markup. Only a parser can decide whether such a character is markup or
text."""
_UNCHECKED = dict.fromkeys([*map(ord, MARKS), *(code for code in range(0x3001) if chr(code).isspace()), 0])
"""A table for `str.translate` that removes marks, all kinds of whitespace, and NUL."""


def has_same_text(source: str, rendered: str) -> bool:
    """Return whether all characters that cannot be markup occur in the rendering in the same order."""
    source, rendered = source.translate(_UNCHECKED), rendered.translate(_UNCHECKED)
    if source == rendered:  # the usual case, quickly
        return True
    found = iter(rendered)
    return all(char in found for char in source)


def iterate_visible_texts(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the texts that an HTML rendering of the tokens shows, in source order. These include the numbers of
    list items and the targets of links."""
    numbers: list[int | None] = []
    targets: list[str] = []
    for token in tokens:
        match token.type:
            case "ordered_list_open" | "bullet_list_open":
                numbers.append(int(token.attrs.get("start", 1)) if token.tag == "ol" else None)
            case "ordered_list_close" | "bullet_list_close":
                numbers.pop()
            case "list_item_open" if (number := numbers[-1]) is not None:
                yield str(number)
                numbers[-1] = number + 1
            case "fence":
                yield token.info
            case "link_open":
                targets.append(f"{token.attrs.get('href', '')}{token.attrs.get('title', '')}")
            case "link_close":
                yield targets.pop()
        yield "".join(iterate_visible_texts(token.children)) if token.children is not None else token.content


def keep_indentation(parser: MarkdownIt, space: str = " ") -> None:
    """Make a parser keep the leading spaces of the second and later lines of a paragraph, so that XML stays
    readable.

    `space` is put in place of each leading space, for a rendering that drops plain leading spaces.
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
