"""`read_file`: read a text file, or a part of it, with line numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from hermes.agent.sandbox.file_view import View
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.access import Access
from hermes.agent.tools.argument_check import check_arguments, make_object_schema, make_text_field
from hermes.agent.tools.files import LONGEST_PATH, check_read, check_regular_file, locate, open_checked
from hermes.text import make_readable

LINES, MOST_LINES = 500, 2_000
LONGEST_LINE = 2_000
ROOM = 45_000
"""The length limit of a result, in characters."""
LOOKED_AT = 8_192
FARTHEST = 2_000_000_000

PICTURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"BM": "bitmap",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}


class ReadFile:
    name = "read_file"
    description = (
        "Read a text file with line numbers (a number, a tab, the line). Long files come in parts: the answer says"
        " where to go on. The numbers are not part of the file."
    )
    parameters: Mapping[str, Any] = make_object_schema(
        ["path"],
        path=make_text_field(
            "The file, from the working directory; ~ is the person's home.", LONGEST_PATH, 1
        ),
        offset={
            "type": "integer",
            "minimum": 1,
            "maximum": FARTHEST,
            "description": "The first line to show; default 1.",
        },
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_LINES,
            "description": f"The number of lines; default {LINES}.",
        },
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked = check_arguments(self.parameters, arguments)
        policy = await asyncio.to_thread(self._access.policy_of, context)
        path = locate(checked["path"], context, policy)
        await check_read(path, policy, context)
        first, limit = checked.get("offset", 1), checked.get("limit", LINES)
        return await asyncio.to_thread(read_numbered, path, policy.view, first, limit)


def read_numbered(path: Path, view: View, first: int, limit: int) -> str:
    """Return `limit` numbered lines, starting at line `first`. The file is read line by line, so a large file
    does not need more memory."""
    found = check_regular_file(path)
    try:
        with open_checked(path, view) as file:
            _refuse_binary(path, file.read(LOOKED_AT), found.st_size)
            file.seek(0)
            return _number_lines(file, path, first, limit)
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem


def _number_lines(file: IO[bytes], path: Path, first: int, limit: int) -> str:
    numbered: list[str] = []
    room, number, more = ROOM, 0, False
    while line := file.readline(4 * LONGEST_LINE):
        number += 1
        cut = 0
        while not line.endswith(b"\n") and (rest := file.readline(1_000_000)):
            cut += len(rest)
            if rest.endswith(b"\n"):
                break
        if number < first:
            continue
        text = make_readable(line.decode("utf-8", "replace").rstrip("\r\n")).replace("\n", " ")
        if cut or len(text) > LONGEST_LINE:
            cut += max(0, len(text) - LONGEST_LINE)
            text = f"{text[:LONGEST_LINE]} [... about {cut:,} more characters in this line ...]"
        room -= len(text) + 8
        if len(numbered) == limit or (room < 0 and numbered):
            more = True
            break
        numbered.append(f"{number:>6}\t{text}")
    if not numbered:
        if number == 0:
            return f"{path} is empty"
        raise ToolFailed(f"{path} has {number:,} lines; there is no line {first:,}")
    if more:
        numbered.append(f"[there is more; go on with offset {first + len(numbered):,}]".replace(",", ""))
    return "\n".join(numbered)


def _refuse_binary(path: Path, start: bytes, size: int) -> None:
    for mark, kind in PICTURES.items():
        if start.startswith(mark) and (kind != "WebP" or start[8:12] == b"WEBP") and b"\0" in start:
            raise ToolFailed(f"{path} is a picture ({kind}, {size:,} bytes); only text can be read")
    if b"\0" in start:
        raise ToolFailed(
            f"{path} is not text ({size:,} bytes); a command such as `file` or `xxd` can look at it"
        )
