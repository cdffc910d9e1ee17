"""The keyboard while nobody is asked anything: what is typed is not shown between the lines of an answer.

It is kept, and stands in the next prompt. Ctrl-C still interrupts.
"""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def suppress_echo() -> Iterator[None]:
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, ValueError, OSError):  # no terminal
        yield
        return
    quiet = termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL  # a prompt knows Enter by its own character
    # Without IEXTEN no key of the terminal driver takes a character away: on BSD and macOS Ctrl-O would discard output.
    quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    quiet[3] |= termios.NOFLSH  # Ctrl-C throws nothing away that was typed before it
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
