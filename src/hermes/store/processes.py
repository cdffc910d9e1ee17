"""Whether a process that a row names still lives.

A process is known by its host, its number and when it started, for numbers are given away again. One of another host
cannot be asked: what it holds speaks for it until it expires.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hermes.store.content import from_json

DEAD_STATES = ("Z", "X", "x")
"""How /proc shows a process that has ended and that its parent has not looked at yet."""


class Process(NamedTuple):
    host: str
    pid: int
    start: str | None


def this_process() -> Process:
    pid = os.getpid()
    return Process(os.uname().nodename, pid, _own_start(pid))


def is_running(process: str | None) -> bool:
    """Whether the process recorded in this JSON is known to live."""
    known = from_json(process, None) if process else None
    if not isinstance(known, dict) or known.get("host") != os.uname().nodename:
        return False
    return _lives_here(known.get("pid"), known.get("start"))


def is_gone(host: object, pid: object, start: object) -> bool:
    """Whether a process is known to be dead."""
    return host == os.uname().nodename and not _lives_here(pid, start)


def _lives_here(pid: object, start: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # somebody else's, but there
    stat = _stat(pid)
    if stat is not None and stat[0] in DEAD_STATES:
        return False
    return start is None or start_of(pid) in (None, start)


def start_of(pid: int) -> str | None:
    """When a process started, as /proc tells it, or as `ps` does where there is no /proc."""
    stat = _stat(pid)
    if stat is not None:
        return stat[19]
    return None if Path("/proc/self/stat").exists() else start_by_ps(pid)


def start_by_ps(pid: int) -> str | None:
    """The same text whoever asks: neither the language nor the time zone of the asking process is in it."""
    import subprocess

    plain = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
    asked = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        told = subprocess.run(asked, env=plain, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold anything: the state first, the start the 20th."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return fields if len(fields) > 19 else None


@cache
def _own_start(pid: int) -> str | None:
    return start_of(pid)
