"""Workspace of a directory: its git root, or the directory itself. No external program is run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hermes import errors
from hermes.store.arguments import require_text


def find_workspace(directory: Path | str) -> Path:
    """Return the nearest folder that contains `.git`, from `directory` upwards, or `directory` if there is
    none.

    `.git` is a file in a worktree or submodule, otherwise a folder.
    """
    start = check_directory("directory", directory).resolve()
    for folder in (start, *start.parents):
        with suppress(OSError):  # an unreadable folder is skipped
            if (folder / ".git").exists():
                return folder
    return start


def check_directory(name: str, value: object) -> Path:
    """Check a directory and make it absolute. It need not exist, because sessions can come from other
    machines."""
    text = require_text(name, str(value) if isinstance(value, Path) else value)
    if not text or "\0" in text:
        raise errors.make_error(errors.InvalidArgument, f"{name} must be a directory, got {text!r:.40}")
    return Path(text).absolute()
