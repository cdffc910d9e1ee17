"""Shared parts of all commands: a parser with one-line errors, common options, and commands imported on
demand.

A group of commands is a table of names. The module of a command has `define(parser, words)`, which adds the
arguments and sets the default `run` to the function of the command. A module is imported only if its command
was typed: `hermes sessions list` imports no other command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hermes.cli.exit_codes import DONE, USAGE
from hermes.cli.io import output
from hermes.cli.io.command_line import get_first_words

STORE_HELP = "use another store than that of the home"
HELP_COLUMN = 30
"""The column at which explanations begin in help texts, unless a flag is longer."""
MOST_ROWS = 1_000_000_000
LARGEST_ID = 2**63 - 1

Run = Callable[[argparse.Namespace], int]
Words = Sequence[str] | None
"""The words typed after the name of a command, without flags. None means that every command is loaded, as for
a list of all commands."""


class Access(Enum):
    """Whether the tools of the agent may run a command, or only a person."""

    READS = "reads"
    """The command makes no lasting change."""
    CHANGES = "changes"
    """The command makes a change that can be undone. The agent's tools may run it too."""
    PERSON = "person"
    """The command changes settings, keys or access, or deletes data. The agent's tools must not run it."""


class Command(NamedTuple):
    module: str
    """The module with `define(parser, words)`. A name after a colon is a function to call instead of
    `define`."""
    summary: str
    access: Access | None = None
    """Every command must set this. A command without a value is treated as `PERSON`."""
    reads_with: tuple[str, ...] = ()
    """Arguments (by `dest`), such as `dry_run`, with which a `PERSON` command changes nothing. With one of
    them, tools of the agent may run the command."""
    person_with: tuple[str, ...] = ()
    """Arguments (by `dest`) with which any command becomes a `PERSON` command."""

    def needs_person(self, arguments: argparse.Namespace) -> bool:
        """Return whether only a person may run the command with these arguments, and no tool of the agent."""

        def is_given(name: str) -> bool:
            return getattr(arguments, name, None) not in (None, False)

        if any(map(is_given, self.person_with)):
            return True
        is_for_person = self.access in (None, Access.PERSON)
        return is_for_person and not any(map(is_given, self.reads_with))


class HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_COLUMN)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Format the names of an option as Python 3.13 does: `-c, --continue [ID|TITLE]`. Earlier versions
        repeat the argument after each name."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    suggest: Callable[[Sequence[str]], str] | None = None
    """Returns a suggestion for an unknown command that is not similar to a known one. Called with the words
    before the first flag."""
    _typed: Sequence[str] = ()

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, **given})

    def error(self, message: str) -> NoReturn:
        output.print_error(f"{message} (see '{self.prog} --help')")
        raise SystemExit(USAGE)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments. An unknown argument is reported by the parser of the sub-command, so that the
        error names the help of that sub-command."""
        if args is not None and "--json" in args:
            from hermes.cli.io.json_fields import join_fields

            args = join_fields(self, args)
        self._typed = args or ()
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from difflib import get_close_matches

            near = get_close_matches(str(value), action.choices, 1)
            meant = f"; did you mean '{near[0]}'?" if near else ""
            if not near and self.suggest is not None:
                meant = f"; use: {self.suggest(get_first_words(self._typed))}"
            self.error(f"there is no command '{value}'{meant}")
        super()._check_value(action, value)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        output.print_lines([])  # flush the output of --help and --version; ignore a closed pipe
        super().exit(status, message)


def add_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command], words: Words) -> None:
    """Add a group of commands to a parser. If the command line names none of them, the parser prints its help."""

    def show_help(_: argparse.Namespace) -> int:
        output.print_lines(parser.format_help().splitlines())
        return DONE

    parser.set_defaults(run=show_help)
    # Pass `prog`. Otherwise argparse formats the usage of every parser to determine it.
    added = parser.add_subparsers(title="commands", metavar="COMMAND", prog=parser.prog)
    named = words[0] if words else None
    for name, command in commands.items():
        summary = command.summary
        subparser = added.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        subparser.set_defaults(command=command, command_name=subparser.prog)
        if words is None or name == named:
            module, _, function = command.module.partition(":")
            define = getattr(import_module(module), function or "define")
            define(subparser, None if words is None else words[1:])


def add_store_option(parser: argparse.ArgumentParser, run: Run) -> None:
    """Add the option `--store`, with which the user names a store other than that of the home. Also set `run`
    as the function that the parsed command calls."""
    parser.set_defaults(run=run)
    parser.add_argument("--store", type=Path, metavar="FILE", help=STORE_HELP)


def add_json_option(parser: argparse.ArgumentParser, fields: Sequence[str] = ()) -> None:
    """Add the option `--json` to a command. If `fields` are given, the option is `--json [FIELDS]`, and the
    user can choose some of these fields."""
    if not fields:
        parser.add_argument("--json", action="store_true", help="print JSON for programs")
        return
    from hermes.cli.io.json_fields import JsonAction, JsonFields, list_with_iso, make_field_parser

    every = list_with_iso(fields)
    help_text = "print JSON for programs; with FIELDS such as {}, only these fields".format(
        ",".join(every[:2])
    )
    option = parser.add_argument(
        "--json",
        action=JsonAction,
        nargs="?",
        const=JsonFields(),
        default=False,
        type=make_field_parser(every),
        metavar="FIELDS",
        help=help_text,
    )
    assert isinstance(option, JsonAction)
    option.fields = every


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def add_dry_run_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would happen, and change nothing")


def parse_row_count(text: str) -> int:
    """Parse a number of rows: 1 or more."""
    return _parse_whole_number(text, MOST_ROWS)


def parse_offset(text: str) -> int:
    """Parse the number of rows to skip: 0 or more."""
    return _parse_whole_number(text, MOST_ROWS, least=0)


def parse_message_id(text: str) -> int:
    """Parse a message id: any id that the store can assign, with or without the `#` that transcripts print
    before it."""
    return _parse_whole_number(text.removeprefix("#"), LARGEST_ID)


def _parse_whole_number(text: str, most: int, least: int = 1) -> int:
    try:
        count = int(text)
    except ValueError:
        count = least - 1
    if not least <= count <= most:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, not {text!r}")
    return count


def parse_days(text: str) -> float:
    """Parse a number of days: 0 or more."""
    try:
        count = float(text)
    except ValueError:
        count = -1.0
    if not 0 <= count <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"expected a number of days from 0 to {MOST_ROWS}, not {text!r}")
    return count


def parse_source(text: str) -> str:
    """Parse the name of a source. It must not be blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a source must not be empty")
    return parse_text(text)


def parse_text(text: str) -> str:
    """Parse text that is compared with stored text. It must be valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("not valid UTF-8") from None
    return text
