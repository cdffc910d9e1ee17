"""What all sub-commands share: exit codes, a parser whose complaint is one line, typed arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hermes.cli import output
from hermes.errors import HermesError

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130

MOST_ROWS = 1_000_000_000

Run = Callable[[argparse.Namespace], int]
AddCommand = Callable[[str, Run, str], argparse.ArgumentParser]


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


def commands_of(parser: argparse.ArgumentParser) -> AddCommand:
    """What adds the commands of a group; each takes `--store`."""
    shows_help(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, run: Run, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        added.set_defaults(run=run)
        added.add_argument("--store", type=Path, metavar="FILE", help="another store than that of the home")
        return added

    return add


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
