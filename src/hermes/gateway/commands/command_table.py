"""The table of slash commands, and the lookup of the command in a message."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable

from hermes import errors
from hermes.conversation.commands.command_types import Command as CoreCommand
from hermes.conversation.commands.command_types import split_command
from hermes.conversation.commands.shared_commands import COMMANDS as CORE_COMMANDS
from hermes.gateway.commands import chat_settings, why
from hermes.gateway.commands.chat_conversation import make_core_context
from hermes.gateway.commands.command_context import ChatCommandContext, Command, CommandReply
from hermes.gateway.commands.reply_markdown import format_reply
from hermes.gateway.commands.visible_conversations import NOT_FOUND
from hermes.gateway.outbound.markdown_format import escape_line, format_code

log = logging.getLogger(__name__)

Run = Callable[[ChatCommandContext], Awaitable[CommandReply]]

ELSEWHERE = "That conversation is being worked in elsewhere just now; nothing was changed."
NOT_NOW = "That cannot be done just now; try again in a moment."

_DASHES = re.compile(r"(?<!\S)[‐‑‒–—―−]+(?=[^\W\d_])")
"""What telephones make of two hyphens."""


def find_command(text: str) -> tuple[Command, str] | None:
    """The command that a message is, and what stands behind its name; None for what is said to the agent.

    One that does not exist is a command, too: people mistype, and are told so at once.
    """
    typed = split_command(text)
    if typed is None:
        return None
    command, words = _BY_NAME.get(typed.name.lower()), typed.words
    if command is None:
        return _make_unknown(typed.name), words
    if "--" in command.usage:
        words = _DASHES.sub("--", words)
    return command._replace(at_once=command.at_once or (command.bare_at_once and not words)), words


def _make_unknown(name: str) -> Command:
    async def run(context: ChatCommandContext) -> CommandReply:
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), _BY_NAME, 1, 0.5)
        hint = f" Did you mean {format_code('/' + near[0])}?" if near else ""
        return CommandReply(f"There is no {format_code('/' + name)}.{hint} `/help` shows what there is.")

    return Command(name, run, f"/{name}", "", at_once=True)


def _catch_errors(run: Run) -> Run:
    """The same command, whose errors are one line that tells nothing of other people and of the machine.

    `LeaseLost` passes: somebody else has taken the conversation over, and does the command.
    """

    async def run_safely(context: ChatCommandContext) -> CommandReply:
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


def _adapt(core: CoreCommand) -> Command:
    """A command that every surface has, in a chat."""

    async def run(context: ChatCommandContext) -> CommandReply:
        return await format_reply(context, await core.run(make_core_context(context), context.words))

    return Command(
        core.name, run, core.usage, core.summary, core.at_once, core.bare_at_once, core.stops, core.aliases
    )


_CORE = tuple(map(_adapt, CORE_COMMANDS))
COMMANDS: tuple[Command, ...] = tuple(
    command._replace(run=_catch_errors(command.run))
    for command in (*_CORE[:-1], *why.COMMANDS, *chat_settings.COMMANDS, _CORE[-1])
)
"""All of them, in the order of the help, which is the last."""

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def find_named(name: str) -> Command | None:
    """The command of a name or an alias."""
    return _BY_NAME.get(name)
