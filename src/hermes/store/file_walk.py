"""Bounded search for files below a store's folder. Links and the folders of tools, such as `.git`, are
skipped.

The folder of a store can contain a hundred thousand files. Files in the nearest folders come first, and the
result says whether the search was complete.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 20_000
PROGRAMS = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Names of folders that tools fill. They are not searched."""


class FoundFiles(NamedTuple):
    files: list[Path]
    open_here: list[Path]
    """Files that this process has open. They are listed separately because they may be databases. Opening and
    closing a database as a plain file would drop this process's locks, by which other processes see that it
    is in use."""
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
    with suppress(FileNotFoundError):  # not every system has /dev/fd
        for descriptor in Path("/dev/fd").iterdir():
            with suppress(OSError):  # the descriptor of this iteration is closed
                status = os.fstat(int(descriptor.name))
                identities.add((status.st_dev, status.st_ino))
    return identities


def _identify_file(entry: os.DirEntry[str]) -> tuple[int, int] | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it was removed in the meantime
        return None
    return status.st_dev, status.st_ino
