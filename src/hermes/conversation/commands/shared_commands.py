"""The table of the slash commands that all surfaces share."""

from __future__ import annotations

from hermes.conversation.commands import history, overview, switching
from hermes.conversation.commands.command_types import SharedCommand

COMMANDS: tuple[SharedCommand, ...] = (
    *switching.COMMANDS,
    *overview.LISTS,
    *overview.REPORTS,
    *history.COMMANDS,
    *overview.AGENT,
    overview.HELP,
)
"""The commands, in the order of the help."""

BY_NAME = {command.name: command for command in COMMANDS}
