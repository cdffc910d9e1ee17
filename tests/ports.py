"""Ports for servers that are told their port: in a configuration file, or because they are started a second time.

Port 0 lets the system choose, and a port that was chosen and released is given to the next program that asks. These
ports are below the range from which the system chooses, and a lock keeps other test processes from using one.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20_000, 29_999

_locks: list[int] = []
"""Open until this process ends."""


def reserve_port() -> int:
    """A free port on 127.0.0.1 that no other test uses while this process runs."""
    folder = Path(tempfile.gettempdir()) / f"hermes-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    candidates = random.SystemRandom().sample(range(FIRST, LAST + 1), LAST + 1 - FIRST)
    for port in candidates:
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:  # another test has it, or another program
            os.close(lock)
            continue
        _locks.append(lock)
        return port
    raise AssertionError("no port is free")
