"""The table of slash commands. Each is a name, what it takes, a line of help, and a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

Run = Callable[["Chat", str], Awaitable[None]]


class Command(NamedTuple):
    name: str
    takes: str
    """`[name]` may be left out, `<platform>` may not."""
    help: str
    run: Run
    takes_session: bool = False
    """What it takes is a conversation: its title is completed."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".rstrip()


@cache
def load_commands() -> dict[str, Command]:
    """All of them, in the order of the help."""
    from hermes.chat.commands import agent_settings, display, history, switching, tool_output

    groups = (
        switching.COMMANDS,
        history.COMMANDS,
        tool_output.COMMANDS,
        display.COMMANDS,
        agent_settings.COMMANDS,
    )
    return {command.name: command for group in groups for command in group}


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
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    name = name.strip()
    commands = load_commands()
    if name in commands:
        return ParsedCommand(commands[name], argument.strip(), [name])
    if "/" in name or "." in name or not name or "\n" in text.split(" ")[0]:
        return None
    alike = [candidate for candidate in commands if candidate.startswith(name)]
    return ParsedCommand(commands[alike[0]] if len(alike) == 1 else None, argument.strip(), alike)
