"""Keyboard handling during an answer: typed text is not echoed between the lines of the answer.

The typed text appears in the next prompt. A few commands run immediately. Ctrl-C still interrupts.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys


@contextmanager
def suppress_echo() -> Iterator[None]:
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, ValueError, OSError):  # no terminal
        yield
        return
    quiet = termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL  # prompt_toolkit expects a carriage return for Enter
    # Without IEXTEN the terminal driver does not consume any key. On BSD and macOS, Ctrl-O would discard
    # output.
    quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    quiet[3] |= termios.NOFLSH  # Ctrl-C keeps the input typed before it
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


class TypedAhead:
    """Reads the keyboard during an answer and runs commands. All other keys are kept for the next prompt or
    question."""

    def __init__(
        self, keyboard: Input, run_command: Callable[[str], bool], show: Callable[[str], None]
    ) -> None:
        """`run_command` gets each line that begins with a slash, and returns whether it ran the line.

        `show` gets the current text of an unfinished command line.
        """
        self._keyboard, self._run_command, self._show = keyboard, run_command, show
        self._earlier: list[KeyPress] = []
        self._line: list[KeyPress] = []

    @contextmanager
    def read(self) -> Iterator[None]:
        if not _is_terminal(self._keyboard):
            yield
            return
        with self._keyboard.attach(self._take_keys):
            try:
                yield
            finally:
                self._take_keys()
                self._line += self._keyboard.flush_keys()
                self.hand_over()

    def hand_over(self) -> None:
        """Pass the typed keys to the next prompt or question."""
        store_typeahead(self._keyboard, [*self._earlier, *self._line])
        self._earlier, self._line = [], []
        self._show("")

    def _take_keys(self) -> None:
        for press in self._keyboard.read_keys():
            text = _read_line(self._line)
            is_new_line = (
                bool(self._line) and self._line[-1].key == Keys.Escape
            )  # Esc Enter inserts a line break
            if press.key != Keys.ControlM or is_new_line:
                self._line.append(press)
            elif text.startswith("/") and self._run_command(text):
                self._line = []
            else:
                self._earlier += [*self._line, press]
                self._line = []
        text = _read_line(self._line)
        self._show(text if text.startswith("/") else "")


def _is_terminal(keyboard: Input) -> bool:
    try:
        return os.isatty(keyboard.fileno())
    except (NotImplementedError, ValueError, OSError):
        return False


def _read_line(presses: Iterable[KeyPress]) -> str:
    """Return the text of a line. Return an empty string if it contains keys other than characters and
    Backspace."""
    text = ""
    for press in presses:
        if press.key == Keys.ControlH:
            text = text[:-1]
        elif isinstance(press.key, Keys):
            return ""
        else:
            text += press.key
    return text
