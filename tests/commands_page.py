"""Generates `docs/commands.md` from the command tables. Run `python -m tests.commands_page` to write it."""

from __future__ import annotations

from pathlib import Path

from hermes.chat.commands.table import load_own_commands
from hermes.conversation.commands import shared_commands
from hermes.conversation.commands.command_types import AnyCommand
from hermes.gateway.commands import command_table
from hermes.interop.acp.commands import OFFERED
from hermes.server.commands_api import SERVED

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Slash commands

The slash commands of the [terminal chat](chat.md), of [editors](editors.md), of [chat platforms](gateway.md) and of the
[API](api-server.md#commands). A command has the same effect and the same reply on every surface. This page is
generated: `python -m tests.commands_page` writes it.

| command | what it does | terminal | editors | chats | API |
|---|---|---|---|---|---|
"""


def make_page() -> str:
    shared = shared_commands.BY_NAME
    in_chats = [command for command in command_table.COMMANDS if command.name not in shared]
    aliases = [f"`/{alias}` is `/{name}`" for alias, name in command_table.ALIASES.items()]
    rows = [
        *(
            _make_row(command, "✓", _mark(command in OFFERED), "✓", _mark(command in SERVED))
            for command in shared.values()
        ),
        *(_make_row(command, "✓", "", "", "") for command in load_own_commands().values()),
        *(_make_row(command, "", "", "✓", "") for command in in_chats),
    ]
    return f"{HEAD}{''.join(rows)}\nIn chats, {', '.join(aliases)}.\n"


def _mark(is_offered: bool) -> str:
    return "✓" if is_offered else ""


def _make_row(command: AnyCommand, *surfaces: str) -> str:
    names = ", ".join(f"`{name}`" for name in (command.usage, *(f"/{alias}" for alias in command.aliases)))
    return f"| {' | '.join((names, command.summary, *surfaces))} |\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
