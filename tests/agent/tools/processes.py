"""Inspects real processes from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic


async def eventually(so: Callable[[], object]) -> bool:
    """Wait until `so()` returns True. Return whether that happened within the time limit."""
    until = monotonic() + 60
    while monotonic() < until:
        if so():
            return True
        await asyncio.sleep(0.01)
    return False


def runs(mark: str) -> bool:
    """Return whether a process with `mark` in its command line is running. Its pid cannot be used, because
    the pid inside a sandbox differs from the pid outside."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and mark in (folder / "cmdline").read_bytes().decode().split("\0"):
                return True
    return False
