"""The table of slash commands: those that every surface has, and those of the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hermes.conversation.commands.command_types import split_command

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat
    from hermes.conversation.commands.command_types import Command as CoreCommand

Run = Callable[["Chat", str], Awaitable[None]]

BUSY_S = 1.5
"""After so long without an answer from the store a person is told what they wait for."""
BUSY = "The store is busy; waiting …"


class Command(NamedTuple):
    name: str
    takes: str
    """`[name]` may be left out, `<platform>` may not."""
    help: str
    run: Run
    takes_session: bool = False
    """What it takes is a conversation: its title is completed."""
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".rstrip()

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases


@cache
def load_commands() -> dict[str, Command]:
    """All of them, in the order of the help, which is the last."""
    from hermes.chat.commands import display, handoff_command, tool_output, window
    from hermes.conversation.commands.shared_commands import COMMANDS

    *core, show_help = map(_adapt, COMMANDS)
    own = (*handoff_command.COMMANDS, *tool_output.COMMANDS, *display.COMMANDS, *window.COMMANDS)
    return {command.name: command for command in (*core, *own, show_help)}


def _adapt(core: CoreCommand) -> Command:
    """A command that every surface has, in the terminal."""

    async def run(chat: Chat, argument: str) -> None:
        from hermes.chat.commands.reply_views import show_reply
        from hermes.chat.commands.terminal_surface import make_core_context

        patience = None
        if core.takes_session:
            patience = asyncio.get_running_loop().call_later(BUSY_S, chat.screen.print_note, BUSY)
        try:
            reply = await core.run(make_core_context(chat, patience), argument)
        finally:
            if patience is not None:
                patience.cancel()
        await show_reply(chat, reply)

    return Command(core.name, core.takes, core.summary, run, core.takes_session, core.aliases)


class Leave(Exception):
    """Raised by a command to end the chat."""


class ParsedCommand(NamedTuple):
    """What stands behind a slash."""

    command: Command | None
    """None if there is no such command, or several begin so."""
    argument: str
    alike: list[str]
    """Commands that begin with what was typed."""


def parse_command(text: str) -> ParsedCommand | None:
    """Which command a line is; None for what is said to the agent. A path (`/etc/hosts is empty`) is no command."""
    typed = split_command(text)
    if typed is None:
        return None
    name, argument = typed.name.lower(), typed.words
    commands = {alias: command for command in load_commands().values() for alias in command.names}
    if name in commands:
        return ParsedCommand(commands[name], argument, [name])
    alike = [candidate for candidate in commands if candidate.startswith(name)]
    meant = {commands[candidate].name for candidate in alike}
    return ParsedCommand(load_commands()[meant.pop()] if len(meant) == 1 else None, argument, alike)
