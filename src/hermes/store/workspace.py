"""Which project a directory belongs to: its git root, else the directory itself. No program is started for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hermes import errors
from hermes.store.arguments import required_text


def workspace_of(directory: Path | str) -> Path:
    """The nearest folder from here upwards that has a `.git` (a file in a worktree or submodule, else a folder)."""
    start = checked_directory("directory", directory).resolve()
    for folder in (start, *start.parents):
        with suppress(OSError):  # a folder one may not look into is no project of ours
            if (folder / ".git").exists():
                return folder
    return start


def checked_directory(name: str, value: object) -> Path:
    """A directory that a caller names; it need not exist, for sessions come from other machines too."""
    text = required_text(name, str(value) if isinstance(value, Path) else value)
    if not text or "\0" in text:
        raise errors.make_error(errors.InvalidArgument, f"{name} must be a directory, got {text!r:.40}")
    return Path(text).absolute()
