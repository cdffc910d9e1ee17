"""Some commands are for people only. They are refused if a tool of the agent runs them. Commands that only
read are allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from hermes.cli.command import Access, Command
from hermes.cli.main import COMMANDS
from hermes.cli.main import make_parser as whole_parser
from hermes.config.dotenv import TOOL_MARKER
from hermes_state import SessionDB
from tests.cli.conftest import Hermes

TOOL = {TOOL_MARKER: "1"}


def every_command(commands: dict[str, Command], before: str = "hermes") -> Iterator[tuple[str, Command]]:
    for name, command in commands.items():
        words = f"{before} {name}"
        yield words, command
        module = import_module(command.module.partition(":")[0])
        inner = getattr(module, "COMMANDS", {})
        if ":" not in command.module and inner is not commands:
            yield from every_command(inner, words)


EVERY = dict(every_command(COMMANDS))
FOR_PEOPLE = """
hermes cron add, hermes cron pause, hermes cron resume, hermes cron run, hermes cron edit, hermes cron remove,
hermes cron tick, hermes cron daemon,
    hermes gateway, hermes gateway run, hermes gateway reload, hermes gateway setup,
    hermes gateway pair, hermes gateway block, hermes gateway unblock, hermes gateway outbox resend,
    hermes gateway outbox drop, hermes gateway install, hermes gateway uninstall, hermes gateway keys add,
    hermes gateway keys revoke, hermes gateway keys limit, hermes setup,
    hermes config set, hermes config unset, hermes config edit, hermes store encrypt, hermes store decrypt,
    hermes sessions delete, hermes sessions trash empty, hermes sessions prune, hermes sessions thin,
    hermes sessions browse, hermes sessions repair, hermes sessions restore, hermes sessions scrub,
    hermes approvals revoke
"""


@pytest.mark.parametrize("name", EVERY)
def test_every_command_says_who_may_run_it(name: str) -> None:
    assert EVERY[name].access is not None, f"classify `{name}` in its table: Access.READS, CHANGES or PERSON"


def test_the_commands_that_are_for_people() -> None:
    """The list is repeated here, so that it does not change by accident."""
    found = {name for name, command in EVERY.items() if command.access is Access.PERSON}
    assert found == {name.strip() for name in FOR_PEOPLE.replace("\n", " ").split(",")}


def test_the_arguments_that_decide_exist() -> None:
    def actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
        yield parser.prog, {action.dest for action in parser._actions}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from actions(inner)

    known = dict(actions(whole_parser(None)))
    missing = [
        (name, argument)
        for name, command in EVERY.items()
        for argument in (*command.reads_with, *command.person_with)
        if argument not in known[name]
    ]
    assert missing == []


REFUSED = (
    ("config", "set", "model.default", "offline"),
    ("config", "set", "approvals.mode", "auto"),
    ("config", "set", "OPENAI_API_KEY", "x" * 20),
    ("config", "unset", "model.default"),
    ("config", "edit"),
    ("setup", "--offline"),
    ("gateway", "setup", "--platform", "webhook", "--token", "x" * 20, "--no-test"),
    ("gateway", "pair", "--owner"),
    ("gateway", "pair", "telegram"),
    ("gateway", "pair", "--revoke", "telegram:1"),
    ("gateway", "run"),
    ("gateway",),
    ("sessions", "delete", "a", "--yes"),
    ("sessions", "prune", "--older-than", "1", "--yes"),
    ("sessions", "trash", "empty", "--yes"),
    ("sessions", "scrub", "--yes"),
    ("sessions", "restore", "x.db"),
    ("sessions", "repair"),
    ("store", "encrypt", "--generate"),
    ("store", "decrypt"),
    ("sessions", "import", "--trusted", "x.jsonl"),
    ("approvals", "revoke", "--all"),
    ("memory", "edit", "user"),
    ("skills", "edit", "release"),
)
ALLOWED = (
    ("config", "list"),
    ("config", "path"),
    ("gateway", "pair", "--list"),
    ("sessions", "list"),
    ("sessions", "show", "a"),
    ("sessions", "prune", "--older-than", "1", "--dry-run"),
    ("sessions", "rename", "a", "another title"),
    ("search", "hello"),
    ("audit",),
    ("approvals",),
    ("approvals", "list"),
    ("--help",),
    ("gateway", "pair", "--help"),
)


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_a_tool_is_refused(hermes: Hermes, home: Path, words: tuple[str, ...]) -> None:
    home.mkdir()
    done = hermes(*words, **TOOL)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "started by a tool of the agent" in line
    assert [path.name for path in home.iterdir()] == ["audit.log"]
    (entry,) = (json.loads(one) for one in (home / "audit.log").read_text().splitlines())
    assert (entry["action"], entry["by_tool"]) == ("refused", True)


@pytest.mark.parametrize("words", ALLOWED, ids=" ".join)
def test_a_tool_may_run_commands_that_only_read(
    hermes: Hermes, db: SessionDB, words: tuple[str, ...]
) -> None:
    db.create_session("a", "cli")
    db.append_message("a", "user", "hello")
    done = hermes(*words, **TOOL)
    assert (done.returncode, done.stderr) == (0, "")


def test_unsetting_the_variable_does_not_help(hermes: Hermes, home: Path) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("only where ancestors can be read")
    script = f'unset {TOOL_MARKER}; "$@"; exit $?'
    command = [sys.executable, "-m", "hermes.cli.main", "gateway", "pair", "--owner"]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command], capture_output=True, text=True, env={**os.environ, **TOOL}
    )
    assert done.returncode == 1
    assert not (home / "gateway").exists()


def test_a_person_is_not_refused_and_their_change_is_recorded(hermes: Hermes, home: Path) -> None:
    assert hermes("config", "set", "model.default", "offline").returncode == 0
    assert hermes("config", "set", "OPENAI_API_KEY", "Tr0ub4dor-and-3-and-4").returncode == 0
    told = hermes("audit")
    assert "config.set  key=model.default" in told.stdout
    assert "key.set  name=OPENAI_API_KEY" in told.stdout
    assert "Tr0ub4dor" not in told.stdout + (home / "audit.log").read_text()
    (last,) = json.loads(hermes("audit", "--limit", "1", "--json").stdout)
    assert last["action"] == "key.set"


def test_recorded_text_has_no_control_sequences(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    hostile = {"time": "\x1b]0;owned\x07", "action": "\x1b[2Jx", "details": {"a\x1b[31m": "\x9b31m"}}
    (home / "audit.log").write_text(json.dumps(hostile) + "\nno entry\n[1]\n")
    done = hermes("audit")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x9b" not in done.stdout
