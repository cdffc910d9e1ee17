"""Where the `hermes` command starts, and the only place that turns an error into an exit code.

0    done
1    refused, cancelled, not found, or damaged
2    wrong usage
130  interrupted
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from hermes import __version__
from hermes.cli import output
from hermes.cli.command import (
    DONE,
    INTERRUPTED,
    REFUSED,
    USAGE,
    Command,
    Parser,
    Refused,
    Words,
    WrongUsage,
    group,
)
from hermes.errors import HermesError

COMMANDS = {
    "chat": Command(
        "hermes.cli.chat", "talk with the agent, or go on where you were (the same as no command)"
    ),
    "sessions": Command("hermes.cli.sessions", "list, find, show and look after the stored conversations"),
    "search": Command("hermes.cli.sessions.search", "find conversations by what was said in them"),
    "insights": Command("hermes.cli.insights", "see what was done, when, with what, and what it cost"),
    "gateway": Command(
        "hermes.cli.gateway",
        "connect the agent to chat platforms, and let people in (the same as gateway run)",
    ),
    "setup": Command("hermes.cli.setup", "choose the model that answers, and try it out"),
    "config": Command("hermes.cli.config", "see and change settings and keys"),
    "memory": Command("hermes.cli.memory:define_memory", "read and edit what the agent remembers"),
    "skills": Command("hermes.cli.memory:define_skills", "read and edit what the agent knows how to do"),
    "demo": Command("hermes.cli.demo", "see the product in a minute, on sample conversations"),
    "doctor": Command("hermes.cli.doctor", "see how the store is, and what to do about what is wrong"),
    "store": Command("hermes.cli.store", "encrypt the store, or decrypt it"),
    "completion": Command(
        "hermes.cli.completion", "print what makes your shell complete commands, ids and titles"
    ),
}


OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""A short command makes fewer, and ends: looking for cycles among what was imported is a tenth of its time."""


def main(argv: Sequence[str] | None = None) -> int:
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    output.prepare()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        gc.freeze()  # nor at the end; where something was broken off, what it left has to be cleared away
        return code
    except WrongUsage as error:
        output.complain(str(error))
        return USAGE
    except HermesError as error:
        output.complain(str(error))
        if isinstance(error, Refused):
            output.add_details(error.details)
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
    if not argv or argv[0].startswith("-") or argv[0] == "chat":
        from hermes.cli.chat import as_chat

        argv = as_chat(argv, COMMANDS)
    arguments = parser([word for word in argv if not word.startswith("-")]).parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def parser(words: Words) -> Parser:
    """The parser of the whole command, as far as these words need it."""
    made = Parser(prog="hermes", description="Every conversation kept and found again.", allow_abbrev=False)
    made.add_argument("--version", action="version", version=f"hermes {__version__}")
    group(made, COMMANDS, words)
    return made


def _without_number(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{what}: {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else what


if __name__ == "__main__":
    sys.exit(main())
