"""The last lines of the screen, which are drawn again until they are finished. All else is written once.

A drawing is one write, between marks that tell the terminal to show it at once, so that nothing flickers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.segment import Segment

TOGETHER, SHOWN = "\x1b[?2026h", "\x1b[?2026l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
CLEAR_BELOW = "\x1b[J"


class Region:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: list[int] = []
        """Of the lines that are drawn, to know how many rows they take even if the window has become narrower."""

    def draw(self, *parts: RenderableType) -> None:
        """Show this in the place of what the region showed; of what is higher than the window, the end."""
        rows = max(1, self._console.size.height - 2)
        lines = self._render(parts)[-rows:]
        self._write(self._format_erasure() + HIDE_CURSOR + "".join(f"{line}\n" for line, _ in lines))
        self._widths = [width for _, width in lines]

    def commit(self, *parts: RenderableType) -> None:
        """Write this above; the region is empty then."""
        self._write(
            self._format_erasure() + "".join(f"{line}\n" for line, _ in self._render(parts)) + SHOW_CURSOR
        )
        self._widths = []

    def _render(self, parts: Sequence[RenderableType]) -> list[tuple[str, int]]:
        """Lines with their escapes, and how wide each is."""
        lines = [
            _trim(line)
            for part in parts
            for line in self._console.render_lines(part, pad=False, new_lines=False)
        ]
        return [
            ("".join(map(self._escape, line)), sum(piece.cell_length for piece in line)) for line in lines
        ]

    def _escape(self, segment: Segment) -> str:
        from rich.console import COLOR_SYSTEMS

        style, colours = segment.style, COLOR_SYSTEMS.get(self._console.color_system or "")
        if style is None or segment.control:
            return "" if segment.control else segment.text
        if self._console.no_color:
            style = style.without_color
        return style.render(segment.text, color_system=colours)

    def _format_erasure(self) -> str:
        """What takes the cursor to the region's first line and clears it."""
        width = max(1, self._console.size.width)
        rows = sum(max(1, -(-line // width)) for line in self._widths)
        return f"\x1b[{rows}F{CLEAR_BELOW}" if rows else ""

    def _write(self, text: str) -> None:
        self._console.file.write(f"{TOGETHER}{text}{SHOWN}")
        self._console.file.flush()


def _trim(line: list[Segment]) -> list[Segment]:
    """Without spaces at its end that nobody sees: in a window that becomes narrower they would be rows of their own."""
    segments = list(line)
    while segments and (segments[-1].style is None or segments[-1].style.bgcolor is None):
        last = segments.pop()
        text = last.text.rstrip(" ")
        if text:
            return [*segments, last._replace(text=text)]
    return segments
