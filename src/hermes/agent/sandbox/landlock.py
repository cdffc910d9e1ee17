"""Landlock: rules of the Linux kernel that only add rights, for where bubblewrap cannot be had.

It cannot mask a file inside a folder that is shown. So a folder of the system that holds a hidden file is shown entry
by entry, and a workspace that holds one gets no sandbox. Unix sockets cannot be made, because Landlock does not keep a
command from talking through one to a program that is outside.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes.agent.sandbox.file_view import View

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
READ_ONLY_FOLDERS = ("/proc",)


def make_spec(view: View, *, network: bool, read_only: bool = False) -> dict[str, Any]:
    """What the launcher is told."""
    rules = [[str(path), right] for path, right in _make_rules(view, read_only=read_only)]
    families = [int(socket.AF_UNIX)] if network else []
    made: dict[str, Any] = {"landlock": rules, "scope": True, "keyring": True, "deny_sockets": families}
    git = view.git_folder
    return made if git is None or read_only else made | {"git": str(git)}


def explain_unavailable(view: View) -> str | None:
    """Why this workspace cannot have it."""
    if view.holds_hidden:
        return "the workspace holds the agent's own files or the person's keys, which Landlock cannot mask"
    if view.own_program:
        return "the workspace holds this program, which Landlock cannot keep from being changed"
    return None


def _make_rules(view: View, *, read_only: bool) -> Iterator[tuple[Path, str]]:
    for device in DEVICES:
        yield Path(device), "write"
    for folder in READ_ONLY_FOLDERS:
        yield Path(folder), "read"
    for path in view.system:
        yield from _exclude_hidden(path, view)
    yield view.temporary, "write"
    for path in view.readable:
        if path not in view.system and path != view.temporary:
            yield path, "write" if path in view.writable and not read_only else "read"


def _exclude_hidden(path: Path, view: View) -> Iterator[tuple[Path, str]]:
    """The folder, or if something hidden lies in it, all of its entries but that."""
    if view.is_hidden(path):
        return
    if not any(hidden.is_relative_to(path) for hidden in view.hidden):
        yield path, "read"
        return
    yield path, "list"
    try:
        entries = sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            yield from _exclude_hidden(entry, view)
