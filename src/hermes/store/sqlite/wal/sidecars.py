"""The modes of the files that SQLite makes beside the store: the write-ahead log and its index.

SQLite gives them the mode of the store at that moment. Those of a store that was read-only then stay read-only, and
would keep it unwritable after it was made writable again.
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
"""All that SQLite puts beside a file."""
BESIDE_COPY = (*SIDECARS, KEY_NOTE)
"""All that lies beside a copy that is being made."""


def find_read_only(path: Path) -> list[str]:
    """The log and the index, where they lack the right to be written that the store has for its owner."""
    found = [name for name in _names(path) if not _can_be_written(name)]
    try:
        return found if found and os.stat(path).st_mode & stat.S_IWUSR else []
    except OSError:
        return []


def format_chmod(names: list[str]) -> str:
    import shlex  # only a notice names a command

    return f"`chmod u+w {' '.join(shlex.quote(name) for name in names)}`"


def mend_modes(path: Path, *, always: bool = False) -> None:
    """Let the owner write the log and the index, if they may write the store, or `always`.

    A store that is only read now may be written later. What belongs to another user stays as it is.
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
