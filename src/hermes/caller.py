"""Who started this process: a person, or a tool of the agent.

A tool call puts `HERMES_TOOL_CALL` into the environment of what it starts. The variable is looked for in this process
and, on Linux, in its ancestors, because a command can unset it. A process that leaves its family (`setsid`, a daemon)
is not recognised: the wall against a hostile command is the sandbox, this is a help.
"""

from __future__ import annotations

import os
import re
import sys

from hermes import errors

TOOL_MARKER = "HERMES_TOOL_CALL"
MOST_ANCESTORS = 64


def is_started_by_tool() -> bool:
    """Whether a tool call of the agent started this process, directly or through others."""
    return bool(os.environ.get(TOOL_MARKER)) or any(map(_has_marker, _list_ancestors()))


def refuse_tool(what: str) -> None:
    """Raise `StartedByTool` with this sentence if a tool started this process."""
    if is_started_by_tool():
        raise errors.StartedByTool(f"{what}; a tool of the agent started this process")


def get_terminal() -> str | None:
    """The device of the terminal this process was started from; None if there is none."""
    for stream in (sys.__stdin__, sys.__stderr__, sys.__stdout__):
        try:
            if stream is not None and stream.isatty():
                return os.ttyname(stream.fileno())
        except (OSError, ValueError):  # closed, or no device
            continue
    return None


def _list_ancestors() -> list[int]:
    """The ids of the processes above this one, the nearest first; those above a process that hides are unknown."""
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
    """A file of /proc; empty where there is none, or it is somebody else's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
