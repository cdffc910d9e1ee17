"""What the command says, and to whom: results to stdout, complaints to stderr as one line.

A reader that goes away (`hermes sessions list | head -1`) is not an error. The rest is then written to
nowhere, so that a command runs to its end and its exit code stays true.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from hermes import logs
from hermes.text import escape_json, make_printable, make_readable

if TYPE_CHECKING:
    from logging import Formatter

MOST_TOLD = 20
"""Remarks of one kind that are told one by one; of more, the number is told."""
LONGEST_LINE = 300


def prepare_streams() -> None:
    """A terminal that cannot show a character shows `?` instead of ending the program.

    A stream that whoever started us closed goes nowhere: or the store would get its number, and what is said.
    """
    logs.use_last_resort(_make_log_formatter)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _make_log_formatter() -> Formatter:
    """For warnings that are only logged: they name files and sessions, and may quote what a server said."""
    import logging

    from hermes.secrets import redact

    class TerminalFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return make_readable(redact(super().format(record)))

    return TerminalFormatter()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are. Text from outside must have gone through `make_printable` already."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def shorten_lines(lines: list[str]) -> list[str]:
    """The lines, fit to print; of very many, the first and how many more there are."""
    more = len(lines) - MOST_TOLD
    first = [make_printable(line, width_limit=LONGEST_LINE) for line in lines[:MOST_TOLD]]
    return [*first, f"and {more} more"] if more > 0 else first


def format_size(count: float) -> str:
    """Bytes as people say them: `812 bytes`, `1.4 kB`, `12.4 MB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} GB"


def get_terminal_width() -> int | None:
    """How many columns the reader has; None if nobody looks: what goes into a file or a pipe is not cut."""
    if not sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    with suppress(OSError):
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


def fold_line(line: str) -> list[str]:
    """A long line as several, folded where the reader's terminal ends; one where nobody looks."""
    width = get_terminal_width()
    if width is None or len(line) <= width:
        return [line]
    from textwrap import wrap

    return wrap(line, width)


def has_colour() -> bool:
    """Whether the reader is a terminal that wants colours (see no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


STYLES = {"bold": 1, "dim": 2, "underline": 4, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


def apply_style(text: str, *styles: str) -> str:
    """The text as a terminal shows it; as it is, if there is none."""
    if not text or not has_colour():
        return text
    return f"\x1b[{';'.join(str(STYLES[style]) for style in styles)}m{text}\x1b[0m"


def print_paged(lines: Iterable[str]) -> None:
    """Print what may be long: a terminal's reader gets it in the pager that they like, page by page."""
    pager = _find_pager() if sys.stdout.isatty() else []
    if pager in ([], ["cat"]):
        print_lines(lines)
        return
    import subprocess

    settings = {"LESS": "FRX", **os.environ}  # colours, and no pager for what fits
    try:
        reader = subprocess.Popen(
            pager, stdin=subprocess.PIPE, encoding="utf-8", errors="replace", env=settings
        )
    except OSError:  # there is no such program
        print_lines(lines)
        return
    try:
        with suppress(BrokenPipeError), reader.stdin or nullcontext():
            for line in lines:
                print(line, file=reader.stdin)
    except KeyboardInterrupt:
        pass  # the pager had it, too, and goes on until it is left
    while reader.poll() is None:
        with suppress(KeyboardInterrupt):
            reader.wait()


def _find_pager() -> list[str]:
    """The words that start the pager; none where what is set names no program."""
    import shlex

    try:
        return shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # quotes that do not end
        return []


def print_json(value: object) -> None:
    """Print a value as JSON, in which nothing can act on a terminal."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print_document(escape_json(text))


def print_document(text: str) -> None:
    """Print a whole document in UTF-8, whatever the terminal's own encoding is."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def print_error(message: str) -> None:
    with suppress(OSError):  # nobody listens
        print(f"hermes: {make_printable(message)}", file=sys.stderr, flush=True)


def print_details(lines: Iterable[str]) -> None:
    """What may help after a complaint, below it."""
    with suppress(OSError):
        for line in lines:
            print(f"  {make_printable(line)}", file=sys.stderr, flush=True)


def print_harmless(lines: Iterable[str]) -> None:
    """Lines for stderr as they are, but harmless."""
    with suppress(OSError):
        for line in lines:
            print(make_readable(line), file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """Ask, and take only a yes for a yes. The end of input is a no.

    A person at a terminal presses `y` after the question was shown. Otherwise a line is read: `echo y | hermes ...`.
    """
    if sys.stdin.isatty():
        from hermes.cli.io import keyboard

        return keyboard.confirm(question)
    try:
        sys.stdout.write(f"{make_printable(question)} [y/N] ")
        sys.stdout.flush()
    except OSError as error:
        _give_up_on_stdout(error)
        return False
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print_lines([""])
    return answer.strip().lower() in {"y", "yes"}


def _give_up_on_stdout(error: OSError) -> None:
    silence_stdout()
    if not isinstance(error, BrokenPipeError):
        raise error


def silence_stdout() -> None:
    """Send what is still to be printed to nowhere; the interpreter's own last flush too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
