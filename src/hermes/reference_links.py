"""Reference links in Markdown: `[text][label]`, with the definition `[label]: address` in a line of its own.

The definition can follow in a later paragraph, and it stays visible. The definitions are therefore collected
by a first parser. A second one, which treats them as text, renders.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

LABEL = "label"
"""The key of a label in the `meta` of the token that ends a reference link. The text after it begins with the label."""

_DEFINITION = re.compile(r"\[[^\[\]\n]{1,999}\]:")


def collect_definitions(parser: MarkdownIt, text: str, environment: dict[str, Any]) -> dict[str, Any]:
    """Add the link definitions of a text to the environment of a parser, and return the environment. `parser` must
    not leave out the rule `reference`."""
    if "]:" in text:
        parser.parse(text, environment)
    return environment


def show_definitions(parser: MarkdownIt) -> None:
    """Make a parser show definitions as text, and the label of `[text][label]` after its text, because the label
    names the definition."""
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
