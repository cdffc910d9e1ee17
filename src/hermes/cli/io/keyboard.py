"""Questions at a plain terminal that are answered with one key. Keys pressed before the question is shown are
discarded.

`hermes.terminal_input` describes how earlier and later keys are distinguished. This module imports only
`termios`, so that short commands start fast.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any

from hermes.terminal_input import REQUEST, SILENCE_S, AnswerReader, can_answer

ESCAPE_S = 0.05
"""All bytes of a key sequence that starts with Esc arrive within this time."""
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
YES, NO = b"yY", b"nN\r\n\x04"
NEXT, LEAVE = b"\r\n ", b"qQ\x04"
CLEAR_LINE = "\r\x1b[K"


class _Resumed(Exception):
    """The process was suspended with Ctrl-Z during the question and has been resumed."""


def confirm(question: str) -> bool:
    """Ask a question on the terminal of stdin. Return whether the answer is yes. `y` and `n` answer at once.
    Enter, Esc and Ctrl-D mean no."""
    return _ask(f"{question} [y/N] ", YES, NO, "y\n", "n\n")


def wait_for_next(hint: str) -> bool:
    """Show `hint` until the user presses a key. Return True for Enter or Space, and False for `q`, Esc or
    Ctrl-D. Other keys have no effect."""
    return _ask(hint, NEXT, LEAVE, CLEAR_LINE, CLEAR_LINE)


def _ask(question: str, accepting: bytes, declining: bytes, accepted: str, declined: str) -> bool:
    """Show `question` and wait for one key. Return True for a key in `accepting`, and False for Esc or a key in
    `declining`. After the key, write the text `accepted` or `declined` to the screen."""
    with _open_screen() as screen:
        while True:
            try:
                with _open_keyboard() as keyboard:
                    _write(screen, question)
                    _discard(keyboard, screen)
                    answer = _read_answer(keyboard, accepting, declining)
                    _write(screen, accepted if answer else declined)
                    return answer
            except _Resumed:
                continue
            except KeyboardInterrupt:
                _write(screen, "\n")
                raise


def discard_typeahead() -> None:
    """Discard keys typed before the question that was just printed. Stdin must be a terminal."""
    with suppress(_Resumed), _open_screen() as screen, _open_keyboard() as keyboard:
        _discard(keyboard, screen)


def _discard(keyboard: int, screen: int) -> None:
    """Discard the keys that were pressed before the question was shown.

    Send a request to the terminal, and discard all input before its reply. Without a reply, discard input for
    `SILENCE_S` seconds. Read one byte at a time, because the bytes after the reply belong to the answer.
    """
    is_asked = can_answer()
    if is_asked:
        _write(screen, REQUEST)
    answer, until = AnswerReader(), monotonic() + SILENCE_S
    while (byte := _read(keyboard, until - monotonic())) is not None:
        if not byte or (answer.feed(byte) and is_asked):
            return


def _read_answer(keyboard: int, accepting: bytes, declining: bytes) -> bool:
    while byte := _read(keyboard, None):
        if byte in accepting:
            return True
        if byte in declining or (byte == b"\x1b" and not _skip_sequence(keyboard)):
            return False
    return False  # the end of input


def _skip_sequence(keyboard: int) -> bool:
    """Called after an Esc byte was read. Read the rest of a key sequence, such as that of an arrow key. Return
    False if Esc alone was pressed."""
    byte = _read(keyboard, ESCAPE_S)
    if not byte:
        return False
    if byte in b"[O":  # the last byte is a letter or a tilde
        while (byte := _read(keyboard, ESCAPE_S)) and not b"@" <= byte <= b"~":
            pass
    return True


def _read(keyboard: int, wait_s: float | None) -> bytes | None:
    """Return the next byte from the keyboard. Return empty bytes at the end of input, and None if no byte
    arrives within `wait_s` seconds."""
    if wait_s is not None and not select.select([keyboard], [], [], max(wait_s, 0))[0]:
        return None
    try:
        return os.read(keyboard, 1)
    except OSError:  # the terminal is gone
        return b""


def _write(screen: int, text: str) -> None:
    with suppress(OSError):  # if the terminal is gone, reading reports the end of input
        os.write(screen, text.encode(sys.stdout.encoding or "utf-8", "replace"))


@contextmanager
def _open_screen() -> Iterator[int]:
    """Open the output for the question: stdout, or the terminal that stdin reads from if stdout is not a
    terminal."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        yield sys.stdout.fileno()
        return
    try:
        screen = os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY)
    except OSError:  # the terminal has no name; most terminals accept writes on any descriptor
        screen = os.dup(sys.stdin.fileno())
    try:
        yield screen
    finally:
        os.close(screen)


@contextmanager
def _open_keyboard() -> Iterator[int]:
    """Read the keyboard key by key, without echo. The mode of the terminal is always restored, even after a
    signal."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    quiet = termios.tcgetattr(keyboard)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    handlers: dict[signal.Signals, Any] = {}

    def restore() -> None:
        with suppress(termios.error):
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

    def end(number: int, _: FrameType | None) -> None:
        restore()
        signal.signal(number, handlers[signal.Signals(number)])
        os.kill(os.getpid(), number)

    def suspend(number: int, _: FrameType | None) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        raise _Resumed

    try:
        for number in ENDINGS:
            handlers[number] = signal.signal(number, end)
        handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, suspend)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, quiet)
        yield keyboard
    finally:
        restore()
        for number, handler in handlers.items():
            signal.signal(number, handler)
