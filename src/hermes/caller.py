"""Determine whether a person or a tool of the agent started this process.

A tool call sets `HERMES_TOOL_CALL` in the environment of the processes it starts. The variable is checked in
this process and, on Linux, in its ancestors, because a command can unset it. A process that leaves its
process tree (`setsid`, a daemon) is not recognised. This check is only an aid; the sandbox protects against
hostile commands.
"""

from __future__ import annotations

import os
import re
import sys

from hermes import errors

TOOL_MARKER = "HERMES_TOOL_CALL"
MOST_ANCESTORS = 64


def is_started_by_tool() -> bool:
    """Return whether a tool call of the agent started this process, directly or indirectly."""
    return bool(os.environ.get(TOOL_MARKER)) or any(map(_has_marker, _list_ancestors()))


def refuse_tool(what: str) -> None:
    """Raise `StartedByTool` if a tool of the agent started this process. The error message begins with
    `what`."""
    if is_started_by_tool():
        raise errors.StartedByTool(f"{what}; a tool of the agent started this process")


def get_terminal() -> str | None:
    """Return the device of the terminal that this process was started from, or None."""
    for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__):
        try:
            if stream is not None and stream.isatty():
                return os.ttyname(stream.fileno())
        except (OSError, ValueError):  # closed, or not a device
            continue
    return None


def _list_ancestors() -> list[int]:
    """Return the ids of the ancestor processes, nearest first. The list ends at the first process whose
    parent cannot be read."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 1 and pid not in found and len(found) < MOST_ANCESTORS:
        found.append(pid)
        pid = _get_parent(pid)
    return found


def _get_parent(pid: int) -> int:
    match = re.search(rb"^PPid:\s*(\d+)", _read(pid, "status"), re.MULTILINE)
    return 0 if match is None else int(match[1])


def _has_marker(pid: int) -> bool:
    prefix = f"{TOOL_MARKER}=".encode()
    return any(entry.startswith(prefix) and entry != prefix for entry in _read(pid, "environ").split(b"\0"))


def _read(pid: int, name: str) -> bytes:
    """Return the content of a file below /proc. Return empty bytes if the file does not exist or cannot be
    read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
