"""Reserves ports for servers whose port must be known before they start: it is in a configuration file, or it
is used for a second start.

With port 0 the system chooses a free port, but another program can get that port after it is released. The
ports here are below the range from which the system chooses. A lock prevents other test processes from using
the same port.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from itertools import chain
from pathlib import Path

FIRST, LAST = 20_000, 29_999

_locks: list[int] = []
"""The lock files. They stay open until this process ends."""


def reserve_port() -> int:
    """Return a free port on 127.0.0.1 that no other test uses while this process runs."""
    folder = Path(tempfile.gettempdir()) / f"hermes-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    first = random.SystemRandom().randint(FIRST, LAST)
    for port in chain(range(first, LAST + 1), range(FIRST, first)):
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:  # in use by another test or program
            os.close(lock)
            continue
        _locks.append(lock)
        return port
    raise AssertionError("no port is free")
