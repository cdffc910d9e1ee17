"""This process as others see it: a command that it starts must not read its keys from its memory."""

from __future__ import annotations

import ctypes
import sys

PR_SET_DUMPABLE = 4


def make_unreadable() -> None:
    """No other process of the same user can read the memory, the environment or the open files of this one.

    It also writes no core dump. A debugger cannot attach any more, unless it runs as root.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
