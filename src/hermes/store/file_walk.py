"""The files below a store's folder, as far as it makes sense to look: no links, no trees of programs, not without end.

A store may lie in a folder with a hundred thousand files. Those nearest to it come first, and who asks is told when
there were more than are looked through.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 20_000
PROGRAMS = frozenset({".git", "node_modules", ".venv", "__pycache__"})


class FoundFiles(NamedTuple):
    files: list[Path]
    open_here: list[Path]
    """Files that this process has open. They may be databases: to open one as a file, and to close it, would drop the
    locks by which others know that it is in use."""
    complete: bool


def find_files(folder: Path) -> FoundFiles:
    open_files = _find_open_files()
    found = FoundFiles([], [], complete=True)
    waiting = deque([folder])
    while waiting:
        here = waiting.popleft()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in PROGRAMS:
                    waiting.append(here / entry.name)
            elif entry.is_file(follow_symlinks=False):
                (found.open_here if _identify_file(entry) in open_files else found.files).append(
                    here / entry.name
                )
        if len(found.files) >= MOST_FILES:
            return found._replace(files=found.files[:MOST_FILES], complete=False)
    return found


def _find_open_files() -> set[tuple[int, int] | None]:
    identities: set[tuple[int, int] | None] = set()
    with suppress(FileNotFoundError):  # a system that does not tell
        for descriptor in Path("/dev/fd").iterdir():
            with suppress(OSError):  # the one by which the list is read
                status = os.fstat(int(descriptor.name))
                identities.add((status.st_dev, status.st_ino))
    return identities


def _identify_file(entry: os.DirEntry[str]) -> tuple[int, int] | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it has gone meanwhile
        return None
    return status.st_dev, status.st_ino
