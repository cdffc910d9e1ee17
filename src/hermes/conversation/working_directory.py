"""The working directory of a conversation and the git branch checked out in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hermes.store.processes import current_record
from hermes.store.workspace import find_workspace


class WorkingDirectory(NamedTuple):
    cwd: Path
    note: str | None = None
    """A note for the person about the directory, in one line."""


def choose_directory(stored: str | None, asked_cwd: Path | None, here: Path) -> WorkingDirectory:
    """Return the working directory for a conversation whose stored directory is `stored`.

    `asked_cwd`, the directory that the person requested, has priority. Otherwise the stored directory is used if it
    still exists. Otherwise `here`, the current directory, is used.
    """
    if asked_cwd is not None:
        return WorkingDirectory(asked_cwd, f"Working in {asked_cwd}.")
    if not stored or Path(stored) == here:
        return WorkingDirectory(here)
    if Path(stored).is_dir():
        return WorkingDirectory(Path(stored), f"Working in {stored}, as before.")
    return WorkingDirectory(here, f"{stored} is gone; working in {here}.")


def read_branch(cwd: Path) -> str | None:
    """Return the git branch that is checked out in a directory. None outside git or with a detached HEAD."""
    git = find_workspace(cwd) / ".git"
    try:
        if git.is_file():  # the .git file of a worktree contains the path of its git folder
            git = (git.parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    mark = "ref: refs/heads/"
    return head[len(mark) :] if head.startswith(mark) else None


def describe_origin(cwd: Path) -> dict[str, str | None]:
    """Return the columns of a new session that record its directory, workspace, git branch and process."""
    return {
        "cwd": str(cwd),
        "workspace": str(find_workspace(cwd)),
        "git_branch": read_branch(cwd),
        "process": current_record(),
    }
