"""The list: draws the rows in sight, and asks for those it does not have. It never takes the focus from the query."""

from __future__ import annotations

from typing import Any

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hermes import clock
from hermes.browser.list_row import POINTER, Styles, render_heading, render_snippet
from hermes.browser.rows import Conversation, Rows
from hermes.browser.view_state import View

ROOM_FOR_TWO_LINES = 8
"""Rows of a list in which what was found gets a line of its own."""
LOADING = "…"


class ConversationList(ScrollView, can_focus=False):
    COMPONENT_CLASSES = {  # noqa: RUF012 -- Textual reads it from the class
        "list--plain",
        "list--dim",
        "list--match",
        "list--mark",
        "list--source",
        "list--cursor",
        "list--pointer",
    }

    cursor: reactive[int] = reactive(0)

    class Needs(Message):
        """Rows in sight that are not here; `last` is included."""

        def __init__(self, first: int, last: int) -> None:
            super().__init__()
            self.first, self.last = first, last

    class Moved(Message):
        """The cursor is on another row, or on another conversation."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(self) -> None:
        super().__init__(id="list")
        self.rows = Rows()
        self._words: tuple[str, ...] = ()
        self._is_search = False

    @property
    def current(self) -> Conversation | None:
        return self.rows.get(self.cursor)

    def show(self, rows: Rows, view: View, cursor: int) -> None:
        """Show other rows. The words of a query are marked in their names."""
        self.rows, self._is_search, self._words = rows, view.is_search, view.words
        self.set_reactive(ConversationList.cursor, self.validate_cursor(cursor))
        self.redraw()
        self.keep_in_sight()

    def change(self, conversation: Conversation, **changes: Any) -> None:
        self.rows.change(conversation.root_id, **changes)
        self.redraw()

    def drop(self, conversation: Conversation) -> None:
        self.rows.remove(conversation.root_id)
        self.redraw()

    def redraw(self) -> None:
        """The rows have changed, or their number, or which of them are here."""
        self.set_reactive(ConversationList.cursor, self.validate_cursor(self.cursor))
        self.virtual_size = Size(self.scrollable_content_region.width, self.rows.total * self.lines_each)
        self.refresh()
        self._ask_for_missing()
        self.post_message(self.Moved())

    @property
    def lines_each(self) -> int:
        return 2 if self._is_search and self.size.height >= ROOM_FOR_TWO_LINES else 1

    # ---------------------------------------------------------------- moving

    def move(self, by: int) -> None:
        self.cursor += by

    def move_pages(self, pages: int) -> None:
        self.cursor += pages * max(1, self.size.height // self.lines_each - 1)

    def move_to_end(self, last: bool) -> None:
        self.cursor = self.rows.total - 1 if last else 0

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, self.rows.total - 1))

    def watch_cursor(self) -> None:
        self.keep_in_sight()
        self.refresh()
        self.post_message(self.Moved())

    def keep_in_sight(self) -> None:
        each = self.lines_each
        self.scroll_to_region(Region(0, self.cursor * each, 1, each), animate=False, force=True)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._ask_for_missing()

    def on_resize(self, _: events.Resize) -> None:
        self.redraw()
        self.keep_in_sight()

    def on_click(self, event: events.Click) -> None:
        index = (event.y + self.scroll_offset.y) // self.lines_each
        if index < self.rows.total:
            self.cursor = index
            if event.chain == 2:
                self.post_message(self.Opened())

    # ---------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        index, second = divmod(line, self.lines_each)
        width = self.scrollable_content_region.width
        if index >= self.rows.total:
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        is_current = index == self.cursor
        if is_current:
            base += self.get_component_rich_style("list--cursor", partial=True)
        pointer = Segment(
            f"{POINTER} " if is_current else "  ",
            base + self.get_component_rich_style("list--pointer", partial=True),
        )
        room = max(1, width - 3)
        row = self.rows.get(index)
        if row is None:
            drawn = [Segment((LOADING if not second else "").ljust(room), base)]
        else:
            text = (
                render_snippet(row, room, self._get_styles())
                if second
                else render_heading(row, room, self._get_styles(), self._words, clock.now())
            )
            drawn = list(Segment.apply_style(text.render(self.app.console, end=""), base))
        return Strip([pointer, *drawn, Segment(" ", base)]).adjust_cell_length(width, base)

    def _ask_for_missing(self) -> None:
        first = self.scroll_offset.y // self.lines_each
        last = first + self.size.height // self.lines_each
        if self.rows.find_missing(first, last):
            self.post_message(self.Needs(first, last))

    def _get_styles(self) -> Styles:
        names = ("plain", "dim", "match", "mark", "source")
        return Styles(*[self.get_component_rich_style(f"list--{name}", partial=True) for name in names])
