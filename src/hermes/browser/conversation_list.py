"""The conversation list. It draws the visible rows and requests missing ones. The keyboard focus stays in the
search field and never moves to the list."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hermes import clock
from hermes.browser.glyphs import drop_lone_joiners
from hermes.browser.rows import Conversation, JobRow, Rows
from hermes.browser.view_state import View, describe_empty
from hermes.recall.snippets.snippets import CLOSE, OPEN
from hermes.text import make_printable

ROOM_FOR_TWO_LINES = 8
"""The minimum number of lines of the list for showing search results on two lines each."""
LOADING = "…"
POINTER, MARKED, PINNED, ARCHIVED = "▌", "✓", "★", "▢"
CLOSED, OPENED = "▸", "▾"
INDENT = "  "
"""Before the conversations of a job."""
WHEN_WIDTH = 10
ROOM_FOR_SOURCE, ROOM_FOR_PREVIEW = 36, 70
"""The minimum widths of a row, in columns: for showing the source, and for showing the first words beside the
title."""
SHARE_OF_SOURCE = 3
"""The maximum width of the source column, as a divisor of the row width. Up to this width, the column is as
wide as the longest name."""
LONGEST_TITLE = 50

_HIGHLIGHTED = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)


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
        """The message that some of the visible rows, from the index `first` to the index `last` (both
        included), are not loaded."""

        def __init__(self, first: int, last: int) -> None:
            super().__init__()
            self.first, self.last = first, last

    class Moved(Message):
        """The cursor moved to another row or another conversation."""

    class Marked(Message):
        """A conversation was marked or unmarked."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(self) -> None:
        super().__init__(id="list")
        self.rows = Rows()
        self._words: tuple[str, ...] = ()
        self._is_search = False
        self._source_width = 0
        self._reasons: list[str] = []
        """The lines that an empty list shows."""
        self.marks: dict[str, Conversation] = {}
        """The marked conversations, keyed by their first session. They stay marked when the query or the
        filters change."""
        self.opened: frozenset[str] = frozenset()
        """The jobs whose conversations are shown. They stay open when the query or the filters change."""
        self._last_marked: tuple[str, int] | None = None
        """The first session and the row index of the conversation that was marked last."""

    @property
    def current(self) -> Conversation | None:
        return self.rows.get(self.cursor)

    @property
    def current_job(self) -> JobRow | None:
        return self.rows.get_job(self.cursor)

    @property
    def previewed(self) -> Conversation | None:
        """The conversation under the cursor or, on the row of a job, the job's newest one."""
        return self.current if self.current_job is None else self.current_job.newest

    def show(self, rows: Rows, view: View, cursor: int) -> None:
        """Replace the rows of the list by `rows` and move the cursor to the index `cursor`. The words of the
        query in `view` are highlighted in the names of the conversations."""
        self.rows, self._is_search, self._words = rows, view.is_search, view.words
        self._reasons = [] if rows.total else describe_empty(view, rows)
        self.set_reactive(ConversationList.cursor, self.validate_cursor(cursor))
        self.redraw()
        self.keep_in_sight()

    def change(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Change fields of some rows. `changes` maps the id of the first session of each conversation to the
        new values of its fields."""
        self.rows.change(changes)
        for root_id in changes.keys() & self.marks.keys():
            self.marks[root_id] = self.marks[root_id]._replace(**changes[root_id])
        self.redraw()

    def drop(self, root_ids: Collection[str]) -> None:
        self.rows.remove(root_ids)
        self.marks = {root_id: row for root_id, row in self.marks.items() if root_id not in root_ids}
        self.redraw()

    def redraw(self) -> None:
        """Redraw the list after rows have changed, been added or removed, or been loaded."""
        self.set_reactive(ConversationList.cursor, self.validate_cursor(self.cursor))
        self._source_width = max((cell_len(make_printable(row.source)) for row in self.rows), default=0)
        self.marks.update({row.root_id: row for row in self.rows if row.root_id in self.marks})
        self.virtual_size = Size(self.scrollable_content_region.width, self.rows.total * self.lines_each)
        self.refresh()
        self._ask_for_missing()
        self.post_message(self.Moved())

    # ---------------------------------------------------------------- jobs

    def toggle_job(self) -> bool:
        """Open or close the job under the cursor. Return whether there is one."""
        if (job := self.current_job) is not None:
            self._set_opened(self.opened ^ {job.job_id})
        return job is not None

    def open_job(self) -> None:
        if (job := self.current_job) is not None:
            self._set_opened(self.opened | {job.job_id})

    def close_job(self) -> None:
        """Close the job under the cursor, or the job of the conversation under the cursor. Move to its row."""
        index = self.rows.find_job_index(self.cursor)
        if index is not None and (job := self.rows.get_job(index)) is not None:
            self.cursor = index
            self._set_opened(self.opened - {job.job_id})

    def _set_opened(self, opened: frozenset[str]) -> None:
        self.opened = opened
        self.rows.open_jobs(opened)
        self.redraw()
        if (job := self.current_job) is not None:
            shown = 1 + len(job.runs) if job.job_id in opened else 1
            region = Region(0, self.cursor, 1, max(1, min(shown, self.size.height)))
            self.scroll_to_region(region, animate=False, force=True)

    @property
    def lines_each(self) -> int:
        return 2 if self._is_search and self.size.height >= ROOM_FOR_TWO_LINES else 1

    # ---------------------------------------------------------------- marks

    @property
    def targets(self) -> tuple[Conversation, ...]:
        """The conversations that an action applies to: the marked ones, or the one under the cursor."""
        if self.marks:
            return tuple(self.marks.values())
        return () if self.current is None else (self.current,)

    def mark(self, conversations: Iterable[Conversation]) -> None:
        self.marks.update({conversation.root_id: conversation for conversation in conversations})
        if self.marks:
            self._last_marked = (next(reversed(self.marks)), self.cursor)
        self.redraw()
        self.post_message(self.Marked())

    def unmark(self, conversations: Iterable[Conversation]) -> None:
        for conversation in conversations:
            self.marks.pop(conversation.root_id, None)
        self.redraw()
        self.post_message(self.Marked())

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and move to the next row. The row of a job has no mark."""
        if (row := self.current) is not None:
            if row.root_id in self.marks:
                self.unmark([row])
            else:
                self.mark([row])
            self._last_marked = (row.root_id, self.cursor)
        self.move(1)

    def find_range(self) -> tuple[int, int]:
        """Return the first and the last index of the rows from the one that was marked last to the one under
        the cursor."""
        root_id, index = self._last_marked or ("", 0)
        found = self.rows.find_index(root_id)  # None if the row is not loaded any more
        start = self.validate_cursor(index if found is None else found)
        return min(start, self.cursor), max(start, self.cursor)

    # ---------------------------------------------------------------- moving

    def move(self, by: int) -> None:
        self.cursor += by

    def move_pages(self, pages: int) -> None:
        self.cursor += pages * self.page

    @property
    def page(self) -> int:
        return max(1, self.size.height // self.lines_each - 1)

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
        if not self.rows.total and line < len(self._reasons):
            text = Text(f"  {make_printable(self._reasons[line])}", self._get_styles().dim, no_wrap=True)
            text.truncate(width, overflow="ellipsis", pad=True)
            return Strip(list(Segment.apply_style(text.render(self.app.console, end=""), self.rich_style)))
        if index >= self.rows.total:
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        is_current = index == self.cursor
        if is_current:
            base += self.get_component_rich_style("list--cursor", partial=True)
        row = self.rows.get(index)
        is_marked = row is not None and row.root_id in self.marks and not second
        pointer = [
            Segment(
                POINTER if is_current else " ",
                base + self.get_component_rich_style("list--pointer", partial=True),
            ),
            Segment(
                (MARKED if is_marked else " ").ljust(2 if self.marks else 1), base + self._get_styles().mark
            ),
        ]
        room = max(1, width - (4 if self.marks else 3))
        if self.rows.is_run(index):
            pointer.append(Segment(INDENT, base))
            room = max(1, room - len(INDENT))
        if (job := self.rows.get_job(index)) is not None:
            heading = _render_job(
                job, self.rows.is_open(job.job_id), room, self._get_styles(), self._source_width, clock.now()
            )
            drawn = list(Segment.apply_style(heading.render(self.app.console, end=""), base))
        elif row is None:
            drawn = [Segment((LOADING if not second else "").ljust(room), base)]
        else:
            text = (
                _render_snippet(row, room, self._get_styles())
                if second
                else _render_heading(
                    row, room, self._get_styles(), self._words, self._source_width, clock.now()
                )
            )
            drawn = list(Segment.apply_style(text.render(self.app.console, end=""), base))
        return Strip([*pointer, *drawn, Segment(" ", base)]).adjust_cell_length(width, base)

    def _ask_for_missing(self) -> None:
        first = self.scroll_offset.y // self.lines_each
        last = first + self.size.height // self.lines_each
        if self.rows.find_missing(first, last):
            self.post_message(self.Needs(first, last))

    def _get_styles(self) -> Styles:
        names = ("plain", "dim", "match", "mark", "source")
        return Styles(*[self.get_component_rich_style(f"list--{name}", partial=True) for name in names])


# ---------------------------------------------------------------- rows


class Styles(NamedTuple):
    """The styles of a row. A row is drawn as styled text, not as markup, so that brackets in a title are
    shown literally."""

    plain: Style
    dim: Style
    match: Style
    mark: Style
    source: Style


def _render_heading(
    conversation: Conversation,
    width: int,
    styles: Styles,
    words: Iterable[str],
    source_width: int,
    now: float,
) -> Text:
    """Render the first line: marks and name on the left, source and time on the right, padded to `width`."""
    right = _render_origin(conversation, width, styles, source_width, now)
    left = Text(no_wrap=True)
    if conversation.pinned:
        left.append(f"{PINNED} ", styles.mark)
    if conversation.archived:
        left.append(f"{ARCHIVED} ", styles.dim)
    name = Text(
        conversation.name, styles.plain if conversation.title and not conversation.archived else styles.dim
    )
    room = max(0, width - right.cell_len - 1)
    if conversation.tags:
        name.append(f"  {format_tags(conversation)}", styles.source)
    if conversation.title and conversation.preview and room >= ROOM_FOR_PREVIEW:
        name.truncate(LONGEST_TITLE, overflow="ellipsis")
        name.append(f"  {drop_lone_joiners(make_printable(conversation.preview))}", styles.dim)
    highlight(name, words, styles.match)
    left.append_text(name)
    left.truncate(room, overflow="ellipsis", pad=True)
    return left.append(" ").append_text(right)


def _render_job(
    job: JobRow, is_open: bool, width: int, styles: Styles, source_width: int, now: float
) -> Text:
    """Render the row of a job: its name and the number of its conversations on the left, the time of the last
    one on the right."""
    right = _render_origin(job.newest, width, styles, source_width, now)
    left = Text(f"{OPENED if is_open else CLOSED} {job.name}", styles.plain, no_wrap=True)
    left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis", pad=True)
    return left.append(" ").append_text(right)


def _render_origin(
    conversation: Conversation, width: int, styles: Styles, source_width: int, now: float
) -> Text:
    """Render the right side of a row: source and time."""
    right = Text(no_wrap=True)
    if width >= ROOM_FOR_SOURCE:
        source = Text(make_printable(conversation.source), styles.source)
        source.truncate(min(source_width, width // SHARE_OF_SOURCE), overflow="ellipsis", pad=True)
        right.append_text(source).append(" ")
    return right.append(clock.format_relative(conversation.last_active, now).rjust(WHEN_WIDTH), styles.dim)


def format_tags(conversation: Conversation) -> str:
    return " ".join(f"#{make_printable(tag)}" for tag in conversation.tags)


def _render_snippet(conversation: Conversation, width: int, styles: Styles) -> Text:
    """Render the second line of a row: the snippet with highlighted matches. The snippet is cut so that the
    first match is visible.

    For a conversation that was found by its title, render its first words instead.
    """
    line = Text(no_wrap=True)
    excerpt = conversation.snippet or (conversation.preview if conversation.title else "")
    excerpt = drop_lone_joiners(make_printable(excerpt))
    at = 0
    first = excerpt.find(OPEN)
    if first > width // 2 and cell_len(_HIGHLIGHTED.sub(r"\1", excerpt)) > width:
        at = first - width // 3
        line.append("…", styles.dim)
    for match in _HIGHLIGHTED.finditer(excerpt, at):
        line.append(excerpt[at : match.start()], styles.dim)
        line.append(match[1], styles.match)
        at = match.end()
    line.append(excerpt[at:], styles.dim)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def highlight(text: Text, words: Iterable[str], style: Style) -> None:
    """Style every occurrence of the words in the text, ignoring case."""
    patterns = sorted((re.escape(word) for word in words if word.strip()), key=len, reverse=True)
    if patterns:
        text.highlight_regex(re.compile("|".join(patterns), re.IGNORECASE), style)
