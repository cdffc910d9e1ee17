"""What all commands share: exit codes, a parser whose complaint is one line, commands that load when they are named.

A group of commands is a table of names. The module behind a name has `define(parser, words)`, which adds arguments and
says what `run`s, and is imported only if the command is the one that was typed: `hermes sessions list` pays for nothing
but itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hermes.cli.io import output
from hermes.errors import HermesError

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130

MOST_ROWS = 1_000_000_000
LARGEST_ID = 2**63 - 1

Run = Callable[[argparse.Namespace], int]
Words = Sequence[str] | None
"""What was typed behind the name of a command, flags left out; None loads every command, for whoever lists them all."""


class Access(Enum):
    """Who may run a command."""

    READS = "reads"
    """Changes nothing that stays."""
    CHANGES = "changes"
    """Changes something that can be put right again; the agent's tools may run it, too."""
    PERSON = "person"
    """Changes settings, keys or who is let in, or deletes: not for a tool of the agent."""


class Command(NamedTuple):
    module: str
    """Has `define(parser, words)`; behind a colon the name of another function for it, where a file has several."""
    summary: str
    access: Access | None = None
    """Every command needs one; a command without is treated as `PERSON`."""
    reads_with: tuple[str, ...] = ()
    """Arguments (by `dest`) with which a `PERSON` command changes nothing: `dry_run`."""
    person_with: tuple[str, ...] = ()
    """Arguments (by `dest`) that make a command one for a person."""

    def needs_person(self, arguments: argparse.Namespace) -> bool:
        def is_given(name: str) -> bool:
            return getattr(arguments, name, None) not in (None, False)

        if any(map(is_given, self.person_with)):
            return True
        is_for_person = self.access in (None, Access.PERSON)
        return is_for_person and not any(map(is_given, self.reads_with))


class Refused(HermesError):
    """The command will not do it; the message says why, and `details` what may help, a line each."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details


class WrongUsage(HermesError):
    """The command was typed wrongly in a way that only running it shows."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        output.complain(f"{message} (see '{self.prog} --help')")
        raise SystemExit(USAGE)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What is not known is the mistake of the command it was typed for, whose help may help."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from difflib import get_close_matches

            near = get_close_matches(str(value), action.choices, 1)
            meant = f"; did you mean '{near[0]}'?" if near else ""
            self.error(f"there is no command '{value}'{meant}")
        super()._check_value(action, value)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        output.say([])  # help and version are out, or their reader is gone
        super().exit(status, message)


def group(parser: argparse.ArgumentParser, commands: Mapping[str, Command], words: Words) -> None:
    """Give a parser commands, and its help to run when none of them is named."""

    def show_help(_: argparse.Namespace) -> int:
        output.say(parser.format_help().splitlines())
        return DONE

    parser.set_defaults(run=show_help)
    # Named, or argparse lays out the usage of every parser to find out.
    added = parser.add_subparsers(title="commands", metavar="COMMAND", prog=parser.prog)
    named = words[0] if words else None
    for name, command in commands.items():
        summary = command.summary
        one = added.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        one.set_defaults(command=command, command_name=one.prog)
        if words is None or name == named:
            module, _, function = command.module.partition(":")
            define = getattr(import_module(module), function or "define")
            define(one, None if words is None else words[1:])


def takes_store(parser: argparse.ArgumentParser, run: Run) -> None:
    """A command that works on a store: that of the home, or another file."""
    parser.set_defaults(run=run)
    parser.add_argument("--store", type=Path, metavar="FILE", help="another store than that of the home")


def takes_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def takes_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def takes_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")


def row_count(text: str) -> int:
    """An argument that says how many rows: 1 or more."""
    return _whole(text, MOST_ROWS)


def message_id(text: str) -> int:
    """An argument that is the number of a message: any that the store can give."""
    return _whole(text, LARGEST_ID)


def _whole(text: str, most: int) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {most}, not {text!r}")
    return count


def days(text: str) -> float:
    """An argument that says how many days: 0 or more."""
    try:
        count = float(text)
    except ValueError:
        count = -1.0
    if not 0 <= count <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"expected a number of days from 0 to {MOST_ROWS}, not {text!r}")
    return count


def source_text(text: str) -> str:
    """The name of a source, which is never blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a source must not be empty")
    return plain_text(text)


def plain_text(text: str) -> str:
    """An argument that is compared with stored text, so it has to be text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("not valid UTF-8") from None
    return text
