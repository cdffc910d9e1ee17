"""Questions to the person in a terminal conversation: a choice, or a line of text. Only keys pressed after the
question is shown count as an answer.

Keys pressed earlier are kept for the next prompt, even if several questions are asked before it.
`hermes.terminal_input` detects which keys were pressed before the question was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_session
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import DummyOutput, Output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from hermes.terminal_input import SILENCE_S, SLOW_S, is_answer

T = TypeVar("T")

STYLE = Style.from_dict({"marked": "bold", "key": "#808080"})
EDITING = frozenset(
    {Keys.ControlH, Keys.Delete, Keys.ControlW, Keys.ControlU, Keys.ControlK, Keys.Left, Keys.Right}
    | {Keys.ControlA, Keys.ControlE, Keys.Home, Keys.End, Keys.BracketedPaste, Keys.ControlJ}
)
"""Editing keys that are kept for the next prompt, in addition to characters."""
INTERRUPTS = frozenset({Keys.ControlC, Keys.SIGINT})


class Stopped(Exception):
    """The person pressed Ctrl-C at a question."""


class Option(NamedTuple, Generic[T]):
    value: T
    label: str
    key: str = ""
    """The letter that chooses the option immediately. The number of the option works, too."""


class Gate:
    """Holds back keys that were typed before a question was on the screen, so that they do not answer the
    question."""

    def __init__(self, *, has_answered: bool = False) -> None:
        """`has_answered` says whether this terminal has answered a cursor position request before. If so, the
        gate waits longer for the answer to its own request."""
        self.is_open = False
        self.held_keys: list[KeyPress] = []
        self.has_text = False
        """Whether the held text was passed on to the next prompt."""
        self._patience_s = SLOW_S if has_answered else SILENCE_S
        self._was_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self.keys = KeyBindings()
        is_closed = Condition(lambda: not self.is_open)
        self.keys.add(Keys.Any, filter=is_closed, eager=True)(self._hold_key)
        self.keys.add(Keys.CPRResponse, eager=True)(self._take_answer)

    def watch(self, app: Application[T]) -> None:
        """Send a cursor position request to the terminal as soon as `app`, which shows the question, is on the
        screen. The answer of the terminal opens the gate."""
        # Disable the requests of the renderer, so that the only response belongs to the request of the gate.
        app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED
        app.after_render += self._ask

    def open_later(self, delay_s: float = SILENCE_S) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._open)

    def close(self, keyboard: Input, *, drops_enter: bool = False) -> bool:
        """End the question. Pass the keys that were held back to the next prompt, followed by the keys typed
        after the answer.

        Return whether any key was typed after the answer. With `drops_enter`, an Enter directly after the
        answer is dropped.
        """
        if self._timer is not None:
            self._timer.cancel()
        typed_after = get_typeahead(keyboard)
        is_typing = bool(typed_after)
        if drops_enter and is_typing and typed_after[0].key == Keys.ControlM:
            del typed_after[0]
        text = keep_text(self.held_keys)
        self.has_text = bool(text)
        store_typeahead(keyboard, [*text, *typed_after])
        return is_typing

    def _ask(self, app: Application[T]) -> None:
        if self._timer is not None:
            return
        if app.output.responds_to_cpr:
            self._was_asked = True
            app.output.ask_for_cpr()
            self.open_later(self._patience_s)
        else:
            self.open_later()

    def _take_answer(self, event: KeyPressEvent) -> None:
        if self._was_asked and is_answer(event.data):
            self._open()

    def _hold_key(self, event: KeyPressEvent) -> None:
        if any(press.key in INTERRUPTS for press in event.key_sequence):
            event.app.exit(exception=Stopped())
        self.held_keys += event.key_sequence

    def _open(self) -> None:
        self.is_open = True


def keep_text(presses: Iterable[KeyPress]) -> list[KeyPress]:
    """Return those of the keys that form or edit a text; other keys are left out. Enter becomes a line break.
    Line breaks at the beginning and the end are left out."""
    text_keys: list[KeyPress] = []
    for press in presses:
        if press.key == Keys.ControlM:
            press = KeyPress(Keys.ControlJ, "\n")
        if (_is_character(press.key) or press.key in EDITING) and (text_keys or press.key != Keys.ControlJ):
            text_keys.append(press)
    while text_keys and text_keys[-1].key == Keys.ControlJ:
        text_keys.pop()
    return text_keys


def _is_character(key: Keys | str) -> bool:
    return not isinstance(key, Keys) and key >= " " and not "\x7f" <= key <= "\x9f"


class Choice(Generic[T]):
    """A question with numbered options. Letters and digits answer immediately; Enter chooses the marked
    option."""

    def __init__(
        self,
        question: str,
        options: Sequence[Option[T]],
        default: int = 0,
        *,
        keyboard: Input | None = None,
        output: Output | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._question, self._options, self._marked = question, options, default
        self._gate = gate or Gate()
        self._is_plain = output is None and is_dumb_terminal()
        self._output = output or get_app_session().output
        self._is_by_key = False
        self.may_get_enter = False
        """Whether the person answered with a letter or digit and pressed no key afterwards. They may still
        press Enter out of habit."""
        self._app: Application[T | None] = Application(
            layout=self._make_layout(),
            key_bindings=merge_key_bindings([self._bind_keys(), self._gate.keys]),
            style=STYLE,
            input=keyboard,
            output=DummyOutput() if self._is_plain else output,
        )

    async def ask(self) -> T | None:
        """Ask the question and return the value of the chosen option. Return None for Esc or Ctrl-D. Ctrl-C
        raises `Stopped`."""
        if self._is_plain:
            self._print(f"{self._question}\n{''.join(map(self._format_line, range(len(self._options))))}")
            self._print(f"Number or letter (Enter: {self._options[self._marked].label}): ")
        self._gate.watch(self._app)
        answer = None
        try:
            answer = await self._app.run_async()
        except EOFError:
            pass
        finally:
            is_typing = self._gate.close(self._app.input, drops_enter=self._is_by_key)
            self.may_get_enter = self._is_by_key and not is_typing
            if self._is_plain:
                self._print("\n" if answer is None else f"{self._options[self._marked].label}\n")
        return answer

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("c-c")(lambda event: event.app.exit(exception=Stopped()))
        keys.add("<sigint>")(lambda event: event.app.exit(exception=Stopped()))
        keys.add("escape", eager=True)(lambda event: event.app.exit(exception=EOFError()))
        keys.add("c-d")(lambda event: event.app.exit(exception=EOFError()))
        keys.add(Keys.BracketedPaste)(self._keep_paste)
        keys.add("up")(lambda event: self._mark(self._marked - 1))
        keys.add("down")(lambda event: self._mark(self._marked + 1))
        keys.add("enter")(lambda event: event.app.exit(result=self._options[self._marked].value))
        for place, option in enumerate(self._options):
            if place < 10:
                self._bind(keys, str((place + 1) % 10), place)
            for letter in {option.key.lower(), option.key.upper()} - {""}:
                self._bind(keys, letter, place)
        return keys

    def _bind(self, keys: KeyBindings, key: str, place: int) -> None:
        @keys.add(key)
        def _(event: KeyPressEvent) -> None:
            self._marked, self._is_by_key = place, True
            event.app.exit(result=self._options[place].value)

    def _keep_paste(self, event: KeyPressEvent) -> None:
        self._gate.held_keys += event.key_sequence  # a paste is not an answer; it is text for the next prompt

    def _mark(self, place: int) -> None:
        self._marked = place % len(self._options)
        if self._is_plain:
            self._print(f"\n{self._format_line(self._marked).rstrip()} ")

    def _make_layout(self) -> Layout:
        options = FormattedTextControl(self._render, focusable=True, show_cursor=False)
        return Layout(
            HSplit(
                [
                    Window(
                        FormattedTextControl(f" {self._question}"), wrap_lines=True, dont_extend_height=True
                    ),
                    Window(options, wrap_lines=True, dont_extend_height=True),
                ]
            ),
            focused_element=options,
        )

    def _render(self) -> StyleAndTextTuples:
        drawn: StyleAndTextTuples = []
        for place, option in enumerate(self._options):
            is_marked = place == self._marked
            style = "class:marked" if is_marked else ""
            if is_marked:
                drawn.append(("[SetCursorPosition]", ""))
            drawn.append((style, f"   {'>' if is_marked else ' '} {place + 1}. {option.label}"))
            drawn.append(("class:key", f" ({option.key})" if option.key else ""))
            drawn.append(("", "\n"))
        return drawn[:-1]

    def _format_line(self, place: int) -> str:
        option = self._options[place]
        key = f" ({option.key})" if option.key else ""
        return f"   {'>' if place == self._marked else ' '} {place + 1}. {option.label}{key}\n"

    def _print(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


async def ask_line(
    question: str, *, keyboard: Input | None = None, output: Output | None = None, gate: Gate | None = None
) -> str | None:
    """Ask for a line of text. Return None for Esc, Ctrl-D or an empty line. Ctrl-C raises `Stopped`."""
    gate = gate or Gate()
    keys = KeyBindings()
    keys.add("escape")(lambda event: event.app.exit(exception=EOFError()))
    session: PromptSession[str] = PromptSession(
        f"{question} ",
        key_bindings=merge_key_bindings([keys, gate.keys]),
        interrupt_exception=Stopped,
        input=keyboard,
        output=output,
    )
    if output is None and is_dumb_terminal():
        gate.open_later()
    else:
        gate.watch(session.app)
    try:
        return (await session.prompt_async()).strip() or None
    except EOFError:
        return None
    finally:
        gate.close(session.app.input)
