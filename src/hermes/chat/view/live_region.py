"""The live region: the last lines of the screen, which are redrawn while an answer is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from rich.segment import Segment

BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
"""The escape sequences that begin and end a synchronised update, during which the terminal does not
redraw."""
BEGIN, END = "\x1b[?25l\x1b[?2004h", "\x1b[?25h\x1b[?2004l"
"""The escape sequences before and after the content of the region. `BEGIN` hides the cursor and turns on
bracketed paste. Without bracketed paste, each line of a paste would be a separate input. `END` reverts
both."""
CLEAR_BELOW = "\x1b[J"


class Region:
    """The live region: the last lines of the screen, redrawn until they are finished. All other output is
    written once.

    The region is redrawn in one write within a synchronised update, so that nothing flickers.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: list[int] = []
        """The widths of the drawn lines. The number of screen rows is computed from them, because the window
        can become narrower after the drawing."""

    def draw(self, *parts: RenderableType) -> None:
        """Replace the content of the region. If the content is taller than the window, only its end is
        shown."""
        self.commit((), parts)

    def commit(self, finished: Sequence[RenderableType], open_parts: Sequence[RenderableType] = ()) -> None:
        """Write the parts `finished` permanently above the region. Then replace the content of the region by
        `open_parts`."""
        rows = max(1, self._console.size.height - 2)
        lines = self._render(open_parts)[-rows:]
        written = "".join(f"{line}\n" for line, _ in (*self._render(finished), *lines))
        mode = BEGIN if lines else END if self._widths else ""
        self._write(f"{self._format_erasure()}{written}{mode}")
        self._widths = [width for _, width in lines]

    def _render(self, parts: Sequence[RenderableType]) -> list[tuple[str, int]]:
        """Return the rendered lines with their escape sequences, and the width of each line in columns."""
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
        """Return the escape sequence that moves to the first line of the region and clears the region."""
        width = max(1, self._console.size.width)
        rows = sum(max(1, -(-line // width)) for line in self._widths)
        return f"\x1b[{rows}F{CLEAR_BELOW}" if rows else ""

    def _write(self, text: str) -> None:
        self._console.file.write(f"{BEGIN_UPDATE}{text}{END_UPDATE}")
        self._console.file.flush()


def _trim(line: list[Segment]) -> list[Segment]:
    """Remove invisible spaces at the end of a line. In a narrower window they would wrap to extra rows."""
    segments = list(line)
    while segments and (segments[-1].style is None or segments[-1].style.bgcolor is None):
        last = segments.pop()
        text = last.text.rstrip(" ")
        if text:
            return [*segments, last._replace(text=text)]
    return segments
