"""The line that says what is shown and what is not; and for a while what was just done, or what went wrong."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from hermes.browser.rows import Rows
from hermes.browser.view_state import View, describe_hidden
from hermes.text import make_printable

MESSAGE_S = 8.0


class StatusLine(Static):
    def __init__(self) -> None:
        super().__init__(id="status")
        self._parts: list[str] = []
        self._message = ""
        self._timer: Timer | None = None

    def describe(self, view: View, rows: Rows, cursor: int) -> None:
        """`3 of 431 · 300 cron, 12 archived hidden · by last activity`."""
        if rows.total:
            best = "the best " if rows.are_more else ""
            counted = f"{cursor + 1:,} of {best}{rows.total:,}" + (" found" if view.is_search else "")
        else:
            counted = "nothing found" if view.is_search else "no conversations"
        inside = f"as part of a word: {make_printable(', '.join(rows.parts))}" if rows.parts else ""
        parts = (
            counted,
            inside,
            view.describe_filters(),
            describe_hidden(rows.hidden),
            view.describe_order(),
        )
        self._parts = [part for part in parts if part]
        self.refresh()

    def show_message(self, sentence: str, *, is_problem: bool = False) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._message = make_printable(sentence)
        self.set_class(not is_problem, "-message")
        self.set_class(is_problem, "-problem")
        self._timer = self.set_timer(MESSAGE_S, self._clear_message)
        self.refresh(layout=True)

    def _clear_message(self) -> None:
        self._message, self._timer = "", None
        self.remove_class("-message", "-problem")
        self.refresh(layout=True)

    def render(self) -> Content:
        """What was told, a problem on as many lines as it needs; else as many parts as fit, the first always."""
        text = self._message or self._parts[0] if self._parts else self._message
        for part in [] if self._message else self._parts[1:]:
            longer = f"{text} · {part}"
            if cell_len(longer) > self.size.width:
                break
            text = longer
        if self.has_class("-problem"):
            return Content(text)
        return Content(text).truncate(self.size.width, ellipsis=True)
