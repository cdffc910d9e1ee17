"""Where a person types. Enter sends, Esc Enter (or Alt-Enter, Ctrl-J) makes a new line, Tab completes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from hermes import home
from hermes.chat.input import question
from hermes.chat.input.input_history import InputHistory
from hermes.chat.input.question import Option
from hermes.logs import get_logger
from hermes.terminal_input import SILENCE_S

_log = get_logger(__name__)

T = TypeVar("T")

HISTORY = "chat_history"
LONGEST_SHOWN, MOST_LINES_SHOWN = 2000, 12
"""A paste beyond these is abbreviated."""
LONGEST_REMEMBERED = 10 * LONGEST_SHOWN

STYLE = Style.from_dict(
    {
        "prompt": "#ffd700 bold",
        "incognito": "#af87ff bold",
        "bottom-toolbar": "noreverse #808080",
        "bottom-toolbar.text": "noreverse #808080",
    }
)


_MARK = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class Pastes:
    """Long pastes appear in the prompt as a short mark; sending expands them."""

    def __init__(self) -> None:
        self._pastes: list[str] = []

    def abbreviate(self, text: str) -> str:
        """What stands in the prompt for a paste: itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_SHOWN and lines <= MOST_LINES_SHOWN:
            return text
        self._pastes.append(text)
        return f"[pasted #{len(self._pastes)}: {lines:,} lines, {len(text):,} characters]"

    def expand(self, text: str) -> str:
        """What was typed, with every paste in its place. A mark that stands for nothing is left as it is."""
        if not self._pastes:
            return text
        return _MARK.sub(self._find_paste, text)

    def _find_paste(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._pastes[number - 1] if 0 < number <= len(self._pastes) else mark[0]


class PromptLine:
    def __init__(
        self,
        completer: Completer,
        toolbar: Callable[[], str],
        *,
        incognito: bool = False,
        keyboard: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """`keyboard` and `output` are those of the terminal unless a test replaces them."""
        self.pastes = Pastes()
        self.open_output: Callable[[], Coroutine[Any, Any, None]] | None = None
        """What Ctrl-O does."""
        self._opening: asyncio.Task[None] | None = None
        self._incognito = incognito
        self._session: PromptSession[str] = PromptSession(
            history=_ExpandedHistory(self.pastes, None if incognito else open_history_file()),
            completer=completer,
            complete_while_typing=True,
            complete_in_thread=True,
            multiline=True,
            key_bindings=self._bind_keys(),
            bottom_toolbar=lambda: FormattedText([("", toolbar())]),
            prompt_continuation=lambda width, _line, _wrapped: " " * width,
            reserve_space_for_menu=6,
            style=STYLE,
            input=keyboard,
            output=output,
        )
        self._session.app.key_processor.after_key_press += self._forget_answer
        self._session.default_buffer.on_text_changed += self._forget_answer
        self._output = output
        self._gate: question.Gate | None = None
        self._is_dumb = output is None and is_dumb_terminal()
        self._ignores_enter_until = 0.0
        """Who answers a question with `y` and then Enter, out of habit, must not send what is in the next prompt."""
        self._is_drawn = asyncio.Event()

    async def ask(self, prefill: str = "") -> str:
        """What the person says next. EOFError if they want to leave, KeyboardInterrupt for Ctrl-C."""
        mark = ("class:incognito", "(incognito) ❯ ") if self._incognito else ("class:prompt", "❯ ")
        if prefill and self._gate is not None and self._gate.has_text:
            prefill += "\n"  # what was typed before the last question follows
        self._gate = None
        message = [mark]
        if self._is_dumb:  # prompt_toolkit does not print the default there
            message.append(("", prefill))
        app = self._session.app
        if not self._is_drawn.is_set():
            app.after_render += lambda _: self._is_drawn.set()
        text = await self._session.prompt_async(FormattedText(message), default=prefill, handle_sigint=False)
        return self.pastes.expand(text)

    async def wait_until_drawn(self) -> None:
        """Until the first prompt is on the screen."""
        await self._is_drawn.wait()

    async def print_above(self, say: Callable[[], None]) -> None:
        """Print something, above the prompt if there is one."""
        if self._session.app.is_running:
            await run_in_terminal(say)
        else:
            say()

    def refresh(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    async def choose(self, text: str, options: Sequence[Option[T]], *, default: int = 0) -> T | None:
        """The value of the option that is chosen; None for Esc or Ctrl-D. Raises `question.Stopped` for Ctrl-C.

        `default` is the place of the option that is marked at first: for a consent, the one that refuses.
        """
        gate = self._gate = self._make_gate()
        keyboard = self._session.app.input
        choice = question.Choice(text, options, default, keyboard=keyboard, output=self._output, gate=gate)
        chosen = await choice.ask()
        if choice.may_get_enter:
            self._ignores_enter_until = time.monotonic() + SILENCE_S
        return chosen

    async def ask_line(self, text: str) -> str | None:
        """One line; None for Esc, Ctrl-D or an empty one. Raises `question.Stopped` for Ctrl-C."""
        self._ignores_enter_until = 0.0
        gate = self._gate = self._make_gate()
        keyboard = self._session.app.input
        return await question.ask_line(text, keyboard=keyboard, output=self._output, gate=gate)

    def _make_gate(self) -> question.Gate:
        """Wait longer for the answer of a terminal that has answered a prompt before."""
        has_answered = self._session.app.renderer.cpr_support == CPR_Support.SUPPORTED
        return question.Gate(has_answered=has_answered)

    def _forget_answer(self, _: object) -> None:
        """Ignore Enter only as the first key after an answer. What was typed ahead comes before the first drawing."""
        if self._is_dumb or self._session.app.renderer.last_rendered_screen is not None:
            self._ignores_enter_until = 0.0

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if time.monotonic() >= self._ignores_enter_until:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self.pastes.abbreviate(event.data))

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            if self.open_output is not None:
                self._opening = event.app.create_background_task(self.open_output())

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")

        return keys


class _ExpandedHistory(History):
    """What was sent before, with its pastes; one that is very long would only make the file large."""

    def __init__(self, pastes: Pastes, file: Path | None) -> None:
        super().__init__()
        self._pastes = pastes
        self._history: History = InMemoryHistory() if file is None else InputHistory(file)

    def load_history_strings(self) -> Iterable[str]:
        return self._history.load_history_strings()

    def append_string(self, string: str) -> None:
        whole = self._pastes.expand(string)
        if len(whole) <= LONGEST_REMEMBERED:
            super().append_string(whole)

    def store_string(self, string: str) -> None:
        self._history.store_string(string)


def open_history_file() -> Path | None:
    """Private from its first moment; None where it cannot be used."""
    file = home.get_hermes_home() / HISTORY
    try:
        home.make_private_folder(file.parent)
        os.close(home.open_private_file(file, os.O_WRONLY | os.O_CREAT))
    except OSError as problem:
        _log.warning("what was typed is not kept: %s: %s", file, problem.strerror)
        return None
    return file
