"""Whether a process that a session row names still lives."""

from __future__ import annotations

import os
from pathlib import Path

from hermes.store.content import from_json


def is_running(process: str | None) -> bool:
    """Whether the recorded process lives. One of another host cannot be asked: its lease speaks for it."""
    known = from_json(process, None) if process else None
    if not isinstance(known, dict) or known.get("host") != os.uname().nodename:
        return False
    pid = known.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # somebody else's, but there
    return known.get("start") in (None, start_of(pid)) or start_of(pid) is None


def start_of(pid: int) -> str | None:
    """When a process started, as /proc tells it; a pid that was given away again has another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError, ValueError):
        return None
