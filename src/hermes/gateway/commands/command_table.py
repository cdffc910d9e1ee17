"""The table of slash commands, and the lookup of the command in a message."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable

from hermes import errors
from hermes.gateway.commands import chat_settings, history, overview, switching, why
from hermes.gateway.commands.command_context import Command, CommandContext, CommandReply
from hermes.gateway.commands.visible_conversations import NOT_FOUND
from hermes.gateway.outbound.markdown_format import escape_line, format_code

log = logging.getLogger(__name__)

Run = Callable[[CommandContext], Awaitable[CommandReply]]

ELSEWHERE = "That conversation is being worked in elsewhere just now; nothing was changed."
NOT_NOW = "That cannot be done just now; try again in a moment."

# A name, perhaps with the bot's, and nothing else before the next space: `/etc/hosts`, `/24` and `/a.b` are none.
_COMMAND = re.compile(r"\s*/(?P<name>[^\W\d_][\w-]{0,31})(?:@\w{1,64})?(?:\s+(?P<words>.*))?", re.DOTALL)
_DASHES = re.compile(r"(?<!\S)[‐‑‒–—―−]+(?=[^\W\d_])")
"""What telephones make of two hyphens."""


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a message is, and what stands behind its name; None for what is said to the agent.

    One that does not exist is a command, too: people mistype, and are told so at once.
    """
    typed = _COMMAND.fullmatch(text)
    if typed is None:
        return None
    name, words = typed["name"].lower(), (typed["words"] or "").strip()
    command = _BY_NAME.get(name)
    if command is None:
        return _make_unknown(typed["name"]), words
    if "--" in command.usage:
        words = _DASHES.sub("--", words)
    return command._replace(at_once=command.at_once or (command.bare_at_once and not words)), words


def _make_unknown(name: str) -> Command:
    async def run(context: CommandContext) -> CommandReply:
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), _BY_NAME, 1, 0.5)
        hint = f" Did you mean {format_code('/' + near[0])}?" if near else ""
        return CommandReply(f"There is no {format_code('/' + name)}.{hint} `/help` shows what there is.")

    return Command(name, run, f"/{name}", "", at_once=True)


async def show_help(context: CommandContext) -> CommandReply:
    name = context.words.lstrip("/").lower()
    command = _BY_NAME.get(name)
    if command is None:
        return CommandReply(
            "\n".join(f"{format_code(command.usage)} {command.summary}" for command in COMMANDS)
        )
    return CommandReply(f"{format_code(command.usage)}\n{command.summary}")


def _catch_errors(run: Run) -> Run:
    """The same command, whose errors are one line that tells nothing of other people and of the machine.

    `LeaseLost` passes: somebody else has taken the conversation over, and does the command.
    """

    async def run_safely(context: CommandContext) -> CommandReply:
        try:
            return await run(context)
        except errors.LeaseLost:
            raise
        except errors.LeaseHeld:
            return CommandReply(ELSEWHERE)
        except errors.UnknownSession:
            return CommandReply(NOT_FOUND)
        except errors.InvalidArgument as problem:
            return CommandReply(f"{escape_line(str(problem), 200)}.")
        except (errors.HermesError, OSError) as problem:
            log.warning("a command in a chat failed: %s", problem)
            return CommandReply(NOT_NOW)

    return run_safely


_GROUPS = (
    *(switching.COMMANDS, overview.COMMANDS, why.COMMANDS),
    *(history.COMMANDS, chat_settings.COMMANDS),
    (
        Command(
            "help",
            show_help,
            "/help [command]",
            "this list, or one of them",
            at_once=True,
            aliases=("start",),  # what Telegram says for a person who opens the chat
        ),
    ),
)
COMMANDS: tuple[Command, ...] = tuple(
    command._replace(run=_catch_errors(command.run)) for group in _GROUPS for command in group
)
"""All of them, in the order of the help."""

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}
