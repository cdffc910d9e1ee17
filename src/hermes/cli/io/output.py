"""Output of commands: results go to stdout, errors to stderr as one line.

A reader that closes the pipe (`hermes sessions list | head -1`) is not an error. The remaining output is
discarded, so that the command completes and its exit code is correct.
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
"""Maximum number of remarks of one kind that are printed. Further remarks are only counted."""
LONGEST_LINE = 300


def prepare_streams() -> None:
    """Prepare the standard streams.

    A character that the terminal cannot show is replaced by `?`. A closed standard stream is replaced by
    /dev/null. Otherwise the store could be opened under the free file descriptor, and output would be written
    into it.
    """
    logs.use_last_resort(_make_log_formatter)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _make_log_formatter() -> Formatter:
    """Return the formatter for warnings that no other handler shows. It redacts the warnings and makes them
    printable, because they contain names of files and sessions and may quote a server."""
    import logging

    from hermes.secrets import redact

    class TerminalFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return make_readable(redact(super().format(record)))

    return TerminalFormatter()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without changes. Text from outside must already have passed through `make_printable`."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def shorten_lines(lines: list[str]) -> list[str]:
    """Return the lines in printable form. If there are more than `MOST_TOLD`, return the first ones, followed
    by a line that says how many were left out."""
    more = len(lines) - MOST_TOLD
    first = [make_printable(line, width_limit=LONGEST_LINE) for line in lines[:MOST_TOLD]]
    return [*first, f"and {more} more"] if more > 0 else first


def get_terminal_width() -> int | None:
    """Return the number of columns of the terminal; None if stdout is a file or a pipe, where lines are not
    cut."""
    if not sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    with suppress(OSError):
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


def has_screen() -> bool:
    """Return whether a full-screen program can run. Textual draws on stderr, so stderr must be a terminal
    too."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"


def fold_line(line: str, indent: int = 0) -> list[str]:
    """Wrap a line at the width of the terminal. Do not wrap it if stdout is not a terminal."""
    width = get_terminal_width()
    if width is None or len(line) <= width:
        return [line]
    from textwrap import wrap

    return wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def has_colour() -> bool:
    """Return whether stdout is a terminal with colours enabled (see no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


STYLES = {"bold": 1, "dim": 2, "underline": 4, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


def apply_style(text: str, *styles: str) -> str:
    """Return the text with terminal styles, or unchanged if colours are off."""
    if not text or not has_colour():
        return text
    return f"\x1b[{';'.join(str(STYLES[style]) for style in styles)}m{text}\x1b[0m"


def print_paged(lines: Iterable[str]) -> None:
    """Print long output. On a terminal, the user's pager shows it."""
    pager = _find_pager() if sys.stdout.isatty() else []
    if pager in ([], ["cat"]):
        print_lines(lines)
        return
    import subprocess

    settings = {"LESS": "FRX", **os.environ}  # show colours, and exit at once if the text fits on the screen
    try:
        reader = subprocess.Popen(
            pager, stdin=subprocess.PIPE, encoding="utf-8", errors="replace", env=settings
        )
    except OSError:  # the program does not exist
        print_lines(lines)
        return
    try:
        with suppress(BrokenPipeError), reader.stdin or nullcontext():
            for line in lines:
                print(line, file=reader.stdin)
    except KeyboardInterrupt:
        pass  # the pager received the signal too and continues until the user quits it
    while reader.poll() is None:
        with suppress(KeyboardInterrupt):
            reader.wait()


def _find_pager() -> list[str]:
    """Return the command line of the pager, or an empty list if PAGER is invalid."""
    import shlex

    try:
        return shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # an unclosed quote
        return []


def print_json(value: object, chosen: object = None) -> None:
    """Print a value as JSON, with terminal control characters escaped.

    `chosen` is the value of `--json`, which may name the fields to print.
    """
    import msgspec

    from hermes.cli.io.json_fields import select_fields

    text = msgspec.json.format(msgspec.json.encode(select_fields(value, chosen)), indent=2).decode()
    print_document(escape_json(text))


def print_document(text: str) -> None:
    """Print a document in UTF-8, independent of the terminal's encoding."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def print_error(message: str) -> None:
    with suppress(OSError):  # stderr is closed
        print(f"hermes: {make_printable(message)}", file=sys.stderr, flush=True)


def print_details(lines: Iterable[str]) -> None:
    """Print lines that explain an error, indented below it, to stderr."""
    with suppress(OSError):
        for line in lines:
            print(f"  {make_printable(line)}", file=sys.stderr, flush=True)


def print_harmless(lines: Iterable[str]) -> None:
    """Print lines to stderr without terminal control characters."""
    with suppress(OSError):
        for line in lines:
            print(make_readable(line), file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """Ask a yes-no question. Only `y` or `yes` means yes; the end of input means no.

    At a terminal, a key pressed before the question was shown does not count. Without a terminal, a line is
    read: `echo y | hermes ...`.
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
    """Redirect stdout to /dev/null, so that the interpreter's flush at exit does not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
