"""Where a person types. Enter sends, Esc Enter (or Alt-Enter, Ctrl-J) makes a new line, Tab completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.shortcuts.choice_input import ChoiceInput
from prompt_toolkit.styles import Style

from hermes import home
from hermes.chat.input_history import InputHistory
from hermes.chat.pasting import LONGEST_SHOWN, Pastes

T = TypeVar("T")

HISTORY = "chat_history"
LONGEST_REMEMBERED = 10 * LONGEST_SHOWN

STYLE = Style.from_dict(
    {
        "prompt": "#ffd700 bold",
        "incognito": "#af87ff bold",
        "bottom-toolbar": "noreverse #808080",
        "bottom-toolbar.text": "noreverse #808080",
    }
)


class Prompting:
    def __init__(
        self,
        completer: Completer,
        toolbar: Callable[[], str],
        *,
        incognito: bool = False,
        given: Input | None = None,
        shown: Output | None = None,
    ) -> None:
        """`given` and `shown` are the terminal, unless a test says otherwise."""
        self.pastes = Pastes()
        self._incognito = incognito
        self._session: PromptSession[str] = PromptSession(
            history=_Remembered(self.pastes, None if incognito else history_file()),
            completer=completer,
            complete_while_typing=True,
            complete_in_thread=True,
            multiline=True,
            key_bindings=self._keys(),
            bottom_toolbar=lambda: FormattedText([("", toolbar())]),
            prompt_continuation=lambda width, _line, _wrapped: " " * width,
            reserve_space_for_menu=6,
            style=STYLE,
            input=given,
            output=shown,
        )
        self._shown = asyncio.Event()

    async def ask(self, prefill: str = "") -> str:
        """What the person says next. EOFError if they want to leave, KeyboardInterrupt for Ctrl-C."""
        mark = ("class:incognito", "(incognito) ❯ ") if self._incognito else ("class:prompt", "❯ ")
        app = self._session.app
        if not self._shown.is_set():
            app.after_render += lambda _: self._shown.set()
        text = await self._session.prompt_async(FormattedText([mark]), default=prefill, handle_sigint=False)
        return self.pastes.whole(text)

    async def shown(self) -> None:
        """Until the first prompt is on the screen."""
        await self._shown.wait()

    async def above(self, say: Callable[[], None]) -> None:
        """Print something, above the prompt if there is one."""
        if self._session.app.is_running:
            await run_in_terminal(say)
        else:
            say()

    def refresh(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    async def choose(self, question: str, options: Sequence[tuple[T, str]]) -> T | None:
        """One of these, by its number or with the arrows; None for Ctrl-C or Ctrl-D."""
        keys = KeyBindings()
        keys.add("c-d")(lambda event: event.app.exit(exception=EOFError()))
        keys.add("escape")(lambda event: event.app.exit(exception=EOFError()))
        with create_app_session(input=self._session.app.input, output=self._session.app.output):
            try:
                return await ChoiceInput(message=question, options=options, key_bindings=keys).prompt_async()
            except (KeyboardInterrupt, EOFError):
                return None

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self.pastes.shown(event.data))

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")

        return keys


class _Remembered(History):
    """What was sent before, with its pastes; one that is very long would only make the file large."""

    def __init__(self, pastes: Pastes, file: Path | None) -> None:
        super().__init__()
        self._pastes = pastes
        self._kept: History = InMemoryHistory() if file is None else InputHistory(file)

    def load_history_strings(self) -> Iterable[str]:
        return self._kept.load_history_strings()

    def append_string(self, string: str) -> None:
        whole = self._pastes.whole(string)
        if len(whole) <= LONGEST_REMEMBERED:
            super().append_string(whole)

    def store_string(self, string: str) -> None:
        self._kept.store_string(string)


def history_file() -> Path:
    """Private from its first moment."""
    folder = home.get_hermes_home()
    home.private_folder(folder)
    file = folder / HISTORY
    if not file.exists():
        import os

        os.close(home.create_private_file(file))
    home.tightened(str(file), home.PRIVATE_FILE)
    return file
