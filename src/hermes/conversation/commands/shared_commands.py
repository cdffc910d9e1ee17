"""The table of the slash commands that every surface has."""

from __future__ import annotations

from hermes.conversation.commands import history, overview, switching
from hermes.conversation.commands.command_types import Command

COMMANDS: tuple[Command, ...] = (
    *switching.COMMANDS,
    *overview.LISTS,
    *overview.REPORTS,
    *history.COMMANDS,
    *overview.AGENT,
    overview.HELP,
)
"""In the order of the help."""
