"""Where the `hermes` command starts, and the only place that turns an error into an exit code.

0    done
1    refused, cancelled, not found, or damaged
2    wrong usage
130  interrupted
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from hermes import __version__
from hermes.cli.command import Access, Command, Parser, Words, add_commands
from hermes.cli.exit_codes import DONE, INTERRUPTED, REFUSED, USAGE, Refused, WrongUsage
from hermes.cli.io import output
from hermes.errors import HermesError, UnsafeHome
from hermes.home_check import check_home

COMMANDS = {
    "chat": Command(
        "hermes.cli.chat",
        "talk with the agent, or go on where you were (the same as no command)",
        Access.CHANGES,
    ),
    "sessions": Command(
        "hermes.cli.sessions", "list, find, show and look after the stored conversations", Access.READS
    ),
    "search": Command(
        "hermes.cli.sessions.search", "find conversations by what was said in them", Access.READS
    ),
    "insights": Command(
        "hermes.cli.insights", "see what was done, when, with what, and what it cost", Access.CHANGES
    ),
    "gateway": Command(
        "hermes.cli.gateway",
        "connect the agent to chat platforms, and let people in (the same as gateway run)",
        Access.PERSON,
    ),
    "setup": Command("hermes.cli.setup", "choose the model that answers, and try it out", Access.PERSON),
    "config": Command("hermes.cli.config", "see and change settings and keys", Access.READS),
    "memory": Command(
        "hermes.cli.memory:define_memory", "read and edit what the agent remembers", Access.READS
    ),
    "skills": Command(
        "hermes.cli.memory:define_skills", "read and edit what the agent knows how to do", Access.READS
    ),
    "demo": Command(
        "hermes.cli.demo", "see the product in a minute, on sample conversations", Access.CHANGES
    ),
    "doctor": Command(
        "hermes.cli.doctor", "see how the store is, and what to do about what is wrong", Access.READS
    ),
    "approvals": Command(
        "hermes.cli.approvals", "see and take back what the agent may do without asking", Access.READS
    ),
    "audit": Command("hermes.cli.audit", "see who changed settings, keys and people, and when", Access.READS),
    "store": Command("hermes.cli.store", "encrypt the store, or decrypt it", Access.READS),
    "completion": Command(
        "hermes.cli.completion", "print what makes your shell complete commands, ids and titles", Access.READS
    ),
}


OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""A short command makes fewer, and ends: looking for cycles among what was imported is a tenth of its time."""


def main(argv: Sequence[str] | None = None) -> int:
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    output.prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        gc.freeze()  # nor at the end; where something was broken off, what it left has to be cleared away
        return code
    except WrongUsage as error:
        output.print_error(_redact_message(str(error)))
        return USAGE
    except UnsafeHome as error:  # nothing in there is read, not even to know its secrets
        output.print_error(str(error))
        return REFUSED
    except HermesError as error:
        output.print_error(_redact_message(str(error)))
        if isinstance(error, Refused):
            output.print_details(map(_redact_message, error.details))
        return REFUSED
    except KeyboardInterrupt:
        output.print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        output.silence_stdout()
        return DONE
    except OSError as error:
        output.print_error(_format_os_error(error))
        return REFUSED
    except Exception as error:  # noqa: BLE001 - a person gets one line, whatever happened
        if os.environ.get("HERMES_TRACEBACK"):
            import traceback

            output.print_harmless(_redact_message(traceback.format_exc()).splitlines())
            return REFUSED
        message = _redact_message(f"{type(error).__name__}: {error}")
        output.print_error(f"unexpected {message} (HERMES_TRACEBACK=1 shows where)")
        return REFUSED


def _redact_message(message: str) -> str:
    """The message without the keys of this home and of the environment."""
    try:
        from hermes.config.config_file import hide_secrets

        return hide_secrets(message)
    except (HermesError, OSError):
        from hermes.config.redaction import redact_text

        return redact_text(message)


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-") or argv[0] == "chat":
        from hermes.cli.chat import insert_chat_command

        argv = insert_chat_command(argv, COMMANDS)
    arguments = make_parser([word for word in argv if not word.startswith("-")]).parse_args(argv)
    check_home()
    _refuse_tool_caller(arguments)
    code: int = arguments.run(arguments)
    return code


def _refuse_tool_caller(arguments: argparse.Namespace) -> None:
    """Refuse a command for a person (`Command.access`) that a tool of the agent started.

    This keeps a model from changing settings or letting people in by mistake or by persuasion. It is no protection
    against a hostile program: that is the sandbox of the tools.
    """
    command: Command | None = getattr(arguments, "command", None)
    if command is None or not command.needs_person(arguments):
        return
    from hermes import caller

    if not caller.is_started_by_tool():
        return
    from hermes import audit_log

    audit_log.record("refused", command=arguments.command_name)
    raise Refused(
        f"`{arguments.command_name}` was started by a tool of the agent; run it yourself in a terminal"
    )


def make_parser(words: Words) -> Parser:
    """The parser of the whole command, as far as these words need it."""
    parser = Parser(prog="hermes", description="Every conversation kept and found again.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"hermes {__version__}")
    parser.set_defaults(main=main, make_parser=make_parser)  # for commands that run or describe others
    add_commands(parser, COMMANDS, words)
    return parser


def _format_os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{reason}: {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else reason


if __name__ == "__main__":
    sys.exit(main())
