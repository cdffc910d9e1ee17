"""What the command says, and to whom: results to stdout, complaints to stderr as one line.

A reader that goes away (`hermes sessions list | head -1`) is not an error. The rest is then written to
nowhere, so that a command runs to its end and its exit code stays true.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress

from hermes.text import printable

# Valid JSON as they are, but a terminal would act on them: C1 controls, and what reorders or breaks lines.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def prepare() -> None:
    """A terminal that cannot show a character shows `?` instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(lines: Iterable[str]) -> None:
    """Print lines as they are. Text from outside must have gone through `printable` already."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def say_json(value: object) -> None:
    """Print a value as JSON in UTF-8, whatever the terminal's own encoding is."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    safe = _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(safe.encode() + b"\n")
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up_on_stdout(error)


def complain(message: str) -> None:
    with suppress(OSError):  # nobody listens
        print(f"hermes: {printable(message)}", file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    """Ask, and take only y or yes for a yes. The end of input is a no."""
    try:
        sys.stdout.write(f"{question} [y/N] ")
        sys.stdout.flush()
    except OSError as error:
        _give_up_on_stdout(error)
        return False
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        say([""])
    return answer.strip().lower() in {"y", "yes"}


def _give_up_on_stdout(error: OSError) -> None:
    hush()
    if not isinstance(error, BrokenPipeError):
        raise error


def hush() -> None:
    """Send what is still to be printed to nowhere; the interpreter's own last flush too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
