"""`@file` in what a person says: the file goes along with the message, within bounds."""

from __future__ import annotations

import re
from pathlib import Path

from hermes.agent.tool import shorten_middle
from hermes.recall.tool.prompt_safety import close_fence, fence_text
from hermes.recall.tool.prompt_safety import make_name as one_line

_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
MOST_FILES = 20
LONGEST_NAME = 500


def attach_files(text: str, cwd: Path) -> str:
    """The message, and below it every file it mentions that is there and is text. An `@` may mean something else."""
    names = dict.fromkeys(mention[1] or mention[2].rstrip(".,;:!?)") for mention in _MENTION.finditer(text))
    found = [
        (name, read) for name in names if (read := _read_text(cwd / Path(name).expanduser())) is not None
    ]
    parts = [
        f"[file {one_line(name, LONGEST_NAME)}]\n{fence_text(shorten_middle(content))}"
        for name, content in found[:MOST_FILES]
    ]
    return "\n\n".join([close_fence(text), *parts]) if parts else text


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8") if file.is_file() else None
    except (OSError, ValueError):  # not ours to read, not text, or no name at all
        return None
