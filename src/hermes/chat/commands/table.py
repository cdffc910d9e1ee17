"""The table of slash commands: the shared commands and the terminal's own commands. The function of a terminal
command receives the `Chat` object of the terminal."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from hermes.chat.leaving import may_leave
from hermes.conversation.commands.command_types import AnyCommand, Command, TypedCommand, split_command

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

TerminalCommand: TypeAlias = "Command[Chat, None]"


class Leave(Exception):
    """Raised by a command to end the terminal program."""


async def clear_screen(chat: Chat, words: str) -> None:
    if await chat.has_history() and not await chat.confirm("Clear the screen and start a new conversation?"):
        return
    await chat.conversation.begin()
    chat.screen.console.clear()
    chat.greet()


async def leave(chat: Chat, words: str) -> None:
    if await may_leave(chat):
        raise Leave


WINDOW_COMMANDS: tuple[TerminalCommand, ...] = (
    Command("clear", clear_screen, "", "clear the screen and start a new conversation"),
    Command("quit", leave, "", "leave; the conversation is kept"),
)


@cache
def load_own_commands() -> dict[str, TerminalCommand]:
    """Return the slash commands that only the terminal has, keyed by command name."""
    from hermes.chat.commands import display, handoff_command, tool_output

    own = (*handoff_command.COMMANDS, *tool_output.COMMANDS, *display.COMMANDS, *WINDOW_COMMANDS)
    return {command.name: command for command in own}


@cache
def load_commands() -> dict[str, AnyCommand]:
    """Return all slash commands of the terminal, keyed by command name. They are in the order in which `/help`
    lists them; `/help` itself is the last."""
    from hermes.conversation.commands.shared_commands import COMMANDS

    *shared, show_help = COMMANDS
    every: tuple[AnyCommand, ...] = (*shared, *load_own_commands().values(), show_help)
    return {command.name: command for command in every}


async def run_command(chat: Chat, name: str, words: str) -> None:
    """Run the slash command `name` and show its result. `words` is the text after the command name. Both values
    come from `parse_command`. If the command does not exist, print that."""
    from hermes.chat.commands.reply_views import show_reply, show_unknown
    from hermes.chat.commands.terminal_surface import make_core_context
    from hermes.conversation.commands.shared_commands import BY_NAME

    own, command = load_own_commands().get(name), BY_NAME.get(name)
    if own is not None:
        await own.run(chat, words)
        return
    if command is None:
        show_unknown(chat, name)
        return
    with chat.busy_notice.watch() if command.takes_session else nullcontext():
        reply = await command.run(make_core_context(chat), words)
    await show_reply(chat, reply)


def parse_command(text: str) -> TypedCommand | None:
    """Parse an input of the person as a slash command. Return None if the input is a message to the agent. The
    person may shorten a command name to a unique prefix.

    The result contains the full name of the command. If the command is unknown or the prefix is not unique, the
    result contains the name as typed.
    """
    typed = split_command(text)
    if typed is None:
        return None
    begun = typed.name.lower()
    names = list_names()
    meant = {names[begun]} if begun in names else {names[name] for name in names if name.startswith(begun)}
    return typed._replace(name=meant.pop()) if len(meant) == 1 else typed


def list_names() -> dict[str, str]:
    """Return a mapping from each command name and each alias to the name of its command."""
    return {name: command.name for command in load_commands().values() for name in command.names}
