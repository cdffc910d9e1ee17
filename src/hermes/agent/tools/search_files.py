"""`search_files`: find files by name, and lines in them by a pattern. Ripgrep does it where it is installed."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes import home
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import searching
from hermes.agent.tools.checking import checked, objects, text_field
from hermes.agent.tools.files import LONGEST_PATH, place, refuse_to_read, store_of
from hermes.agent.tools.running import Output, Running
from hermes.text import printable

LIMIT, MOST = 100, 500
SECONDS = 30
LONGEST_LINE = 300
ROOM = 45_000
LONGEST_PATTERN = 1_000
READ = 4_000_000
"""Bytes of what a search prints that are looked at; more than any answer needs."""


class SearchFiles:
    name = "search_files"
    description = (
        "Find files by a glob (`name`: `*.py`, `src/**/test_*.py`) and lines by a regular expression (`content`):"
        " one of them, or both. The answer is a path on each line, or path:line:text. What git ignores, version"
        " control folders and installed packages are left out."
    )
    parameters: Mapping[str, Any] = objects(
        [],
        name=text_field(
            "A glob for the name, or with a slash for the path below the folder.", LONGEST_PATTERN, 1
        ),
        content=text_field("A regular expression that a line must match.", LONGEST_PATTERN, 1),
        path=text_field("The folder or file to search, the working directory if not said.", LONGEST_PATH, 1),
        ignore_case={"type": "boolean", "description": "Whether capitals make no difference in the content."},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST,
            "description": f"How many lines of answer at most, {LIMIT} if not said.",
        },
    )

    def __init__(self, ripgrep: str | None = None) -> None:
        """`ripgrep`: where it is, if not where commands are looked for; an empty text does without it."""
        self._ripgrep = shutil.which("rg") if ripgrep is None else ripgrep or None

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        name, content = given.get("name"), given.get("content")
        if name is None and content is None:
            raise ToolFailed("say what to look for: name, content, or both")
        top = place(given.get("path", "."), context)
        if not top.exists():
            raise ToolFailed(f"there is no {top}")
        refuse_to_read(top, context)
        command = self._command(top, name, content, given.get("ignore_case", False), context)
        printed, problem = await _printed(command, top, context)
        return _told(printed, top, given.get("limit", LIMIT), problem)

    def _command(
        self, top: Path, name: str | None, content: str | None, ignore_case: bool, context: ToolContext
    ) -> list[str]:
        store = str(store_of(context))
        if self._ripgrep is None:
            _refuse_bad(name, content)
            question = {
                "top": str(top),
                "name": name,
                "content": content,
                "ignore_case": ignore_case,
                "passed_over": [store, str(_keys())],
            }
            # By itself (-I -S): a workspace may have a json.py of its own.
            return [sys.executable, "-I", "-S", searching.__file__, json.dumps(question)]
        command = [self._ripgrep, "--no-config", "--color=never", "--sort=path", "--no-messages", "--hidden"]
        command += [] if name is None else ["--glob", name]
        command += ["--glob", "!.git", "--glob", f"!{Path(store).name}*"]
        if content is None:
            return [*command, "--files", "--", str(top)]
        case = ["--ignore-case"] if ignore_case else []
        return [
            *command,
            *case,
            "--no-heading",
            "--line-number",
            "--with-filename",
            "--regexp",
            content,
            "--",
            str(top),
        ]


async def _printed(command: list[str], top: Path, context: ToolContext) -> tuple[str, str]:
    """What a search printed, and what was wrong with it. It is ended at its time, or when the person says stop."""
    running = Running(f"exec {shlex.join(command)}", context.cwd, Output(READ, 2_000))
    try:
        for _ in range(SECONDS * 20):
            if running.over or context.stop.is_set() or running.output.total > READ:
                break
            await asyncio.sleep(0.05)
    finally:
        in_time = running.over
        if not in_time:
            running.signal(signal.SIGKILL)
    printed = running.output.text()
    if not in_time:
        return printed, f"the search was ended after {running.seconds:.0f} s; narrow it down"
    # Ripgrep says by 1 that it found nothing, and by 2 that it could not read everything, too.
    found_nothing = running.exit_code == 1 and not printed
    if running.exit_code != 0 and not found_nothing and not printed.startswith(str(top)):
        raise ToolFailed(f"the search failed: {printable(printed[-300:])}")
    return printed, ""


def _told(printed: str, top: Path, limit: int, problem: str) -> str:
    keys = f"{_keys()}:"
    lines = [line for line in printed.splitlines() if not line.startswith(keys)]
    beginning = f"{top}/"
    shown: list[str] = []
    room = ROOM
    for line in lines[:limit]:
        line = printable(line.removeprefix(beginning))[:LONGEST_LINE]
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    notes = [problem] if problem else []
    if len(lines) > len(shown):
        notes.append(f"at least {len(lines) - len(shown):,} more; narrow it down")
    if not shown and not notes:
        return "nothing was found"
    return "\n".join([*shown, *(f"[{note}]" for note in notes)])


def _keys() -> Path:
    """What is in there is not for a model."""
    return (home.get_hermes_home() / ".env").resolve()


def _refuse_bad(name: str | None, content: str | None) -> None:
    try:
        re.compile(content or "")
        searching.glob_pattern(name or "")
    except (re.error, RecursionError, OverflowError) as problem:
        raise ToolFailed(f"that is no pattern: {problem}") from problem
