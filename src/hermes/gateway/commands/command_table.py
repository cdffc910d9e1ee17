"""The table of slash commands in chats: finds the command in a message and runs it."""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

from hermes import errors
from hermes.conversation.commands import shared_commands
from hermes.conversation.commands.command_types import AnyCommand, split_command
from hermes.conversation.commands.wording import describe_unknown
from hermes.gateway.commands import chat_settings, outgoing, why
from hermes.gateway.commands.chat_surface import run_core_command
from hermes.gateway.commands.command_context import ChatCommandContext, CommandReply
from hermes.gateway.commands.reply_markdown import NOT_FOUND, format_line, format_reply
from hermes.gateway.outbound.markdown_format import escape_line

log = logging.getLogger(__name__)

ELSEWHERE = "That conversation is in use elsewhere; nothing was changed."
NOT_NOW = "That is not possible at the moment; try again soon."

_DASHES = re.compile(r"(?<!\S)[‐‑‒–—―−]+(?=[^\W\d_])")
"""Matches the dash that telephones insert when a person types two hyphens before an option."""

*_SHARED, _HELP = shared_commands.COMMANDS
_OWN = {command.name: command for command in (*why.COMMANDS, *chat_settings.COMMANDS)}
COMMANDS: tuple[AnyCommand, ...] = (*_SHARED, *_OWN.values(), _HELP)
"""All commands, in the order in which `/help` lists them. `/help` is the last."""
ALIASES = {"start": _HELP.name}
"""Aliases that only chats have. Telegram sends `/start` when a person opens the chat."""

BY_NAME = {name: command for command in COMMANDS for name in command.names}
BY_NAME |= {alias: BY_NAME[name] for alias, name in ALIASES.items()}
"""All commands, by name and alias."""


class FoundCommand(NamedTuple):
    """A command that was found in a message."""

    name: str
    """The name of the command. For an unknown command, the name as it was typed."""
    words: str
    at_once: bool
    """Whether the command is answered immediately, even while a turn is running."""
    stops: bool = False
    """Whether the command stops the running turn."""


def find_command(text: str) -> FoundCommand | None:
    """Return the command in a message, or None if the message is for the agent.
    An unknown command is returned too. It is answered immediately with an error.
    """
    typed = split_command(text)
    if typed is None:
        return None
    name, words = typed.name.lower(), typed.words
    command = BY_NAME.get(name)
    if command is None:
        return FoundCommand(typed.name, words, at_once=True)
    if name in ALIASES:  # the words after `/start` are the parameter of a Telegram link
        words = ""
    if "--" in command.takes:
        words = _DASHES.sub("--", words)
    at_once = command.at_once or (command.bare_at_once and not words)
    return FoundCommand(command.name, words, at_once, command.stops)


async def run_command(command: FoundCommand, context: ChatCommandContext) -> CommandReply:
    """Run a command and return its reply.

    An expected error becomes a reply of one line that reveals nothing about other people or the machine. Only
    `LeaseLost` is raised, because another process has taken over the conversation and runs the command.
    """
    own, shared = _OWN.get(command.name), shared_commands.BY_NAME.get(command.name)
    try:
        if own is not None:
            return await own.run(context, command.words)
        if command.name in outgoing.EXTENDED:
            return await outgoing.EXTENDED[command.name](context, command.words)
        if shared is not None:
            return await format_reply(context, await run_core_command(shared, context, command.words))
        return CommandReply(format_line(describe_unknown(command.name, BY_NAME)))
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
