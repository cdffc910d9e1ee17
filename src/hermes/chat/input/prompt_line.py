"""The prompt line. Enter sends, Esc Enter (or Alt-Enter, Ctrl-J) inserts a line break, Tab completes.

Ctrl-R searches the input history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_or_none, run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings import search
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.key_binding.key_bindings import Binding
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from hermes.chat.input import question
from hermes.chat.input.input_history import PromptHistory, open_history_file
from hermes.chat.input.pastes import Pastes
from hermes.chat.input.question import Option
from hermes.terminal_input import SILENCE_S

T = TypeVar("T")

STYLE = Style.from_dict(
    {
        "prompt": "#ffd700 bold",
        "incognito": "#af87ff bold",
        "bottom-toolbar": "noreverse #808080",
        "bottom-toolbar.text": "noreverse #808080",
    }
)


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
        """`keyboard` and `output` replace the terminal in tests."""
        self.pastes = Pastes()
        self.open_output: Callable[[], Coroutine[Any, Any, None]] | None = None
        """The action of Ctrl-O."""
        self._opening: asyncio.Task[None] | None = None
        self.begins_with_paste = False
        """Whether the last input begins with pasted text. Such an input is never run as a shell command."""
        self._pasted_first = ""
        """The text that was pasted at the beginning of the input."""
        self.pasted: list[str] = []
        """The parts of the last input that were pasted. Files that they mention are not attached."""
        self._incognito = incognito
        self._history = PromptHistory(self.pastes, None if incognito else open_history_file())
        self._before_search: tuple[int, int] | None = None
        """The position in the history and the cursor position before a search."""
        self._session: PromptSession[str] = PromptSession(
            history=self._history,
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
        self._session.app.key_processor.after_key_press += self._accept_enter_again
        self._session.default_buffer.on_text_changed += self._accept_enter_again
        self._output = output
        self._gate: question.Gate | None = None
        self._is_dumb = output is None and is_dumb_terminal()
        self._ignores_enter_until = 0.0
        """The time until which Enter is ignored. A person who answers a question with `y` may press Enter out
        of habit; this Enter must not send the text of the next prompt."""
        self._is_drawn = asyncio.Event()

    @property
    def keyboard(self) -> Input:
        return self._session.app.input

    async def ask(self, prefill: str = "") -> str:
        """Return the next input of the person. `prefill` is the initial text of the prompt. Raise EOFError if
        the person leaves, and KeyboardInterrupt for Ctrl-C."""
        prefill = self.pastes.collapse(prefill)
        mark = ("class:incognito", "(incognito) ❯ ") if self._incognito else ("class:prompt", "❯ ")
        if prefill and self._gate is not None and self._gate.has_text:
            prefill += "\n"  # the text that was typed before the last question is added on a new line
        self._gate = None
        self._pasted_first = ""
        if not prefill:  # otherwise the prompt contains an unsent message again, with its pastes
            self.pasted = []
        message = [mark]
        if self._is_dumb:  # prompt_toolkit does not print the default text on dumb terminals
            message.append(("", prefill))
        app = self._session.app
        if not self._is_drawn.is_set():
            app.after_render += lambda _: self._is_drawn.set()
        text = await self._session.prompt_async(FormattedText(message), default=prefill, handle_sigint=False)
        pasted = self._pasted_first.lstrip()
        self.begins_with_paste = bool(pasted) and text.lstrip().startswith(pasted[0])
        whole, ranges = self.pastes.expand(text)
        self.pasted += [whole[start:end] for start, end in ranges]
        return whole

    async def wait_until_drawn(self) -> None:
        """Wait until the first prompt of the terminal conversation is on the screen."""
        await self._is_drawn.wait()

    async def print_above(self, say: Callable[[], None]) -> None:
        """Call `say`, which prints on the screen. If a prompt or a question is open, print above it and keep
        its menus on the screen."""
        app = get_app_or_none()
        if app is not None and app.is_running:
            await run_in_terminal(say)
        else:
            say()

    def refresh(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    async def choose(self, text: str, options: Sequence[Option[T]], *, default: int = 0) -> T | None:
        """Ask the person to choose one of the options. Return the value of the chosen option, or None for Esc
        or Ctrl-D. Ctrl-C raises `question.Stopped`.

        `default` is the index of the option that is marked at first. For an approval, this option must be a
        denial.
        """
        gate = self._gate = self._make_gate()
        choice = question.Choice(
            text, options, default, keyboard=self.keyboard, output=self._output, gate=gate
        )
        chosen = await choice.ask()
        self._ignores_enter_until = time.monotonic() + SILENCE_S if choice.may_get_enter else 0.0
        return chosen

    async def ask_line(self, text: str) -> str | None:
        """Ask the person for one line of text and return it. Return None for Esc, Ctrl-D or an empty line.
        Ctrl-C raises `question.Stopped`."""
        self._ignores_enter_until = 0.0
        gate = self._gate = self._make_gate()
        return await question.ask_line(text, keyboard=self.keyboard, output=self._output, gate=gate)

    def _make_gate(self) -> question.Gate:
        """Return a gate, which holds back keys that are typed before a question is shown. If this terminal is
        known to answer cursor position requests, the gate waits longer for the response."""
        has_answered = self._session.app.renderer.cpr_support == CPR_Support.SUPPORTED
        return question.Gate(has_answered=has_answered)

    def _accept_enter_again(self, _: object) -> None:
        """Accept Enter again, because the person has typed another key at the prompt. Called after each key. A
        key that was typed before the prompt was drawn has no effect here."""
        if self._is_dumb or self._session.app.renderer.last_rendered_screen is not None:
            self._ignores_enter_until = 0.0

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            if time.monotonic() >= self._ignores_enter_until:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=~is_searching)
        @keys.add("c-j", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste, filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            shown, buffer = self.pastes.abbreviate(event.data), event.current_buffer
            if not buffer.document.text_before_cursor.strip():
                self._pasted_first = shown
            if not self.pastes.expand(shown).ranges:  # `ask` adds the pastes that are shown as marks
                self.pasted.append(shown)
            buffer.insert_text(shown)

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            if self.open_output is not None:
                self._opening = event.app.create_background_task(self.open_output())

        @keys.add("c-c", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            self._clear(event)

        keys.add("c-r", filter=~is_searching)(self._bind_search(search.start_reverse_incremental_search))
        keys.add("c-s", filter=~is_searching)(self._bind_search(search.start_forward_incremental_search))

        @keys.add("c-c", filter=is_searching)
        @keys.add("c-g", filter=is_searching)
        def _(event: KeyPressEvent) -> None:
            self._abort_search(event)

        return keys

    def _clear(self, event: KeyPressEvent) -> None:
        """Clear the input. The person can restore it with ↑. If the input is empty, end the prompt with
        KeyboardInterrupt."""
        buffer = event.current_buffer
        shown = buffer.text
        get_by_name("end-of-history").call(event)
        if not shown and not buffer.text:
            event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")
            return
        for text in (shown, buffer.text):
            self._history.remember(text)
        self._pasted_first = ""
        buffer.reset()

    def _bind_search(self, start: Binding) -> Callable[[KeyPressEvent], None]:
        def begin(event: KeyPressEvent) -> None:
            self._before_search = event.current_buffer.working_index, event.current_buffer.cursor_position
            start.call(event)

        return begin

    def _abort_search(self, event: KeyPressEvent) -> None:
        """End a search and restore the input from before the search. A search only moves through the history,
        so that input still exists."""
        search.abort_search.call(event)
        if self._before_search is not None:
            event.current_buffer.working_index, event.current_buffer.cursor_position = self._before_search
