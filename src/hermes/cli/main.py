"""Where the `hermes` command starts, and the only place that turns an error into an exit code.

    0    done
    1    refused, cancelled, not found, or damaged
    2    wrong usage
    130  interrupted

A group's module is imported only when that group is asked for: `hermes sessions list` pays for nothing
but itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from hermes import __version__
from hermes.cli import output
from hermes.cli.command import DONE, INTERRUPTED, REFUSED, Parser, shows_help
from hermes.errors import HermesError


class Group(NamedTuple):
    module: str
    """Has `add_commands(parser)`, which gives every sub-command a `run(arguments) -> int`."""
    summary: str


GROUPS = {
    "sessions": Group("hermes.cli.sessions", "list the stored conversations and look after their store"),
    "doctor": Group("hermes.cli.doctor", "see how the store is, and what to do about what is wrong"),
    "store": Group("hermes.cli.store", "encrypt the store, or decrypt it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    output.prepare()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except HermesError as error:
        output.complain(str(error))
        return REFUSED
    except KeyboardInterrupt:
        output.complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        output.hush()
        return DONE
    except OSError as error:
        output.complain(_without_number(error))
        return REFUSED
    except Exception as error:  # a person gets one line, whatever happened
        if os.environ.get("HERMES_TRACEBACK"):
            raise
        output.complain(f"unexpected {type(error).__name__}: {error} (HERMES_TRACEBACK=1 shows where)")
        return REFUSED


def _run(argv: Sequence[str]) -> int:
    arguments = _parser(wanted=next((word for word in argv if not word.startswith("-")), "")).parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def _parser(wanted: str) -> Parser:
    parser = Parser(prog="hermes", description="Every conversation kept and found again.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"hermes {__version__}")
    shows_help(parser)
    groups = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, group in GROUPS.items():
        command = groups.add_parser(name, help=group.summary, description=group.summary, allow_abbrev=False)
        if name == wanted:
            import_module(group.module).add_commands(command)
    return parser


def _without_number(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{what}: {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else what


if __name__ == "__main__":
    sys.exit(main())
