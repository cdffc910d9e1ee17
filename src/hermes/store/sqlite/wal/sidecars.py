"""The permissions of the files that SQLite creates beside the store: the write-ahead log and its index
(`-shm`).

SQLite creates these files with the permissions that the store has at that moment. If the store is read-only
at that moment, the files stay read-only. In that case the store cannot be written, even after it was made
writable again.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes.atomic_files import KEY_NOTE
from hermes.logs import get_logger

log = get_logger(__name__)

LOG = "-wal"
ENDINGS = (LOG, "-shm")
SIDECARS = (*ENDINGS, "-journal")
"""The endings of all files that SQLite creates beside a database."""
BESIDE_COPY = (*SIDECARS, KEY_NOTE)
"""The endings of all files that may be beside an unfinished copy."""


def find_read_only(path: Path) -> list[str]:
    """Return the paths of the log and the index if their owner cannot write to them. If the store itself is
    not writable, return an empty list."""
    found = [name for name in _names(path) if not _can_be_written(name)]
    try:
        return found if found and os.stat(path).st_mode & stat.S_IWUSR else []
    except OSError:
        return []


def format_chmod(names: list[str]) -> str:
    import shlex  # needed for notices only

    return f"`chmod u+w {' '.join(shlex.quote(name) for name in names)}`"


def mend_modes(path: Path, *, always: bool = False) -> None:
    """Make the log and the index writable for their owner if the store is writable.

    With `always`, do so even if the store is read-only, so that it can be written once it is made writable.
    Files of other users are left unchanged.
    """
    for name in _names(path) if always else find_read_only(path):
        try:
            found = os.stat(name)
            if found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWUSR:
                os.chmod(name, stat.S_IMODE(found.st_mode) | stat.S_IWUSR)
        except OSError as problem:
            log.debug("%s cannot be made writable: %s", name, problem)


def _names(path: Path) -> list[str]:
    beside = os.path.realpath(path) if os.path.islink(path) else str(path)
    return [beside + ending for ending in ENDINGS]


def _can_be_written(name: str) -> bool:
    try:
        return bool(os.stat(name).st_mode & stat.S_IWUSR)
    except OSError:
        return True
