"""Every command and flag is documented, and the documentation names no others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.cli.main import make_parser

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `(hermes[^`]*)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMON = {"-h", "--help", "--store"}


def commands(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return the parsers of all commands that have no subcommands."""
    groups = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield of
    for group in groups:
        for inner in group.choices.values():
            yield from commands(inner)


COMMANDS = {command.prog: command for command in commands(make_parser(None))}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_all_its_flags(name: str) -> None:
    told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", SECTIONS[name]))
    flags = {flag for action in COMMANDS[name]._actions for flag in action.option_strings} - COMMON
    assert {flag for flag in flags if flag.startswith("--")} - told == set()


@pytest.mark.parametrize("name", SECTIONS)
def test_every_documented_command_exists(name: str) -> None:
    told = set(re.findall(r"`(--[a-z][a-z-]*)", SECTIONS[name]))
    flags = {flag for action in COMMANDS[name]._actions for flag in action.option_strings}
    assert told - flags - {"--all", "--segment"} == set()


def test_every_command_says_in_its_help_what_it_does() -> None:
    assert [name for name, command in COMMANDS.items() if not command.description] == []
    unexplained = [
        f"{name} {action.dest}"
        for name, command in COMMANDS.items()
        for action in command._actions
        if not action.help
    ]
    assert unexplained == []
