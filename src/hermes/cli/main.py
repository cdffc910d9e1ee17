"""The entry point of the `hermes` command, and the only place where errors become exit codes.

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
from pathlib import Path

from hermes import __version__
from hermes.cli.command import STORE_HELP, Access, Command, Parser, Words, add_commands
from hermes.cli.exit_codes import DONE, INTERRUPTED, REFUSED, USAGE, Refused, WrongUsage
from hermes.cli.io import output
from hermes.cli.io.command_line import (
    CHAT,
    END_OF_FLAGS,
    check_question,
    get_first_words,
    insert_chat_command,
    take_store,
)
from hermes.errors import HermesError, UnsafeHome
from hermes.home_check import check_home

COMMANDS = {
    "chat": Command(
        "hermes.cli.chat",
        "talk with the agent, or continue a conversation (the same as no command)",
        Access.CHANGES,
    ),
    "sessions": Command(
        "hermes.cli.sessions", "list, find, show and manage stored conversations", Access.READS
    ),
    "search": Command("hermes.cli.sessions.search", "find conversations by their content", Access.READS),
    "insights": Command("hermes.cli.insights", "show activity, models, tools and costs", Access.CHANGES),
    "gateway": Command(
        "hermes.cli.gateway",
        "connect the agent to chat platforms (the same as gateway run)",
        Access.PERSON,
    ),
    "acp": Command(
        "hermes.cli.acp", "serve an editor over stdin and stdout (Agent Client Protocol)", Access.CHANGES
    ),
    "batch": Command("hermes.cli.batch", "answer many prompts from a file", Access.CHANGES),
    "cron": Command("hermes.cli.cron", "run prompts at certain times: scheduled jobs", Access.READS),
    "setup": Command("hermes.cli.setup", "choose and test the model that answers", Access.PERSON),
    "config": Command("hermes.cli.config", "show and change settings and keys", Access.READS),
    "memory": Command("hermes.cli.memory:define_memory", "read and edit the agent's memory", Access.READS),
    "skills": Command("hermes.cli.memory:define_skills", "read and edit the agent's skills", Access.READS),
    "demo": Command("hermes.cli.demo", "see a short tour with sample conversations", Access.CHANGES),
    "doctor": Command(
        "hermes.cli.doctor", "check the store, the home and the sandbox for problems", Access.READS
    ),
    "approvals": Command(
        "hermes.cli.approvals", "show and revoke what the agent may do without asking", Access.READS
    ),
    "audit": Command(
        "hermes.cli.audit", "show who changed settings, keys and access, and when", Access.READS
    ),
    "store": Command("hermes.cli.store", "encrypt or decrypt the store", Access.READS),
    "completion": Command(
        "hermes.cli.completion",
        "print a script for shell completion of commands, ids and titles",
        Access.READS,
    ),
}


OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""The number of new objects after which the garbage collector runs. A short command creates fewer objects.
It therefore saves the tenth of its time that a search of the imported modules for reference cycles would
take."""


def main(argv: Sequence[str] | None = None) -> int:
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    output.prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        gc.freeze()  # skip the collection at exit; not after an error, when objects must be finalised
        return code
    except WrongUsage as error:
        output.print_error(_redact_message(str(error)))
        return USAGE
    except UnsafeHome as error:  # nothing in an unsafe home is read, not even to redact its secrets
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
    except Exception as error:  # noqa: BLE001 - every error is printed as one line
        if os.environ.get("HERMES_TRACEBACK"):
            import traceback

            output.print_harmless(_redact_message(traceback.format_exc()).splitlines())
            return REFUSED
        message = _redact_message(f"{type(error).__name__}: {error}")
        output.print_error(f"unexpected {message} (HERMES_TRACEBACK=1 shows where)")
        return REFUSED


def _redact_message(message: str) -> str:
    """Return an error message with the secrets redacted that are in the settings of the home or in the
    environment."""
    try:
        from hermes.config.config_file import hide_secrets

        return hide_secrets(message)
    except (HermesError, OSError):
        from hermes.config.redaction import redact_text

        return redact_text(message)


def _run(argv: Sequence[str]) -> int:
    store, typed = take_store(argv, COMMANDS)
    words = insert_chat_command(typed, COMMANDS)
    is_implied = words[:1] == [CHAT] and typed[:1] != [CHAT] and END_OF_FLAGS not in typed
    if is_implied:
        _check_question(get_first_words(typed))
    arguments = make_parser([word for word in words if not word.startswith("-")]).parse_args(words)
    if is_implied:
        _check_question(arguments.question)
    if store is not None:
        _use_store(arguments, store)
    check_home()
    _refuse_tool_caller(arguments)
    code: int = arguments.run(arguments)
    return code


def _check_question(words: Sequence[str]) -> None:
    if words:
        from hermes.cli.sessions import COMMANDS as SUBCOMMANDS

        check_question(words, COMMANDS, SUBCOMMANDS)


def _use_store(arguments: argparse.Namespace, store: Path) -> None:
    """Apply a `--store` that is before the command. If `--store` is also given after the command, the value
    after the command is used."""
    if not hasattr(arguments, "store"):
        name = getattr(arguments, "command_name", "hermes")
        raise WrongUsage(f"`{name}` uses no store, so --store does not apply (see '{name} --help')")
    if arguments.store is None:
        arguments.store = store


def _refuse_tool_caller(arguments: argparse.Namespace) -> None:
    """Raise an error if a tool of the agent started this command and the command is reserved for a person
    (`Command.access`).

    This prevents a model from changing settings or granting access, by mistake or because it was manipulated.
    It does not protect against a hostile program. The sandbox of the tools does.
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
    """Return the parser of the `hermes` command. It has only those sub-commands that occur in `words`, the
    words of the command line."""
    parser = Parser(
        prog="hermes",
        usage="hermes [QUESTION] [-c [ID|TITLE]] [-r ID|TITLE] [-q QUESTION] ...\n       hermes COMMAND ...",
        description="Every conversation kept and found again.",
        allow_abbrev=False,
        add_help=False,
    )
    # no command was typed, so the help is shown; it lists the main flags of the chat
    if words is not None and not words:
        from hermes.cli.chat import add_main_options

        add_main_options(parser.add_argument_group("chat (`hermes chat --help` lists all flags)"))
    # used by commands that run or describe other commands
    parser.set_defaults(main=main, make_parser=make_parser)
    add_commands(parser, COMMANDS, words)
    options = parser.add_argument_group("options")
    options.add_argument("--store", metavar="FILE", default=argparse.SUPPRESS, help=STORE_HELP)
    options.add_argument(
        "--version", action="version", version=f"hermes {__version__}", help="show the version"
    )
    options.add_argument("-h", "--help", action="help", help="show this help")
    return parser


def _format_os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{reason}: {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else reason


if __name__ == "__main__":
    sys.exit(main())
