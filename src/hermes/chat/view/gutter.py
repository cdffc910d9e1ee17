"""Prints text from models and tools after a mark in the left margin. The text is wrapped within its column,
and folded if it is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hermes.text import format_count

OPEN_HINT = "Ctrl-O opens"
FOREIGN_MARK = "│"
"""The mark in the left margin of text from models and tools."""
INDENT, MARGIN = 2, 4
"""The space before the mark, and the whole width of the margin with the mark."""
TAB = 4


class Line(NamedTuple):
    mark: str
    text: str
    style: str = ""


class Gutter:
    """Renders lines, each after its mark in the left margin. If a line is wrapped, its further rows also stay
    to the right of the margin, so that no text can imitate a mark."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - MARGIN)
        for line in self._lines:
            mark = f"{' ' * INDENT}{line.mark:<{MARGIN - INDENT}}"
            text = Text(line.text, line.style)
            for row in text.wrap(console, width, overflow="fold", tab_size=TAB) or [Text()]:
                yield Text.assemble((mark, "dim"), row)
                mark = " " * MARGIN


class Folded(NamedTuple):
    lines: list[str | None]
    """The lines to show. None stands for the omitted lines."""
    left_out: int
    is_cut: bool
    """Whether a line was cut."""

    @property
    def is_folded(self) -> bool:
        return self.left_out > 0 or self.is_cut

    @property
    def hint(self) -> str:
        reason = format_count(self.left_out, "more line") if self.left_out else "long lines are cut"
        return f"… {reason} ({OPEN_HINT})"


def fold(lines: Sequence[str], head: int, tail: int, longest: int) -> Folded:
    """Keep the first `head` and the last `tail` of the lines, and omit those between them. If only one line
    would be omitted, keep it.

    Each kept line is cut to `longest` characters.
    """
    left_out = len(lines) - head - tail
    visible: list[str | None] = list(lines)
    if left_out > 1:
        visible = [*lines[:head], None, *lines[len(lines) - tail :]]
    else:
        left_out = 0
    cut = [line if line is None else cut_middle(line, longest) for line in visible]
    is_cut = cut != visible
    if is_cut and not left_out:
        cut.append(None)
    return Folded(cut, left_out, is_cut)


def cut_middle(line: str, longest: int) -> str:
    """Cut the middle out of a long line, and insert the number of omitted characters."""
    if len(line) <= longest:
        return line
    head, tail = longest * 2 // 3, longest - longest * 2 // 3
    return f"{line[:head]} [… {len(line) - head - tail:,} characters …] {line[len(line) - tail :]}"
