"""The page about the chat names every command as it is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from hermes.chat.commands.table import load_commands

PAGE = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")


def test_every_command_is_documented_with_what_it_takes() -> None:
    told = re.findall(r"^\| `(/[^`]+)` \|", PAGE, re.MULTILINE)
    assert told == [command.usage for command in load_commands().values()]
