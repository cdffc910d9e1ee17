"""Render the Markdown of a message as HTML: lists, tables, quotes, links, emphasis and code.

The text can be hostile. No text becomes a tag: HTML in it is shown as typed. A link can lead only to the web
or to a mail address; a link with any other target is shown as typed. If the text of a link names another
address, the target is shown after the link. Link reference definitions work and stay visible. Pictures become
links. The HTML contains no `style` attribute, because the policy of the page forbids it. No text is lost: a
block that the parser would shorten is shown as typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from hermes.rendering_check import (
    collect_definitions,
    has_same_text,
    iterate_visible_texts,
    keep_indentation,
    show_definitions,
)
from hermes.text import names_another_host, show_target, spell_controls

MOST_NESTING = 60

_TARGET = re.compile(r"https?://|mailto:", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s<>\"'`|\\\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]+", re.IGNORECASE)
"""An address in running text. Characters of scripts that do not put spaces between words end the address."""
_AFTER_ADDRESS = ".,;:!?*_~"
"""Punctuation at the end of an address. It belongs to the sentence, not to the address."""
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_MARKUP = re.compile(r"[\\`*_\[<>#|~]|://|(?m:^[ \t]*(?:[-+=]|\d{1,9}[.)])|^(?:\t| {2,}))")
"""Matches a text that may contain Markdown. Other texts are not parsed, which saves much time."""
_NEEDS: dict[str, Callable[[str], object]] = {
    "table": lambda text: "|" in text,
    "fence": lambda text: "```" in text or "~~~" in text,
    "blockquote": lambda text: ">" in text,
    "heading": lambda text: "#" in text,
    "lheading": re.compile(r"[-=][ \t]*(?:\n|\Z)").search,
    "hr": re.compile(r"([-*_])[ \t]*\1[ \t]*\1").search,
    "list": re.compile(r"(?:[-+*]|\d[.)])(?:\s|\Z)").search,
}
"""For rules that the parser tries at each line: a test whether the rule can apply anywhere in a text. A rule
that cannot apply is disabled for that text, which saves time."""
_PLAIN = re.compile(r"[^\n\\`~*_\[\]<!&]*")
"""Matches the text of a block that needs no parsing, because it has one line and no marks."""
_PARAGRAPHS = re.compile(r"\n(?:[ \t]*\n)+")
_EMPTY_START = re.compile(r"\A(?:[ \t]*\n)+")


def render_text(text: str) -> str:
    """Return the HTML of a Markdown text."""
    text = spell_controls(text)
    if not _MARKUP.search(text):
        parts = _PARAGRAPHS.split(_EMPTY_START.sub("", text).rstrip())
        return "".join(_render_lines(part.split("\n")) for part in parts if part)
    parser = _get_parser(tuple(rule for rule, needed in _NEEDS.items() if not needed(text)))
    lines = text.split("\n")
    tokens: list[Token] = []
    html = ""
    for token in parser.parse(text, collect_definitions(_get_definition_parser(), text, {})):
        tokens.append(token)
        if token.level == 0 and token.nesting <= 0 and token.type != "inline":
            html += _render_block(parser, tokens, lines)
            tokens = []
    return html


def _render_block(parser: MarkdownIt, block: list[Token], lines: Sequence[str]) -> str:
    """Return the HTML of one top-level Markdown block. If some of its text would be missing in the HTML, return
    its source lines as text instead."""
    first, end = block[0].map or (0, 0)
    if not has_same_text("\n".join(lines[first:end]), "".join(iterate_visible_texts(block))):
        return _render_lines(lines[first:end])
    for token in block:
        if token.type == "paragraph_open" or token.type == "paragraph_close":
            token.hidden = False  # every line of text is in a paragraph, which keeps its spaces
        if token.children:
            token.children = list(_link_addresses(token.children))
    html: str = parser.renderer.render(block, parser.options, {})
    return html


def _render_lines(lines: Sequence[str]) -> str:
    return f"<p>{'<br>'.join(escape(line.rstrip()) for line in lines)}</p>\n"


def _link_addresses(children: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a line of text. Addresses in the text become links. If the text of a link names
    another address, the target is inserted after the link."""
    depth, target, shown = 0, "", ""
    for token in children:
        if token.type == "link_open":
            target, shown = str(token.attrs.get("href", "")), ""
        shown += " " if token.type == "softbreak" else token.content
        depth += token.nesting if token.type in ("link_open", "link_close") else 0
        if token.type == "link_close" and names_another_host(shown, target):
            yield token
            yield Token("text", "", 0, content=f" ({show_target(target)})")
            continue
        if token.type != "text" or depth or "://" not in token.content:
            yield token
            continue
        at = 0
        for found in _ADDRESS.finditer(token.content):
            address = _trim_address(found[0])
            yield Token("text", "", 0, content=token.content[at : found.start()])
            yield Token("link_open", "a", 1, attrs={"href": address})
            yield Token("text", "", 0, content=address)
            yield Token("link_close", "a", -1)
            at = found.start() + len(address)
        yield Token("text", "", 0, content=token.content[at:])


