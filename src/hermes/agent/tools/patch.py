"""`patch`: find an exact passage in a file and replace it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hermes.agent.edit_journal import EditJournal
from hermes.agent.sandbox.file_view import View
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import edit_summary
from hermes.agent.tools.access import Access
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.agent.tools.files import (
    EDITING,
    LONGEST_PATH,
    check_edit,
    check_read,
    format_path,
    locate,
    read_text_to_edit,
    replace_text,
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
    parameters: Mapping[str, Any] = make_object_schema(
        ["path", "old_text", "new_text"],
        path=make_text_field(
            "The file, from the working directory; ~ is the person's home.", LONGEST_PATH, 1
        ),
        old_text={**make_text_field("The text to replace.", LONGEST), "minLength": 1},
        new_text=make_text_field("The new text; empty to delete.", LONGEST),
        replace_all={"type": "boolean", "description": "Change every occurrence, however many there are."},
    )

    def __init__(self, access: Access, journal: EditJournal | None = None) -> None:
        self._access, self._journal = access, journal or EditJournal(incognito=True)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        policy = await asyncio.to_thread(self._access.policy_of, context)
        path = locate(checked["path"], context, policy)
        # The result quotes the file, even if the edit is not possible. Reading must therefore be allowed too.
        await check_read(path, policy, context)
        edit = await asyncio.to_thread(plan_edit, path, policy.view, checked)
        await check_edit(path, edit_summary.make_diff(str(path), edit.before, edit.after), policy, context)
        done = await asyncio.to_thread(
            apply_edit, path, policy.view, checked, partial(self._journal.record, context)
        )
        return f"{format_path(path, context)}: {done}"


class Edit(NamedTuple):
    before: str
    after: str
    places: int


def plan_edit(path: Path, view: View, arguments: Mapping[str, Any]) -> Edit:
    """Return the text of the file before and after the edit that `arguments`, the arguments of the tool call,
    describe. Raise `ToolFailed` if the edit is not possible."""
    before = read_text_to_edit(path, view)
    old, new = arguments["old_text"], arguments["new_text"]
    if "\r\n" in before and "\r\n" not in old:  # models write LF; the file keeps CRLF
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    after, count = replace_passage(before, old, new, arguments.get("replace_all", False))
    return Edit(before, after, count)


def apply_edit(
    path: Path, view: View, arguments: Mapping[str, Any], record: Callable[[Path, str], None]
) -> str:
    """Make the edit that `arguments` describe in the file, and return a summary of the edit.

    The file is read again for this. Changes that another program made to it since the approval was requested are
    therefore kept. `record` is called with the path and the new text before the file is written.
    """
    with EDITING:
        edit = plan_edit(path, view, arguments)
        record(path, edit.after)
        replace_text(path, edit.after)
    times = "" if edit.places == 1 else f"{edit.places} places changed; "
    return f"{times}{edit_summary.summarise_edit(edit.before, edit.after)}"


def replace_passage(text: str, old: str, new: str, every: bool) -> tuple[str, int]:
    """Return the edited text and the number of replaced passages.

    Raise `ToolFailed` if `old` is missing, or if it occurs several times and `every` is false. The error
    names the most similar lines, or the line numbers of the first matches.
    """
    if old == new:
        raise ToolFailed("old_text and new_text are the same")
    count = text.count(old)
    if count == 0:
        raise ToolFailed(f"old_text is not in the file. {_find_nearest(text, old)}")
    if count > 1 and not every:
        lines = ", ".join(str(line) for line in _find_lines(text, old))
        raise ToolFailed(
            f"old_text is in the file {count:,} times (line {lines}{', ...' if count > PLACES_SHOWN else ''});"
            " add more context, or pass replace_all"
        )
    return text.replace(old, new), count


def _find_lines(text: str, old: str) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < PLACES_SHOWN:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found


def _find_nearest(text: str, old: str) -> str:
    """Return the lines most similar to the first non-empty line of `old`, so that the model can correct its
    text."""
    lines = text.splitlines()
    first_line = next((line.strip() for line in old.splitlines() if line.strip()), "")[:LONGEST_COMPARED]
    if not first_line or not lines:
        return "The file is empty." if not lines else "old_text contains only white space."
    matcher = difflib.SequenceMatcher(b=first_line, autojunk=False)
    best, where = 0.0, -1
    for number, line in enumerate(lines[:MOST_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:LONGEST_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, where = matcher.ratio(), number
    if best < ALIKE:
        return "No line is similar to it; read the file first."
    height = min(len(old.splitlines()), 20)
    numbers = range(max(0, where - AROUND), min(len(lines), where + height + AROUND))
    return "The nearest place:\n" + "\n".join(f"{line + 1:>6}\t{lines[line][:500]}" for line in numbers)
