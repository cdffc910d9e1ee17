"""A line in which something is asked: a new title, the name of a file. Takes the place of the status line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from hermes.browser.rows import Conversation


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
        self._asked: tuple[str, Conversation] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="asked")
        yield Input(compact=True, select_on_focus=False, id="answer")

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def ask(self, about: str, conversation: Conversation, question: str, answer: str) -> None:
        """Ask, with an answer that only needs a change. `about` says what the answer is for."""
        self._asked = (about, conversation)
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
        if self._asked is not None:
            self.post_message(self.Answered(*self._asked, event.value))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()

    def action_cancel(self) -> None:
        self.post_message(self.Cancelled())
