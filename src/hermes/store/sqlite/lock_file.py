"""The lock for creating, migrating or replacing a store: one process at a time.

The lock is on `<store>.lock`, never on the store itself, because SQLite has its own locks there. The kernel releases
it when its holder dies, so that the next process can continue a killed migration.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes import errors, home
from hermes.store.sqlite import fork_safety
from hermes.store.sqlite.connection import descriptor_error
from hermes.store.sqlite.wal.file_identity import NO_DESCRIPTORS

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
LONGEST_WAIT_S = 900.0
"""How long to wait for the lock.

The migration of a large store takes minutes, and other openers wait for it.
"""

_holders: dict[str, int] = {}
"""For each lock that this process holds, the thread that holds it."""


@contextmanager
def exclusive(path: Path, *, wait: float = LONGEST_WAIT_S) -> Iterator[None]:
    """Hold the lock on `<path>.lock` during the `with` block, so that no other process creates, migrates or replaces
    the store at `path`.

    Raise `StoreBusy` if the lock is not free within `wait` seconds.
    """
    name = f"{path}.lock"
    try:
        owners = home.get_owners(path, path.parent)  # the store's owner may have created the lock file
        descriptor = home.open_private_file(name, os.O_RDWR | os.O_CREAT, owners)
    except OSError as problem:
        if problem.errno in NO_DESCRIPTORS:
            raise descriptor_error(path) from None
        which = f"{name}: " if problem.errno in (errno.ELOOP, errno.EMLINK, errno.EPERM) else ""
        sentence = f"{path} cannot be prepared for writing: {which}{problem.strerror}"
        kind = errors.StoreFull if problem.errno in NO_ROOM else errors.StoreReadOnly
        raise errors.make_error(kind, sentence) from None
    fork_safety.share(descriptor)
    try:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if _holders.get(name) == get_ident():
                    raise errors.make_error(
                        errors.StoreBusy,
                        f"{path} is being created, migrated or restored by the call that a signal handler interrupted."
                        " Open it after the handler has returned",
                    ) from None
                if time.monotonic() > until:
                    raise errors.make_error(
                        errors.StoreBusy, f"{path} is being created, migrated or restored by another program"
                    ) from None
                time.sleep(0.02)
        _holders[name] = get_ident()
        try:
            yield
        finally:
            _holders.pop(name, None)
    finally:
        fork_safety.unshare(descriptor)
        # Closing is not enough if a forked child has the file open too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
