"""Which project a directory belongs to: its git root, else the directory itself. No program is started for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hermes import errors
from hermes.store.arguments import require_text


def find_workspace(directory: Path | str) -> Path:
    """The nearest folder from here upwards that has a `.git` (a file in a worktree or submodule, else a folder)."""
    start = check_directory("directory", directory).resolve()
    for folder in (start, *start.parents):
        with suppress(OSError):  # a folder one may not look into is no project of ours
            if (folder / ".git").exists():
                return folder
    return start


def check_directory(name: str, value: object) -> Path:
    """A directory that a caller names; it need not exist, for sessions come from other machines too."""
    text = require_text(name, str(value) if isinstance(value, Path) else value)
    if not text or "\0" in text:
        raise errors.make_error(errors.InvalidArgument, f"{name} must be a directory, got {text!r:.40}")
    return Path(text).absolute()
