"""Renders Markdown as Telegram HTML. The output has only supported tags, which are balanced. All other text is escaped.
No text is lost. If rendering would drop text, such as a surplus table cell, the Markdown source is shown instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape, unescape
from typing import NamedTuple
from unicodedata import combining, east_asian_width

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from hermes.rendering_check import has_same_text, keep_indentation
from hermes.text import replace_surrogates

LONGEST = 4096
"""Maximum visible length of a message, in UTF-16 code units."""

_TAGS = {"strong": "b", "em": "i", "s": "s"}
_LINKED = ("http://", "https://", "tg://")
_LINK_TAG = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
_LANGUAGE_TAG = re.compile(r'<code class="language-([^"]*)">')
_TAG = re.compile(r"<[^<>]*>")
_LINE_END = re.compile(r"\r\n?|\n")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]+")
_BARS = re.compile(r"\|\|")
_SPOILER_TAG = re.compile("</?tg-spoiler>")


def count_units(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Telegram counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def render_html(markdown: str) -> str:
    """Render Markdown as Telegram HTML, or return it escaped if rendering would lose text."""
    markdown = replace_surrogates(markdown)
    html = _Writer(markdown).write()
    return (
        html if visible_text(html).strip() and _is_complete(html, markdown) else escape(markdown, quote=False)
    )


def visible_text(html: str) -> str:
    """Return the visible text of Telegram HTML."""
    return unescape(_TAG.sub("", html))


def _is_complete(html: str, source: str) -> bool:
    """Return whether `html` contains all text of `source`, the Markdown from which it was rendered. For a link,
    both its text and its address must be there."""
    return has_same_text(source, visible_text(_LANGUAGE_TAG.sub(r"\1", _LINK_TAG.sub(r"\2 \1", html))))


class _Mark(NamedTuple):
    """The characters `||` in a text. They may open or close a spoiler."""

    opens: bool
    closes: bool


class _Writer:
    """Renders one Markdown text as Telegram HTML. It keeps a list of the open tags, because Telegram does not allow
    a tag inside a tag of the same kind."""

    def __init__(self, markdown: str) -> None:
        self._lines = _LINE_END.split(markdown)
        self._root = SyntaxTreeNode(_make_parser().parse(markdown))
        self._open: list[str] = []

    def write(self) -> str:
        return self._render_blocks(self._root.children)

    def _render_blocks(self, nodes: Iterable[SyntaxTreeNode], between: str = "\n\n", depth: int = 0) -> str:
        blocks = [self._render_block(node, depth) for node in nodes]
        return between.join(block for block in blocks if block)

    def _render_block(self, node: SyntaxTreeNode, depth: int) -> str:
        match node.type:
            case "bullet_list" | "ordered_list":
                return self._render_list(node, depth)
            case "blockquote":
                return self._wrap("blockquote", lambda: self._render_blocks(node.children))
            case "fence" | "code_block":
                return _format_code(node.content, node.info)
            case "hr":
                return "———"
            case "table":
                return self._render_table(node)
            case "heading":
                return self._wrap("b", lambda: self._render_blocks(node.children))
            case "inline":
                return self._render_inline(node.children)
            case _:  # a paragraph
                return self._render_blocks(node.children)

    def _render_list(self, node: SyntaxTreeNode, depth: int) -> str:
        items = []
        for item in node.children:
            sign = f"{item.info}{item.markup}" if node.type == "ordered_list" else "•"
            text = self._render_blocks(item.children, "\n", depth + 1)
            items.append(f"{'   ' * depth}{sign} {text}")
        return "\n".join(items)

    def _render_table(self, node: SyntaxTreeNode) -> str:
        rows = [
            [_plain_text(cell) for cell in row.children] for part in node.children for row in part.children
        ]
        widths = [max(map(_measure_cells, column)) for column in zip(*rows, strict=True)]
        lines = [_format_columns(row, widths) for row in rows]
        table = "\n".join([lines[0], "─" * max(map(_measure_cells, lines)), *lines[1:]])
        first, end = node.map or (0, 0)
        source = "\n".join(self._lines[first:end])
        return _format_code(table if has_same_text(source, table) else source)

    def _render_inline(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        pieces: list[str | _Mark] = []
        for node in nodes:
            if node.type == "text":
                pieces += _split_marks(node.content)
            else:
                pieces.append(self._render_span(node))
        return _join_spoilers(pieces)

    def _render_span(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "softbreak" | "hardbreak":
                return "\n"
            case "code_inline":
                text = escape(node.content, quote=False)
                return text if "a" in self._open else f"<code>{text}</code>"
            case "link":
                return self._render_link(node, str(node.attrs["href"]))
            case "image":
                return self._render_link(node, str(node.attrs["src"]))
            case _:
                return self._wrap(_TAGS[node.type], lambda: self._render_inline(node.children))

    def _render_link(self, node: SyntaxTreeNode, url: str) -> str:
        title = node.attrs.get("title")
        after = f" ({escape(str(title), quote=False)})" if title else ""
        if not url.lower().startswith(_LINKED) or "a" in self._open:
            text = self._render_inline(node.children)
            address = "" if text and url.endswith(visible_text(text)) else f" ({escape(url, quote=False)})"
            return f"{text}{address}{after}".lstrip()
        self._open.append("a")
        text = self._render_inline(node.children)
        self._open.pop()
        return f'<a href="{escape(url)}">{text or escape(url, quote=False)}</a>{after}'

    def _wrap(self, tag: str, write: Callable[[], str]) -> str:
        if tag in self._open:
            return write()
        self._open.append(tag)
        inner = write()
        self._open.pop()
        return f"<{tag}>{inner}</{tag}>" if inner else ""


class _Parser(MarkdownIt):
    def normalizeLink(self, url: str) -> str:  # noqa: N802 - its name in the library
        """Return the URL unchanged, because Telegram encodes URLs itself."""
        return url


@cache
def _make_parser() -> MarkdownIt:
    # HTML and entities are plain text. `reference` is off because a link definition would not be shown.
    parser = _Parser("commonmark", {"html": False, "maxNesting": 100})
    parser.enable(["table", "strikethrough"]).disable(["reference", "html_block", "html_inline", "entity"])
    keep_indentation(parser)
    return parser


def _split_marks(text: str) -> list[str | _Mark]:
    pieces: list[str | _Mark] = []
    start = 0
    for match in _BARS.finditer(text):
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        pieces.append(escape(text[start : match.start()], quote=False))
        pieces.append(_Mark(opens=not after.isspace(), closes=not before.isspace()))
        start = match.end()
    return [*pieces, escape(text[start:], quote=False)]


def _join_spoilers(pieces: Sequence[str | _Mark]) -> str:
    """Join rendered pieces of a text. Text between an opening and a closing `||` becomes a spoiler. Any other `||`
    stays as it is."""
    parts: list[str] = []
    start: int | None = None
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(piece)
        elif start is not None and piece.closes and (hidden := "".join(parts[start + 1 :])):
            parts[start:] = [f"<tg-spoiler>{_SPOILER_TAG.sub('', hidden)}</tg-spoiler>"]
            start = None
        else:
            if start is None and piece.opens:
                start = len(parts)
            parts.append("||")
    return "".join(parts)


def _format_code(content: str, info: str = "") -> str:
    """Format a code block. Info text that follows the language is shown above the block."""
    language, _, rest = info.strip().partition(" ")
    if not _LANGUAGE.fullmatch(language):
        language, rest = "", info.strip()
    text = escape(content.removesuffix("\n"), quote=False)
    above = f"{escape(info.strip(), quote=False)}\n" if rest else ""
    if not language:
        return f"{above}<pre>{text}</pre>"
    return f'{above}<pre><code class="language-{language}">{text}</code></pre>'


def _plain_text(node: SyntaxTreeNode) -> str:
    if node.type in ("softbreak", "hardbreak"):
        return " "
    own = node.content if node.type in ("text", "code_inline") else ""
    return own + "".join(map(_plain_text, node.children))


def _format_columns(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell + " " * (width - _measure_cells(cell)) for cell, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


def _measure_cells(text: str) -> int:
    """Return the width of a text in a monospaced font, in columns."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
