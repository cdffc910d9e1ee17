"""Unified diffs in colour: added lines are green, removed lines red. Without colour, `+` and `-` mark the
lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from hermes.chat.view.diffs import Kind, classify_lines
from hermes.chat.view.gutter import FOREIGN_MARK, Gutter, Line, cut_middle
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from rich.console import RenderableType

LONGEST_LINE = 1_000
STYLES = {
    Kind.FILE: "bold",
    Kind.HUNK: "cyan",
    Kind.ADDED: "green",
    Kind.REMOVED: "red",
    Kind.CONTEXT: "dim",
}


def render_diff(
    diff: str, *, heading: str = "", most_lines: int | None = None, hint: str = ""
) -> RenderableType:
    """Render a unified diff, escaped for a terminal.

    `heading` is the path of the changed file. With `most_lines`, only that many lines are shown, followed by
    the number of omitted lines and `hint`.
    """
    lines = [Line(FOREIGN_MARK, line, STYLES[kind]) for kind, line in classify_lines(diff)]
    if most_lines is not None:
        left_out = len(lines) - most_lines
        if left_out > 1:
            hint_line = f"… {format_count(left_out, 'more line')}{f' ({hint})' if hint else ''}"
            lines = [*lines[:most_lines], Line(FOREIGN_MARK, hint_line, "dim")]
        lines = [line._replace(text=cut_middle(line.text, LONGEST_LINE)) for line in lines]
    parts: list[RenderableType] = [Text(make_printable(heading), "bold")] if heading else []
    return Group(*parts, *([Gutter(lines)] if lines else []))


def is_folded(diff: str, most_lines: int) -> bool:
    """Return whether `render_diff` omits a part of the diff."""
    lines = diff.splitlines()
    return len(lines) > most_lines + 1 or any(len(line) > LONGEST_LINE for line in lines)
