"""Finds programs that can be trusted. A program found in PATH is not always safe, because a folder of PATH
can be in a workspace, where commands can create files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hermes.agent.sandbox.file_view import View

FOLDERS = (
    "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/run/current-system/sw/bin",
    "/nix/var/nix/profiles/default/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin",
)  # fmt: skip
BUILTINS = frozenset({"cd", "echo", "false", "printf", "pwd", "test", "true", "type"})
"""Commands that a shell runs itself, without searching PATH."""


def find_system_program(name: str) -> str | None:
    """Return the path of a program that runs outside the sandbox, such as bubblewrap; None if it is not
    installed. Only system folders are searched, not PATH."""
    return shutil.which(name, path=os.pathsep.join(FOLDERS))


def is_replaceable(name: str, view: View, path: str | None = None) -> bool:
    """Return whether a command could have replaced the program that a shell finds under `name`.

    `path` is the PATH of the shell; None means the PATH of this process.
    """
    if "/" in name or name in BUILTINS:
        return False
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(folder):  # noqa: PTH117  it depends on the working directory
            return True
        file = Path(folder, name)
        if file.is_file() and os.access(file, os.X_OK):
            return any(view.can_change(found) for found in (file.parent.resolve(), file.resolve()))
    return False
