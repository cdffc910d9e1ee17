"""Where a program is looked for. A folder of PATH may lie in a workspace, where a command can put any file."""

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


def find_system_program(name: str) -> str | None:
    """A program that runs outside the sandbox, such as the one that makes it. PATH is not used."""
    return shutil.which(name, path=os.pathsep.join(FOLDERS))


def is_replaceable(name: str, view: View, path: str | None = None) -> bool:
    """Whether a command could have put the program there that a shell finds by this name.

    `path`: the PATH of the shell, if not that of this process.
    """
    if "/" in name or name in BUILTINS:
        return False
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(folder):  # noqa: PTH117  it depends on the folder in which the command runs
            return True
        file = Path(folder, name)
        if file.is_file() and os.access(file, os.X_OK):
            return any(view.can_change(found) for found in (file.parent.resolve(), file.resolve()))
    return False
