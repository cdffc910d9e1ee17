"""Where a conversation works: its directory, the branch checked out there, and what became of it since."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hermes.store.processes import current_record
from hermes.store.workspace import find_workspace


class WorkingDirectory(NamedTuple):
    cwd: Path
    note: str | None = None
    """What a person should know about it, in one line."""


def choose_directory(stored: str | None, asked_cwd: Path | None, here: Path) -> WorkingDirectory:
    """Where to work in a conversation that was held in `stored`: there, unless it is gone or another was asked for."""
    if asked_cwd is not None:
        return WorkingDirectory(asked_cwd, f"Working in {asked_cwd}.")
    if not stored or Path(stored) == here:
        return WorkingDirectory(here)
    if Path(stored).is_dir():
        return WorkingDirectory(Path(stored), f"Working in {stored}, as before.")
    return WorkingDirectory(here, f"{stored} is gone; working in {here}.")


def read_branch(cwd: Path) -> str | None:
    """The git branch that is checked out here; None outside of git, or on no branch."""
    git = find_workspace(cwd) / ".git"
    try:
        if git.is_file():  # a worktree says where its own folder is
            git = (git.parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    mark = "ref: refs/heads/"
    return head[len(mark) :] if head.startswith(mark) else None


def describe_origin(cwd: Path) -> dict[str, str | None]:
    """What a new session's row says of where, and by whom, it was begun."""
    return {
        "cwd": str(cwd),
        "workspace": str(find_workspace(cwd)),
        "git_branch": read_branch(cwd),
        "process": current_record(),
    }
