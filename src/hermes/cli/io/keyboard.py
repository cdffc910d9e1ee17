"""Questions at a plain terminal: keys that were pressed before a question was shown are discarded.

`hermes.terminal_input` says how earlier and later keys are told apart. Nothing but `termios` is needed, so that a short
command starts fast.
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
"""Bytes of one key that begins with Esc follow each other within this time."""
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
YES, NO = b"yY", b"nN\r\n\x04"


class _Resumed(Exception):
    """The process was suspended with Ctrl-Z at the question, and runs again."""


def confirm(question: str) -> bool:
    """Ask on the terminal of stdin. `y` and `n` answer at once; Enter, Esc and Ctrl-D mean no."""
    with _open_screen() as screen:
        while True:
            try:
                with _open_keyboard() as keyboard:
                    _write(screen, f"{question} [y/N] ")
                    _discard(keyboard, screen)
                    answer = _read_answer(keyboard)
                    _write(screen, "y\n" if answer else "n\n")
                    return answer
            except _Resumed:
                continue
            except KeyboardInterrupt:
                _write(screen, "\n")
                raise


def discard_typeahead() -> None:
    """Discard what was typed before the question that was just printed. Stdin must be a terminal."""
    with suppress(_Resumed), _open_screen() as screen, _open_keyboard() as keyboard:
        _discard(keyboard, screen)


def _discard(keyboard: int, screen: int) -> None:
    """Read up to the answer of the terminal, one byte at a time: what follows it counts."""
    is_asked = can_answer()
    if is_asked:
        _write(screen, REQUEST)
    answer, until = AnswerReader(), monotonic() + SILENCE_S
    while (byte := _read(keyboard, until - monotonic())) is not None:
        if not byte or (answer.feed(byte) and is_asked):
            return


def _read_answer(keyboard: int) -> bool:
    while byte := _read(keyboard, None):
        if byte in YES:
            return True
        if byte in NO or (byte == b"\x1b" and not _skip_sequence(keyboard)):
            return False
    return False  # the end of input


def _skip_sequence(keyboard: int) -> bool:
    """Read the rest of a key such as an arrow; False if it was Esc alone."""
    byte = _read(keyboard, ESCAPE_S)
    if not byte:
        return False
    if byte in b"[O":  # up to its last byte, which is a letter or a tilde
        while (byte := _read(keyboard, ESCAPE_S)) and not b"@" <= byte <= b"~":
            pass
    return True


def _read(keyboard: int, wait_s: float | None) -> bytes | None:
    """The next byte; nothing at the end of input; None if there is none in time."""
    if wait_s is not None and not select.select([keyboard], [], [], max(wait_s, 0))[0]:
        return None
    try:
        return os.read(keyboard, 1)
    except OSError:  # the terminal is gone
        return b""


def _write(screen: int, text: str) -> None:
    with suppress(OSError):  # a terminal that is gone ends the input, too
        os.write(screen, text.encode(sys.stdout.encoding or "utf-8", "replace"))


@contextmanager
def _open_screen() -> Iterator[int]:
    """Where the question is seen: stdout, or the terminal of stdin where stdout is written elsewhere."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        yield sys.stdout.fileno()
        return
    try:
        screen = os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY)
    except OSError:  # it has no name here; most terminals can be written to by any of their numbers
        screen = os.dup(sys.stdin.fileno())
    try:
        yield screen
    finally:
        os.close(screen)


@contextmanager
def _open_keyboard() -> Iterator[int]:
    """The keyboard, key by key and without echo. The terminal is restored however this ends, by a signal, too."""
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
