"""`write_file`: give a file its whole text, at once or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools import changes
from hermes.agent.tools.checking import checked, objects, text_field
from hermes.agent.tools.files import (
    EDITING,
    LONGEST_PATH,
    ask_to_write,
    place,
    put,
    refuse_to_write,
    regular_file,
    shown_path,
    text_to_edit,
)

LONGEST = 2_000_000


class WriteFile:
    name = "write_file"
    description = (
        "Write a whole file: a new one, or another text in place of an old one. Missing folders are made. To change a"
        " part of a file, use patch."
    )
    parameters: Mapping[str, Any] = objects(
        ["path", "content"],
        path=text_field("The file, from the working directory; ~ is the person's home.", LONGEST_PATH, 1),
        content=text_field("The whole text.", LONGEST),
    )

    def __init__(self, *, ask: bool = True) -> None:
        """`ask`: whether a person is asked before something that their account depends on is changed."""
        self._ask = ask

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        given = checked(self.parameters, arguments)
        path = place(given["path"], context)
        refuse_to_write(path, context)
        if self._ask:
            await ask_to_write(path, context)
        told = await asyncio.to_thread(write, path, given["content"])
        return f"{shown_path(path, context)}: {told}"


def write(path: Path, text: str) -> str:
    """What was done."""
    size = f"{len(text.encode()):,} bytes"
    with EDITING:
        if not path.exists():
            put(path, text)
            return f"created, {size}"
        regular_file(path)
        try:
            before: str | None = text_to_edit(path)
        except ToolFailed:  # not text, or large: it is replaced all the same
            before = None
        put(path, text)
    return f"replaced, {size}" + ("" if before is None else f"; {changes.summary(before, text)}")