def _trim_address(address: str) -> str:
    """Return the address without the punctuation at its end, and without a closing bracket whose partner is
    outside the address."""
    while address:
        last = address[-1]
        opening = _BRACKETS.get(last)
        if last not in _AFTER_ADDRESS and (opening is None or address.count(opening) >= address.count(last)):
            break
        address = address[:-1]
    return address


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - its name in the library
        return _TARGET.match(url) is not None

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - its name in the library
        """Return the target of a link unchanged. The browser that shows the page will encode it."""
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802 - its name in the library
        return link


class _Renderer(RendererHTML):
    """The HTML renderer of markdown-it, with our own headings, links, tables, code blocks and line breaks."""

    def heading_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return f"<{_get_heading(tokens[at])}>"

    def heading_close(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return f"</{_get_heading(tokens[at])}>\n"

    def link_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        attributes = tokens[at].attrs | {"target": "_blank", "rel": "noopener"}
        written = (f' {name}="{escape(str(value))}"' for name, value in attributes.items())
        return f"<a{''.join(written)}>"

    def table_open(self, *_: Any) -> str:
        return '<div class="table"><table>\n'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return _open_cell(tokens[at])

    def td_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return _open_cell(tokens[at])

    def fence(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        info = tokens[at].info.strip()
        label = f' data-language="{escape(info)}"' if info else ""
        return f"<pre{label}><code>{escape(tokens[at].content)}</code></pre>\n"

    def code_block(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return f"<pre><code>{escape(tokens[at].content)}</code></pre>\n"

    def code_inline(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return f"<code>{escape(tokens[at].content)}</code>"

    def text(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return escape(tokens[at].content)

    def hardbreak(self, *_: Any) -> str:
        return "<br>"

    def softbreak(self, *_: Any) -> str:
        return "<br>"

    def hr(self, *_: Any) -> str:
        return "<hr>\n"


def _get_heading(token: Token) -> str:
    """Return the tag of a heading. Headings start at the third level, because the page itself uses the first
    two."""
    return f"h{min(int(token.tag[1:]) + 2, 6)}"


def _open_cell(token: Token) -> str:
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{align}">' if align in ("left", "center", "right") else f"<{token.tag}>"


def _parse_inline(state: StateCore) -> None:
    """Parse the text of each Markdown block into tokens. A text that matches `_PLAIN` has no markup and becomes
    a single token without parsing."""
    for token in state.tokens:
        if token.type == "inline" and _PLAIN.fullmatch(token.content):
            token.children = [Token("text", "", 0, content=token.content)] if token.content else []
        elif token.type == "inline":
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)


@cache
def _get_parser(unused: tuple[str, ...] = ()) -> MarkdownIt:
    """Return the Markdown parser for messages. `unused` are the names of the parser's rules that are turned
    off."""
    parser = _make_parser().disable(["html_block", "html_inline", *unused])  # HTML is shown as typed
    parser.core.ruler.at("inline", _parse_inline)
    show_definitions(parser)
    keep_indentation(parser)
    return parser


@cache
def _get_definition_parser() -> MarkdownIt:
    return _make_parser().disable("inline")


def _make_parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"html": False, "maxNesting": MOST_NESTING}, renderer_cls=_Renderer)
    return parser.enable(["table", "strikethrough"]).disable(["image", "entity"])
