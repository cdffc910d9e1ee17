"""`search_files`: find files by name, and lines by a pattern. It uses ripgrep if that is installed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hermes.agent.approvals.policy import Policy
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.sandbox import make_outside_command
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import search_program
from hermes.agent.tools.access import Access
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.agent.tools.files import LONGEST_PATH, check_read, locate
from hermes.agent.tools.running_command import Output, RunningCommand
from hermes.text import make_printable

LIMIT, MOST = 100, 500
SECONDS = 30
LONGEST_LINE = 300
ROOM = 45_000
LONGEST_PATTERN = 1_000
READ = 4_000_000
"""The maximum number of bytes that are read from the output of a search. Every result that is shown is
shorter."""


class SearchFiles:
    name = "search_files"
    description = (
        "Find files by a glob (`name`: `*.py`, `src/**/test_*.py`) and lines by a regular expression (`content`):"
        " one of them, or both. The answer is a path on each line, or path:line:text. What git ignores, version"
        " control folders and installed packages are left out."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        [],
        name=make_text_field(
            "A glob for the name, or with a slash for the path below the folder.", LONGEST_PATTERN, 1
        ),
        content=make_text_field("A regular expression that a line must match.", LONGEST_PATTERN, 1),
        path=make_text_field(
            "The folder or file to search; default: the working directory.", LONGEST_PATH, 1
        ),
        ignore_case={"type": "boolean", "description": "Ignore case in the content."},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST,
            "description": f"The maximum number of lines in the answer; default {LIMIT}.",
        },
    )

    def __init__(self, access: Access, ripgrep: str | None = None) -> None:
        """`ripgrep` is the path of ripgrep. If it is None, ripgrep is looked up in PATH. If it is an empty text,
        ripgrep is not used."""
        self._access = access
        self._chosen_ripgrep = ripgrep

    @cached_property
    def _ripgrep(self) -> str | None:
        return shutil.which("rg") if self._chosen_ripgrep is None else self._chosen_ripgrep or None

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        if checked.get("name") is None and checked.get("content") is None:
            raise ToolFailed("say what to look for: name, content, or both")
        policy = await asyncio.to_thread(self._access.policy_of, context)
        top = locate(checked.get("path", "."), context, policy)
        await check_read(top, policy, context)
        if not top.exists():
            raise ToolFailed(f"{top} does not exist")
        program = self._make_program(top, checked, policy)
        printed, problem = await _run_search(program, self._access.environment(), top, context)
        return await asyncio.to_thread(_format, printed, top, checked, problem, policy.view)

    def _make_program(self, top: Path, arguments: Mapping[str, Any], policy: Policy) -> list[str]:
        """Return the command line of a search that is limited to visible files.

        Ripgrep cannot exclude the hidden files of the view, so it runs only in a sandbox. The built-in search
        runs in a sandbox too if possible, because a background command can replace a folder by a link during
        the search.
        """
        name, content, ignore_case = (
            arguments.get("name"),
            arguments.get("content"),
            arguments.get("ignore_case", False),
        )
        view, sandbox = policy.view, policy.sandbox
        has_walls = sandbox.is_there and view.can_read(top)
        if self._ripgrep is None or not has_walls:
            _refuse_bad(name, content)
            question = {
                "top": str(top),
                "name": name,
                "content": content,
                "ignore_case": ignore_case,
                "hidden": [str(path) for path in view.hidden],
            }
            # -I -S: import nothing from the workspace, which can contain its own json.py.
            program = [sys.executable, "-I", "-S", search_program.__file__, json.dumps(question)]
            if not has_walls:
                return make_outside_command(program)
            return sandbox.start(program, view.workspace, network=False, read_only=True)
        program = [self._ripgrep, "--no-config", "--color=never", "--sort=path", "--no-messages", "--hidden"]
        program += [] if name is None else ["--glob", name]
        program += ["--glob", "!.git"]
        if content is None:
            program += ["--files", "--null", "--", str(top)]
        else:
            program += ["--ignore-case"] if ignore_case else []
            program += [
                "--no-heading",
                "--line-number",
                "--with-filename",
                "--null",
                "--regexp",
                content,
                "--",
                str(top),
            ]
        return sandbox.start(program, view.workspace, network=False, read_only=True)


async def _run_search(
    program: list[str], environment: dict[str, str], top: Path, context: ToolContext
) -> tuple[str, str]:
    """Run the search program. Return its output, and the reason why it was ended early; the reason is empty if it
    ended by itself.

    The program is ended early at the limit of time or output, or when the turn is stopped.
    """
    running = RunningCommand("search_files", program, context.cwd, environment, Output(READ, 2_000))
    try:
        for _ in range(SECONDS * 20):
            if running.over or context.stop.is_set() or running.output.total > READ:
                break
            await asyncio.sleep(0.05)
    finally:
        in_time = running.over
        if not in_time:
            running.signal(signal.SIGTERM)
    printed = running.output.raw()
    if not in_time:
        return printed, f"the search was ended after {running.seconds:.0f} s; narrow it down"
    # Ripgrep exits with 1 if nothing was found. It exits with 2 even if only some of the files were
    # unreadable.
    found_nothing = running.exit_code == 1 and not printed
    if running.exit_code != 0 and not found_nothing and not printed.startswith(str(top)):
        raise ToolFailed(f"the search failed: {make_printable(printed[-300:])}")
    return printed, ""


def _format(printed: str, top: Path, arguments: Mapping[str, Any], problem: str, view: View) -> str:
    """Return the output of the tool: one line for each match in `printed`, the output of the search program, up to
    the limits. Hard links to hidden files are left out."""
    limit = arguments.get("limit", LIMIT)
    linked: set[tuple[int, int]] | None = None
    known: dict[str, bool] = {}
    results = _parse_results(printed, has_content=arguments.get("content") is not None)
    lines: list[str] = []
    room, left_out = ROOM, 0
    for path, text in results:
        if len(lines) == limit or room < 0:
            left_out += 1
            continue
        if path not in known:
            found = _get_status(path)
            if found is not None and found.st_nlink > 1:
                linked = view.linked_secrets() if linked is None else linked
            known[path] = found is None or bool(linked and (found.st_dev, found.st_ino) in linked)
        if not known[path]:
            line = make_printable(path.removeprefix(f"{top}/") + (f":{text}" if text else ""))[:LONGEST_LINE]
            room -= len(line) + 1
            lines.append(line)
    notes = [problem] if problem else []
    if left_out:
        notes.append(f"at least {left_out:,} more; narrow it down")
    if not lines and not notes:
        return "nothing was found"
    return "\n".join([*lines, *(f"[{note}]" for note in notes)])


def _parse_results(printed: str, *, has_content: bool) -> Iterator[tuple[str, str]]:
    """Yield the matches in `printed`, the output of the search program, in which a NUL character follows each
    path.

    Each match is a path and a text. If `has_content` is True, the text is `line:text` of the matching line;
    otherwise it is empty.
    """
    if not has_content:
        yield from ((path, "") for path in printed.split("\0") if path)
        return
    for line in printed.split("\n"):
        path, nul, text = line.partition("\0")
        if nul:
            yield path, text


def _get_status(path: str) -> os.stat_result | None:
    try:
        return Path(path).lstat()
    except (OSError, ValueError):
        return None


def _refuse_bad(name: str | None, content: str | None) -> None:
    try:
        re.compile(content or "")
        search_program.compile_glob(name or "")
    except (re.error, RecursionError, OverflowError) as problem:
        raise ToolFailed(f"invalid pattern: {problem}") from problem
