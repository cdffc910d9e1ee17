"""Keyboard handling during an answer. Typed text is not echoed between the lines of the answer.

The typed text is shown below the answer and appears in the next prompt. A few slash commands run immediately.
Ctrl-C still interrupts.
"""

from __future__ import annotations

import os
import re
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from hermes.chat.view.status_line import NOTHING_TYPED, TypedText


@contextmanager
def suppress_echo() -> Iterator[None]:
    """Turn off the echo of typed keys during the `with` block. If stdin is not a terminal, do nothing."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, ValueError, OSError):  # no terminal
        yield
        return
    quiet = termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL  # prompt_toolkit expects a carriage return for Enter
    # Without IEXTEN, the terminal driver consumes no key. With it, Ctrl-O would discard output on BSD and
    # macOS.
    quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    quiet[3] |= termios.NOFLSH  # Ctrl-C does not discard the input typed before it
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


@contextmanager
def restore_echo() -> Iterator[None]:
    """Set the terminal to its usual mode, with echo, during the `with` block, in which another program uses it.
    After the block, return to the mode from before."""
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, ValueError, OSError):  # no terminal
        yield
        return
    usual = termios.tcgetattr(terminal)
    usual[0] |= termios.ICRNL
    usual[1] |= termios.OPOST
    usual[3] |= termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG
    usual[3] &= ~termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSADRAIN, usual)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class TypedAhead:
    """Reads the keyboard while an answer is made. A slash command that may run at once is run. All other keys
    are kept for the next prompt or question."""

    def __init__(
        self, keyboard: Input, run_command: Callable[[str], bool], show: Callable[[TypedText], None]
    ) -> None:
        """`run_command` receives each typed line that begins with a slash. It returns whether it ran the line
        as a command.

        `show` receives the whole typed text after each key.
        """
        self._keyboard, self._run_command, self._show = keyboard, run_command, show
        self._earlier: list[KeyPress] = []
        self._sent: list[str] = []
        """The texts of the complete inputs whose keys are in `_earlier`."""
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
        self._earlier, self._sent, self._line = [], [], []
        self._show(NOTHING_TYPED)

    def _take_keys(self) -> None:
        for press in self._keyboard.read_keys():
            is_new_line = (
                bool(self._line) and self._line[-1].key == Keys.Escape
            )  # Esc Enter inserts a line break
            if press.key != Keys.ControlM or is_new_line:
                self._line.append(press)
                continue
            text = preview_text(self._line)
            if text.startswith("/") and self._run_command(text):
                self._line = []
                continue
            self._earlier += [*self._line, press]
            self._line = []
            if text.strip():
                self._sent.append(text)
        self._show(TypedText(tuple(self._sent), preview_text(self._line)))


def _is_terminal(keyboard: Input) -> bool:
    try:
        return os.isatty(keyboard.fileno())
    except (NotImplementedError, ValueError, OSError):
        return False


_LAST_WORD = re.compile(r"\S*\s*\Z")
EDITS: dict[Keys | str, Callable[[str, str], tuple[str, str]]] = {
    Keys.ControlJ: lambda before, behind: (f"{before}\n", behind),
    Keys.ControlH: lambda before, behind: (before[:-1], behind),
    Keys.ControlW: lambda before, behind: (_LAST_WORD.sub("", before), behind),
    Keys.ControlU: lambda before, behind: ("", behind),
    Keys.ControlK: lambda before, behind: (before, ""),
    Keys.Delete: lambda before, behind: (before, behind[1:]),
    Keys.Left: lambda before, behind: (before[:-1], before[-1:] + behind),
    Keys.Right: lambda before, behind: (before + behind[:1], behind[1:]),
    Keys.ControlA: lambda before, behind: ("", before + behind),
    Keys.Home: lambda before, behind: ("", before + behind),
    Keys.ControlE: lambda before, behind: (before + behind, ""),
    Keys.End: lambda before, behind: (before + behind, ""),
}
"""The effect of each editing key: a function from the text before and after the cursor to the new texts."""


def preview_text(presses: Iterable[KeyPress]) -> str:
    """Return the text that the keys `presses` will produce when the next prompt receives them. Keys for the
    history and for completion are ignored."""
    before, behind, last = "", "", None
    for press in presses:
        key = Keys.ControlJ if press.key == Keys.ControlM and last == Keys.Escape else press.key
        if key in EDITS:
            before, behind = EDITS[key](before, behind)
        elif key == Keys.BracketedPaste:
            before += press.data.replace("\r\n", "\n").replace("\r", "\n")
        elif not isinstance(key, Keys):
            before += key
        last = press.key
    return before + behind
