"""Markdown on a terminal, drawn by rich without any loss of text.

HTML, entities and link reference definitions are shown as text. A reference link leads to the address of its
definition, if the definition is known when the link is drawn. Each source line is a line on the screen. A
block that the parser would shorten (surplus table cells, very deep nesting) is shown as source text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from markdown_it.token import Token
from rich import box, markdown
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hermes.chat.view.links import append_targets
from hermes.chat.view.markdown_blocks import make_definition_parser, make_parser
from hermes.rendering_check import collect_definitions, has_same_text

if TYPE_CHECKING:
    from rich.markdown import Markdown, MarkdownElement

NARROWEST = 16
"""The minimum width of a list item or quote, in terminal cells. Deeper levels that would be narrower are not
indented further."""
CELLS_PER_COLUMN = 8
"""The minimum number of terminal cells per table column. A table with less room is shown row by row."""


def make_markdown(
    text: str, *, clickable: bool = True, definitions: dict[str, Any] | None = None
) -> Markdown:
    """Return Markdown for a terminal. Links show their targets. The text must be escaped already.

    `clickable` is whether the terminal supports links. `definitions` are the link definitions of the text
    before this one; those of this text are added.
    """
    environment = {} if definitions is None else definitions
    tokens = make_parser().parse(text, collect_definitions(make_definition_parser(), text, environment))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for token in tokens:
        if token.children:
            token.children = list(_add_breaks(append_targets(token.children, clickable=clickable)))
    view = _View("")
    view.parsed = [token for block in _split_blocks(tokens) for token in _keep_source(block, lines)]
    return view


def _add_breaks(tokens: Iterator[Token]) -> Iterator[Token]:
    for token in tokens:
        yield Token("hardbreak", "br", 0) if token.type == "softbreak" else token


def _split_blocks(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each top-level block."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield block
            block = []
    if block:
        yield block


def _keep_source(block: list[Token], lines: Sequence[str]) -> list[Token]:
    """Return the tokens of a Markdown block. If the parsed block lacks some of its source text, return tokens
    that show its source lines as plain text instead. `lines` are the source lines of the whole document."""
    first, end = block[0].map or (0, 0)
    source = "\n".join(lines[first:end])
    if has_same_text(source, "".join(_iterate_texts(block))):
        return block
    children: list[Token] = []
    for line in lines[first:end]:
        children += [Token("text", "", 0, content=line), Token("hardbreak", "br", 0)]
    return [
        Token("paragraph_open", "p", 1),
        Token("inline", "", 0, children=children[:-1]),
        Token("paragraph_close", "p", -1),
    ]


def _iterate_texts(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the texts in the tokens that are drawn on the screen, in source order."""
    for token in tokens:
        if token.type in ("fence", "list_item_open"):
            yield token.info
        if token.children is not None:
            yield from _iterate_texts(token.children)
        else:
            yield token.content
        yield str(token.meta.get("target", ""))


# How rich draws blocks


class _CodeBlock(markdown.CodeBlock):
    """A code block below its info string (the language and any other text after the fence)."""

    info = ""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _CodeBlock:
        words = token.info.split()
        block = cls(words[0] if words else "text", markdown.code_theme)
        block.info = token.info.strip()
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.info:
            yield Text(f" {self.info}", "dim")
        code = str(self.text)
        if cell_len(code) != sum(map(cell_len, code)):
            # Syntax highlighting would split characters that are drawn as one. Rich would count their widths
            # separately and cut them.
            self.lexer_name = "text"
        yield from super().__rich_console__(console, options)


class _Quote(markdown.BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= NARROWEST + 4:
            yield from super().__rich_console__(console, options)
            return
        for line in console.render_lines(self.elements, options, style=self.style):
            yield from line
            yield Segment("\n")


class _Item(markdown.ListItem):
    number = ""
    """The number as written; empty in a bullet list."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _Item:
        item = cls()
        item.number = token.info
        return item

    def render(self, console: Console, options: ConsoleOptions, width: int) -> RenderResult:
        """Render the list item after its number or bullet. The number or bullet takes `width` columns,
        including the spaces around it."""
        kind = "number" if self.number else "bullet"
        style = console.get_style(f"markdown.item.{kind}", default="none")
        mark = f"{self.number or '•':>{width - 1}} "
        is_indented = options.max_width - width >= NARROWEST
        inner = options.update(width=options.max_width - width) if is_indented else options
        if not is_indented:
            yield Segment(f"{mark}\n", style)
        for line in console.render_lines(self.elements, inner, style=self.style):
            if is_indented:
                yield Segment(mark, style)
                mark = " " * width
            yield from line
            yield Segment("\n")


class _List(markdown.ListElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        items = [item for item in self.items if isinstance(item, _Item)]
        width = max((len(item.number or "•") for item in items), default=1) + 2
        for item in items:
            yield from item.render(console, options, width)


class _Table(markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self.header.row.cells if self.header is not None and self.header.row is not None else []
        rows = [row.cells for row in self.body.rows] if self.body is not None else []
        if options.max_width < CELLS_PER_COLUMN * len(head):
            for cells in (head, *rows):
                yield Text(" | ").join(cell.content for cell in cells)
            return
        table = Table(
            box=box.SIMPLE,
            pad_edge=False,
            style="markdown.table.border",
            collapse_padding=True,
            header_style="markdown.table.header",
        )
        for cell in head:
            table.add_column(cell.content, overflow="fold")
        for cells in rows:
            table.add_row(*(cell.content for cell in cells))
        yield table


class _View(markdown.Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "blockquote_open": _Quote,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
        "list_item_open": _Item,
        "table_open": _Table,
    }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render Markdown without the empty lines that rich adds around tables, lists and quotes. The caller
        adds the spacing."""
        lines = list(Segment.split_lines(console.render(_Untrimmed(self), options)))
        while lines and _is_empty(lines[0]):
            del lines[0]
        while lines and _is_empty(lines[-1]):
            del lines[-1]
        for line in lines:
            yield from line
            yield Segment.line()


class _Untrimmed:
    def __init__(self, view: _View) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return markdown.Markdown.__rich_console__(self._view, console, options)


def _is_empty(line: Sequence[Segment]) -> bool:
    """Return whether a rendered line has neither text nor a background colour."""
    return all(
        not segment.text.strip() and (segment.style is None or segment.style.bgcolor is None)
        for segment in line
    )
