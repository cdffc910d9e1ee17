"""The line that says what is shown and what is not; and for a while what was just done, or what went wrong."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from hermes.browser.rows import Rows
from hermes.browser.view_state import View, hidden_told
from hermes.text import make_printable

TOLD_FOR = 8.0


class StatusLine(Static):
    def __init__(self) -> None:
        super().__init__(id="status")
        self._parts: list[str] = []
        self._told = ""
        self._until: Timer | None = None

    def describe(self, view: View, rows: Rows, cursor: int) -> None:
        """`3 of 431 · 300 cron, 12 archived hidden · by last activity`."""
        if rows.total:
            best = "the best " if rows.are_more else ""
            counted = f"{cursor + 1:,} of {best}{rows.total:,}" + (" found" if view.is_search else "")
        else:
            counted = "nothing found" if view.is_search else "no conversations"
        inside = f"as part of a word: {make_printable(', '.join(rows.parts))}" if rows.parts else ""
        parts = (counted, inside, view.filters_told(), hidden_told(rows.hidden), view.order_told())
        self._parts = [part for part in parts if part]
        self.refresh()

    def tell(self, sentence: str, *, is_problem: bool = False) -> None:
        if self._until is not None:
            self._until.stop()
        self._told = make_printable(sentence)
        self.set_class(not is_problem, "-told")
        self.set_class(is_problem, "-problem")
        self._until = self.set_timer(TOLD_FOR, self._as_usual)
        self.refresh(layout=True)

    def _as_usual(self) -> None:
        self._told, self._until = "", None
        self.remove_class("-told", "-problem")
        self.refresh(layout=True)

    def render(self) -> Content:
        """What was told, a problem on as many lines as it needs; else as many parts as fit, the first always."""
        told = self._told or self._parts[0] if self._parts else self._told
        for part in [] if self._told else self._parts[1:]:
            longer = f"{told} · {part}"
            if cell_len(longer) > self.size.width:
                break
            told = longer
        if self.has_class("-problem"):
            return Content(told)
        return Content(told).truncate(self.size.width, ellipsis=True)
