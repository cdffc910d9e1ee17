"""Parts that all renderings of Markdown share: a check that a rendering contains all text of its source,
apart from markup; lines that keep their indentation; and reference links.

A reference link is `[text][label]`, with the definition `[label]: address` in a line of its own. The
definition can follow in a later paragraph, and it stays visible. A first parser therefore collects the
definitions. A second parser, which treats them as text, renders the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MARKS = frozenset("\\`*_[]()<>#+-.!|~:=\"'")
"""Characters that Markdown uses as markup. Only a parser can decide whether such a character is markup or
text."""
_UNCHECKED = dict.fromkeys([*map(ord, MARKS), *(code for code in range(0x3001) if chr(code).isspace()), 0])
"""A table for `str.translate` that removes marks, all kinds of whitespace, and NUL."""

LABEL = "label"
"""A key in the `meta` of the token that ends a reference link. The value is the label in brackets, such as
`[1]`. The text token after it begins with this value."""
_DEFINITION = re.compile(r"\[[^\[\]\n]{1,999}\]:")


def has_same_text(source: str, rendered: str) -> bool:
    """Return whether a rendering of Markdown contains all characters of its source in the same order.
    Characters that can be markup are not compared. The rendering may contain additional characters."""
    source, rendered = source.translate(_UNCHECKED), rendered.translate(_UNCHECKED)
    if source == rendered:  # the usual case, quickly
        return True
    found = iter(rendered)
    return all(char in found for char in source)


def iterate_visible_texts(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the texts that an HTML rendering of the tokens shows, in source order. These include the numbers
    of list items and the targets of links."""
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


def collect_definitions(parser: MarkdownIt, text: str, environment: dict[str, Any]) -> dict[str, Any]:
    """Add the link definitions of a text to the environment of a parser, and return the environment. In
    `parser`, the rule `reference` must be enabled."""
    if "]:" in text:
        parser.parse(text, environment)
    return environment


def show_definitions(parser: MarkdownIt) -> None:
    """Make a parser show definitions as text. It then also shows the label of a link `[text][label]` after
    its text, so that the reader can find the definition."""
    from markdown_it.rules_inline import link

    def parse_link(state: StateInline, silent: bool) -> bool:
        start = state.pos
        if _is_definition(state.src, start) or not link(state, silent):
            return False
        label = state.src[start : state.pos].rpartition("][")[2]
        if not silent and label != "]" and state.src[start : state.pos].endswith(f"][{label}"):
            state.tokens[-1].meta = {LABEL: f"[{label}"}
            state.push("text", "", 0).content = f"[{label}"
        return True

    parser.disable("reference")
    parser.inline.ruler.at("link", parse_link)


def _is_definition(text: str, at: int) -> bool:
    return bool(_DEFINITION.match(text, at)) and not text[text.rfind("\n", 0, at) + 1 : at].strip()
