"""`patch`: put one piece of text in the place of another, exactly there and nowhere else."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes.agent.sandbox.file_view import View
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import edit_summary
from hermes.agent.tools.access import Access
from hermes.agent.tools.argument_check import checked, objects, text_field
from hermes.agent.tools.files import (
    EDITING,
    LONGEST_PATH,
    check_edit,
    check_read,
    locate,
    put,
    shown_path,
    text_to_edit,
)

LONGEST = 200_000
MOST_LINES_COMPARED, LONGEST_COMPARED = 5_000, 200
ALIKE = 0.5
AROUND = 2
PLACES_SHOWN = 10


class Patch:
    name = "patch"
    description = (
        "Change a part of a file: `old_text` must be in it exactly once, spaces and line ends included, and"
        " `new_text` takes its place. Take a few lines of context along to make it unique, or pass replace_all. The"
        " person sees the change and may refuse it."
    )
    parameters: Mapping[str, Any] = objects(
        ["path", "old_text", "new_text"],
        path=text_field("The file, from the working directory; ~ is the person's home.", LONGEST_PATH, 1),
        old_text={**text_field("What is there now.", LONGEST), "minLength": 1},
        new_text=text_field("What shall be there instead; empty to delete.", LONGEST),
        replace_all={"type": "boolean", "description": "Change every occurrence, however many there are."},
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        policy = await asyncio.to_thread(self._access.policy_of, context)
        path = locate(given["path"], context, policy)
        await check_read(
            path, policy, context
        )  # the answer quotes the file, also where the change cannot be made
        edit = await asyncio.to_thread(plan, path, policy.view, given)
        await check_edit(path, edit_summary.diff(str(path), edit.before, edit.after), policy, context)
        done = await asyncio.to_thread(change, path, policy.view, given)
        return f"{shown_path(path, context)}: {done}"


class Edit(NamedTuple):
    before: str
    after: str
    places: int


def plan(path: Path, view: View, given: Mapping[str, Any]) -> Edit:
    """What the file is now and what it will be; `ToolFailed` says why the change cannot be made."""
    before = text_to_edit(path, view)
    old, new = given["old_text"], given["new_text"]
    if "\r\n" in before and "\r\n" not in old:  # models write plain line ends; the file keeps its own
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    after, count = replaced(before, old, new, given.get("replace_all", False))
    return Edit(before, after, count)


def change(path: Path, view: View, given: Mapping[str, Any]) -> str:
    """What was done. Other changes of the file since the plan was made are kept."""
    with EDITING:
        edit = plan(path, view, given)
        put(path, edit.after)
    times = "" if edit.places == 1 else f"{edit.places} places changed; "
    return f"{times}{edit_summary.summary(edit.before, edit.after)}"


def replaced(text: str, old: str, new: str, every: bool) -> tuple[str, int]:
    """The text with the change made, and in how many places; or `ToolFailed`, which says where to look."""
    if old == new:
        raise ToolFailed("old_text and new_text are the same")
    count = text.count(old)
    if count == 0:
        raise ToolFailed(f"old_text is not in the file. {_nearest(text, old)}")
    if count > 1 and not every:
        lines = ", ".join(str(line) for line in _lines_of(text, old))
        raise ToolFailed(
            f"old_text is in the file {count:,} times (line {lines}{', ...' if count > PLACES_SHOWN else ''});"
            " take more context along, or pass replace_all"
        )
    return text.replace(old, new), count


def _lines_of(text: str, old: str) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < PLACES_SHOWN:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found


def _nearest(text: str, old: str) -> str:
    """The lines most like the first one that says something, so that the next try can be exact."""
    lines = text.splitlines()
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")[:LONGEST_COMPARED]
    if not wanted or not lines:
        return "The file is empty." if not lines else "It holds only white space."
    matcher = difflib.SequenceMatcher(b=wanted, autojunk=False)
    best, where = 0.0, -1
    for number, line in enumerate(lines[:MOST_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:LONGEST_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, where = matcher.ratio(), number
    if best < ALIKE:
        return "Nothing in it is like it; read the file first."
    height = min(len(old.splitlines()), 20)
    shown = range(max(0, where - AROUND), min(len(lines), where + height + AROUND))
    return "The nearest place:\n" + "\n".join(f"{line + 1:>6}\t{lines[line][:500]}" for line in shown)
