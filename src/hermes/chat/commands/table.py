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
def commands() -> dict[str, Command]:
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


class Typed(NamedTuple):
    """What stands behind a slash."""

    command: Command | None
    """None if there is no such command, or several begin so."""
    argument: str
    alike: list[str]
    """Commands that begin with what was typed."""


def typed(text: str) -> Typed | None:
    """Which command a line is; None for what is said to the agent. A path (`/etc/hosts is empty`) is no command."""
    if not text.startswith("/"):
        return None
    name, _, argument = text[1:].partition(" ")
    name = name.strip()
    known = commands()
    if name in known:
        return Typed(known[name], argument.strip(), [name])
    if "/" in name or "." in name or not name or "\n" in text.split(" ")[0]:
        return None
    alike = [one for one in known if one.startswith(name)]
    return Typed(known[alike[0]] if len(alike) == 1 else None, argument.strip(), alike)
