"""`docs/commands.md`, made from the tables of commands.

    python -m tests.commands_page

writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from hermes.chat.commands.table import load_commands
from hermes.conversation.commands.shared_commands import COMMANDS as CORE
from hermes.gateway.commands.command_table import COMMANDS as IN_CHATS

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Slash commands

One table for the [terminal chat](chat.md) and for [chat platforms](gateway.md). A command that both have means the same
in both. This page is made from the tables of commands: `python -m tests.commands_page` writes it anew.

| command | what it does | terminal | chats |
|---|---|---|---|
"""


def make_page() -> str:
    core = {command.name for command in CORE}
    rows = [(_name(command.usage, command.aliases), command.summary, "✓", "✓") for command in CORE]
    rows += [
        (_name(command.usage, command.aliases), command.help, "✓", "")
        for command in load_commands().values()
        if command.name not in core
    ]
    rows += [
        (_name(command.usage, command.aliases), command.summary, "", "✓")
        for command in IN_CHATS
        if command.name not in core
    ]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _name(usage: str, aliases: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in (usage, *(f"/{alias}" for alias in aliases)))


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
