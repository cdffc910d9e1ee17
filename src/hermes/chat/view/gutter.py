"""Text from outside behind a mark in the left margin, wrapped below itself, and folded where it is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hermes.text import format_count

OPEN_HINT = "Ctrl-O opens"
OUTSIDE = "│"
INDENT, MARGIN = 2, 4
TAB = 4


class Line(NamedTuple):
    mark: str
    text: str
    style: str = ""


class Gutter:
    """Lines with their marks. Wrapped rows stay behind the margin, so that no text can pass for a mark."""

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
    """None stands for the lines that were left out."""
    left_out: int
    is_cut: bool
    """Whether a line is shown in part."""

    @property
    def is_folded(self) -> bool:
        return self.left_out > 0 or self.is_cut

    @property
    def hint(self) -> str:
        reason = format_count(self.left_out, "more line") if self.left_out else "long lines are cut"
        return f"… {reason} ({OPEN_HINT})"


def fold(lines: Sequence[str], head: int, tail: int, longest: int) -> Folded:
    """The first and the last lines, if there are more than both and one; each line with at most so many characters."""
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
    """The beginning and the end of a line that is too long, and how much was left out between."""
    if len(line) <= longest:
        return line
    head, tail = longest * 2 // 3, longest - longest * 2 // 3
    return f"{line[:head]} [… {len(line) - head - tail:,} characters …] {line[len(line) - tail :]}"
