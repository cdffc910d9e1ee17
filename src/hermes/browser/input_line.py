"""Lines in which a person types: the query, and the answer to a question (a new title, the name of a file).

The focus stays in the query; keys that mean nothing in a line of text move the list. A question takes the place of the
status line.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from hermes.browser.rows import Conversation


class SearchInput(Input, inherit_bindings=False):
    """Every key comes here first and is dealt with in its turn: what was typed before Enter counts for it."""

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
        Binding("left", "cursor_left", show=False),
        Binding("right", "cursor_right", show=False),
        Binding("ctrl+left", "cursor_left_word", show=False),
        Binding("ctrl+right", "cursor_right_word", show=False),
        Binding("ctrl+a", "home", show=False),
        Binding("backspace", "delete_left", show=False),
        Binding("delete", "delete_right", show=False),
        Binding("ctrl+w,ctrl+backspace", "delete_left_word", show=False),
        Binding("ctrl+u", "delete_left_all", show=False),
        Binding("ctrl+k", "delete_right_all", show=False),
        Binding("ctrl+v", "paste", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(
            placeholder="Type to search titles and what was said",
            compact=True,
            select_on_focus=False,
            id="search",
        )

    async def on_key(self, event: events.Key) -> None:
        if event.character == "?" and not self.value:
            event.prevent_default()
            event.stop()
            await self.run_action("app.help")


class Question(Horizontal):
    BINDINGS = [Binding("escape", "cancel", show=False)]  # noqa: RUF012

    class Answered(Message):
        def __init__(self, about: str, conversation: Conversation, answer: str) -> None:
            super().__init__()
            self.about, self.conversation, self.answer = about, conversation, answer

    class Cancelled(Message):
        pass

    def __init__(self) -> None:
        super().__init__(id="question")
        self._pending: tuple[str, Conversation] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="asked")
        yield Input(compact=True, select_on_focus=False, id="answer")

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def ask(self, about: str, conversation: Conversation, question: str, answer: str) -> None:
        """Ask, with an answer that only needs a change. `about` says what the answer is for."""
        self._pending = (about, conversation)
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
