"""One process at a time may create, migrate or replace a store: a lock on a file beside it.

The lock is on `<store>.lock`, never on the store itself, whose own locks are SQLite's. It is released by the kernel
when its holder dies, so that a killed migration is taken up by whoever comes next.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes import errors
from hermes.home import PRIVATE_FILE
from hermes.store.sqlite import forking

LONGEST_WAIT_S = 900.0
"""A migration of a large store takes minutes; whoever opens it meanwhile waits for it."""


@contextmanager
def exclusive(path: Path, *, wait: float = LONGEST_WAIT_S) -> Iterator[None]:
    name = f"{path}.lock"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as problem:
        sentence = f"{path} cannot be prepared for writing: {problem.strerror}"
        raise errors.raised(errors.StoreReadOnly, sentence) from None
    forking.share(descriptor)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
    except OSError:
        pass  # somebody else's file: it only has to be lockable
    try:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise errors.raised(
                        errors.StoreBusy, f"{path} is being created, migrated or restored by another program"
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        forking.unshare(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing would not do, where a fork has it open, too
        os.close(descriptor)
