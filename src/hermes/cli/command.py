"""What all sub-commands share: exit codes, a parser whose complaint is one line, typed arguments."""

from __future__ import annotations

import argparse
from typing import NoReturn

from hermes.cli import output
from hermes.errors import HermesError

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130

MOST_ROWS = 1_000_000_000


class Refused(HermesError):
    """The command will not do it; the message says why."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        output.complain(f"{message} (see '{self.prog} --help')")
        raise SystemExit(USAGE)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        output.say([])  # help and version are out, or their reader is gone
        super().exit(status, message)


def shows_help(parser: argparse.ArgumentParser) -> None:
    """Let a command print its help when no sub-command of it is named."""

    def run(_: argparse.Namespace) -> int:
        output.say(parser.format_help().splitlines())
        return DONE

    parser.set_defaults(run=run)


def row_count(text: str) -> int:
    """An argument that says how many rows: 1 or more."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, not {text!r}")
    return count


def plain_text(text: str) -> str:
    """An argument that is compared with stored text, so it has to be text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("not valid UTF-8") from None
    return text
