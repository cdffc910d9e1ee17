"""The status below a running answer: the elapsed time, how to stop, and the text that is typed meanwhile.

Each line takes one row of the screen. A line that does not fit is cut at its end; a line that is being typed
is cut at its beginning, because the person types at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hermes.chat.view.recap import format_duration
from hermes.text import format_count, make_printable

GOLD = "#ffd700"
MOST_SENT = 3
"""The maximum number of waiting inputs that are shown."""
ELLIPSIS = "…"


class TypedText(NamedTuple):
    """The text that the person typed while an answer was made."""

    sent: tuple[str, ...] = ()
    """The inputs that were completed with Enter. They are sent one by one after the answer."""
    line: str = ""
    """The input that is being typed."""


NOTHING_TYPED = TypedText()


def view_status(
    spinner: str, seconds: float, typed: TypedText, *, is_stopping: bool, height: int
) -> Iterator[Text | LineEnd]:
    """Yield the lines of the status below a running answer. If the window has few rows, fewer of the inputs
    that wait to be sent are shown."""
    most_sent = max(0, min(MOST_SENT, height - 6))
    state = "stopping …" if is_stopping else "Ctrl-C stops"
    yield Text(f"{spinner} {format_duration(seconds)} · {state}", "dim", no_wrap=True, overflow="ellipsis")
    hidden = len(typed.sent) - most_sent
    if hidden > 0 and most_sent:
        yield Text(f"  {format_count(hidden, 'more input')} before", "dim", no_wrap=True, overflow="ellipsis")
    for text in typed.sent[max(0, hidden) :]:
        line = f"next ❯ {make_printable(text)}"
        yield Text(line, f"dim {GOLD}", no_wrap=True, overflow="ellipsis")
    if typed.line:
        yield LineEnd("❯ ", make_printable(typed.line), GOLD)


class LineEnd:
    """Renders a text after a mark in one row of the screen. If the text does not fit, its beginning is cut off."""

    def __init__(self, mark: str, text: str, style: str) -> None:
        self._mark, self._text, self._style = mark, text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, options.max_width - cell_len(self._mark) - 1)
        text = self._text
        if cell_len(text) > room:
            text = text[-room:]
            while cell_len(text) >= room:
                text = text[1:]
            text = f"{ELLIPSIS}{text}"
        yield Text(f"{self._mark}{text}", self._style, no_wrap=True, overflow="crop", end="")
