"""`write_file`: write the whole text of a file atomically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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
    check_regular_file,
    format_path,
    locate,
    read_text_to_edit,
    replace_text,
)

LONGEST = 2_000_000
CHANGED_MEANWHILE = "the file was changed while the person was asked; read it again"


class WriteFile:
    name = "write_file"
    description = (
        "Write a whole file: a new one, or another text in place of an old one. Missing folders are made. To change a"
        " part of a file, use patch. The person sees the change and may refuse it."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        ["path", "content"],
        path=make_text_field(
            "The file, from the working directory; ~ is the person's home.", LONGEST_PATH, 1
        ),
        content=make_text_field("The whole text.", LONGEST),
    )

    def __init__(self, access: Access, journal: EditJournal | None = None) -> None:
        self._access, self._journal = access, journal or EditJournal(incognito=True)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        policy = await asyncio.to_thread(self._access.policy_of, context)
        path = locate(checked["path"], context, policy)
        if policy.view.is_of_agent(path):
            # Refuse before the file is opened: opening and closing the store would drop its locks.
            await check_edit(path, "", policy, context)
        before = await asyncio.to_thread(_read_text_before, path, policy.view)
        diff = edit_summary.make_diff(str(path), before or "", checked["content"])
        await check_edit(path, diff, policy, context)
        done = await asyncio.to_thread(
            write, path, checked["content"], before, policy.view, partial(self._journal.record, context)
        )
        return f"{format_path(path, context)}: {done}"


def write(path: Path, text: str, before: str | None, view: View, record: Callable[[Path, str], None]) -> str:
    """Write `text` to the file and return a summary of the edit.

    `before` is the text of the file when the approval was requested; None if the file did not exist or was not
    text. If the file has changed since then, raise `ToolFailed`. `record` is called with the path and the new
    text before the file is written.
    """
    size = f"{len(text.encode()):,} bytes"
    with EDITING:
        if _read_text_before(path, view) != before:
            raise ToolFailed(CHANGED_MEANWHILE)
        is_new = not path.exists()
        record(path, text)
        replace_text(path, text)
    if is_new:
        return f"created, {size}"
    # Do not show the model the text of a file outside its view.
    if before is None or not view.can_read(path):
        return f"replaced, {size}"
    return f"replaced, {size}; {edit_summary.summarise_edit(before, text)}"


def _read_text_before(path: Path, view: View) -> str | None:
    """Return the text of the file; None if the file does not exist or is not text. In both cases the file may
    be written."""
    if not path.exists():
        return None
    check_regular_file(path)
    try:
        return read_text_to_edit(path, view)
    except ToolFailed:
        return None
