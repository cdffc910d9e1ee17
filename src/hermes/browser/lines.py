"""The text lines of the browser: the query, the status, and the answer to a question such as a new title or a
file name.

The focus stays in the query. Keys that have no meaning in a text line move the cursor of the list. A question
replaces the status line.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static

from hermes.browser.rows import Conversation, Rows
from hermes.browser.view_state import View, describe_hidden
from hermes.text import make_printable

MESSAGE_S = 8.0
"""How long the status line shows a message, in seconds."""


class SearchInput(Input, inherit_bindings=False):
    """The query line. It receives all keys first and processes them in order. Text typed just before Enter is
    therefore part of the query."""

    BINDINGS = [  # noqa: RUF012
        Binding("up", "app.move(-1)", show=False),
        Binding("down", "app.move(1)", show=False),
        Binding("pageup", "app.move_pages(-1)", show=False),
        Binding("pagedown", "app.move_pages(1)", show=False),
        Binding("home", "app.move_to_end(False)", show=False),
        Binding("end", "app.move_to_end(True)", show=False),
        Binding("ctrl+up", "app.scroll_preview(-1)", show=False),
        Binding("ctrl+down", "app.scroll_preview(1)", show=False),
        Binding("tab", "app.switch", show=False),
        Binding("left", "move_left", show=False),
        Binding("right", "move_right", show=False),
        Binding("ctrl+left", "cursor_left_word", show=False),
        Binding("ctrl+right", "cursor_right_word", show=False),
        Binding("backspace", "delete_left", show=False),
        Binding("delete", "delete_right", show=False),
        Binding("ctrl+w,ctrl+backspace", "delete_left_word", show=False),
        Binding("ctrl+u", "delete_left_all", show=False),
        Binding("ctrl+k", "delete_right_all", show=False),
        Binding("ctrl+v", "paste", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(
            placeholder="Type to search titles and messages",
            compact=True,
            select_on_focus=False,
            id="search",
        )

    async def action_move_left(self) -> None:
        """Move in the query. If it is empty, close the job in the list."""
        if self.value:
            self.action_cursor_left()
        else:
            await self.run_action("app.open_job(False)")

    async def action_move_right(self) -> None:
        """Move in the query. If it is empty, open the job in the list."""
        if self.value:
            self.action_cursor_right()
        else:
            await self.run_action("app.open_job(True)")

    async def on_key(self, event: events.Key) -> None:
        if event.character == "?" and not self.value:
            event.prevent_default()
            event.stop()
            await self.run_action("app.help")


EDITING_KEYS = frozenset(
    key
    for binding in SearchInput.BINDINGS
    if isinstance(binding, Binding) and not binding.action.startswith("app.")
    for key in binding.key.split(",")
)
"""Keys that edit the query and do not depend on the list, unless they are in `JOB_KEYS`."""
JOB_KEYS = frozenset(("left", "right"))
"""Keys that open and close jobs in the list while the query is empty."""


class Question(Horizontal):
    BINDINGS = [Binding("escape", "cancel", show=False)]  # noqa: RUF012

    class Answered(Message):
        def __init__(self, about: str, targets: tuple[Conversation, ...], answer: str) -> None:
            super().__init__()
            self.about, self.targets, self.answer = about, targets, answer

    class Cancelled(Message):
        pass

    def __init__(self) -> None:
        super().__init__(id="question")
        self._pending: tuple[str, tuple[Conversation, ...]] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="asked")
        yield Input(compact=True, select_on_focus=False, id="answer")

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def ask(self, about: str, targets: tuple[Conversation, ...], question: str, answer: str) -> None:
        """Ask a question. `answer` is the default answer, which the user can edit. `about` says what the
        answer is for."""
        self._pending = (about, targets)
        self.query_one("#asked", Static).update(Content(question))
        field = self.query_one(Input)
        field.value = answer
        self.add_class("-open")
        field.cursor_position = len(answer)
        field.focus()

    def close(self) -> None:
        self.remove_class("-open")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._pending is not None:
            self.post_message(self.Answered(*self._pending, event.value))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())


class StatusLine(Static):
    """The status line: describes the list and, for some seconds, the last action or error."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._parts: list[str] = []
        self._message = ""
        self._timer: Timer | None = None

    def describe(self, view: View, rows: Rows, cursor: int, marked: int) -> None:
        """Show a description of the list in the status line, such as `3 marked · 3 of 431 · 12 archived hidden
        · by last activity`. `cursor` is the index of the current row, and `marked` is the number of marked
        conversations."""
        if rows.total:
            best = "the best " if rows.are_more and view.limit is not None else ""
            more = "+" if rows.are_more and not best else ""
            counted = f"{cursor + 1:,} of {best}{rows.total:,}{more}" + (" found" if view.is_search else "")
        else:
            counted = "nothing found" if view.is_search else "no conversations"
        inside = f"as part of a word: {make_printable(', '.join(rows.parts))}" if rows.parts else ""
        parts = (
            f"{marked:,} marked" if marked else "",
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
        self._timer = self.set_timer(MESSAGE_S, self.clear_message)
        self.refresh(layout=True)

    def clear_message(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._message, self._timer = "", None
        self.remove_class("-message", "-problem")
        self.refresh(layout=True)

    def render(self) -> Content:
        """Render the text about the last action or error, if there is one. An error takes as many lines as it
        needs. Otherwise render as many parts of the description of the list as fit."""
        text = self._message or self._parts[0] if self._parts else self._message
        for part in [] if self._message else self._parts[1:]:
            longer = f"{text} · {part}"
            if cell_len(longer) > self.size.width:
                break
            text = longer
        if self.has_class("-problem"):
            return Content(text)
        return Content(text).truncate(self.size.width, ellipsis=True)
