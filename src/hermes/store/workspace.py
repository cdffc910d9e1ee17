"""Workspace of a directory: its git root, or the directory itself. No external program is run."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.store.arguments import require_text


def find_workspace(directory: Path | str) -> Path:
    """Return the nearest folder that contains `.git`, from `directory` upwards. If there is none, return
    `directory`.

    `.git` is a file in a worktree or submodule, otherwise a folder.
    """
    start = check_directory("directory", directory).resolve()
    for folder in (start, *start.parents):
        with suppress(OSError):  # an unreadable folder is skipped
            if (folder / ".git").exists():
                return folder
    return start


# A filter names a workspace by its path, or by the end of its path after a slash or a backslash.
IN_WORKSPACE = (
    "AND (? IS NULL OR workspace = ? OR workspace LIKE ? ESCAPE '!' OR workspace LIKE ? ESCAPE '!')"
)


class WorkspaceName(NamedTuple):
    """A workspace that a person names in a filter. A stored workspace matches if it has the path `path` or, if
    `end` is set, if its path ends with `end`."""

    path: str | None = None
    end: str | None = None
    """The end of a path, such as `me/hermes`."""

    def bind(self) -> tuple[str | None, ...]:
        """Return this name as the parameters of the SQL condition `IN_WORKSPACE`."""
        end = None if self.end is None else re.sub("[!%_]", r"!\g<0>", self.end)
        return (self.path, self.path, end and f"%/{end}", end and f"%\\{end}")

    def is_of(self, workspace: str | None) -> bool:
        """Return whether this name matches the stored path `workspace`. IN_WORKSPACE is the same test in
        SQL."""
        ends = () if self.end is None else (f"/{self.end}".lower(), f"\\{self.end}".lower())
        return workspace is not None and (workspace == self.path or workspace.lower().endswith(ends))

    @property
    def label(self) -> str:
        """A short name of the workspace to show to people, such as `hermes`."""
        return self.end or Path(self.path or "").name or str(self.path)


def parse_workspace(named: Path | str | WorkspaceName | None) -> WorkspaceName:
    """Return the workspace that a person means by `named`, a path or a part of one. A relative path that is
    passed as `str` also matches all workspaces whose path ends with it."""
    if isinstance(named, WorkspaceName) or named is None:
        return named or WorkspaceName()
    parts = [part for part in str(named).replace("\\", "/").split("/") if part]
    is_end = isinstance(named, str) and not named.startswith("/") and not {".", "..", "~"}.intersection(parts)
    if not is_end:
        return WorkspaceName(str(find_workspace(named)))
    # If the name is not a folder below the current directory, `find_workspace` must not be called: it would
    # return the repository of the current directory.
    return WorkspaceName(str(find_workspace(named) if Path(str(named)).exists() else named), "/".join(parts))


def check_directory(name: str, value: object) -> Path:
    """Check a directory and make it absolute. It need not exist, because sessions can come from other
    machines."""
    text = require_text(name, str(value) if isinstance(value, Path) else value)
    if not text or "\0" in text:
        raise errors.make_error(errors.InvalidArgument, f"{name} must be a directory, got {text!r:.40}")
    return Path(text).absolute()
