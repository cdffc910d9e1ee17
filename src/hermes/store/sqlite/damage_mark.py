"""The mark beside a database file in which a process has found damage.

Until the store is repaired, no process writes to it.
"""

from __future__ import annotations

import os
from pathlib import Path

from hermes import errors, home
from hermes.atomic_files import DAMAGE_MARK
from hermes.store.sqlite.connection import damage_error

SHORTEST = 100
"""The length of a database header in bytes. A shorter file cannot be a store."""


def describe_short_file(size: int) -> str | None:
    """Describe why a file of `size` bytes is too short for a store. Return None if it is long enough."""
    if not size:
        return "the file is empty"
    return f"the file was cut to a length of {size}" if size < SHORTEST else None


def mark_damaged(path: Path, problem: str) -> None:
    """Write a file beside the database file `path` that tells every later opener that the database is damaged.

    The file contains the text `problem`. If it cannot be created, do nothing, because the disk may have failed.
    """
    try:
        descriptor = home.open_private_file(
            f"{path}{DAMAGE_MARK}",
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
            home.get_owners(path, path.parent),
        )
    except OSError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as mark:
        mark.write(problem + "\n")


def clear_damage_mark(path: Path) -> None:
    Path(f"{path}{DAMAGE_MARK}").unlink(missing_ok=True)


def read_damage_mark(path: Path) -> errors.HermesError | None:
    """Return the error to raise if a process has found damage in this file, or None."""
    try:
        with open(f"{path}{DAMAGE_MARK}", encoding="utf-8", errors="replace") as mark:
            problem = mark.read().strip()
    except OSError:
        return None
    return damage_error(path, problem or "damage was found in it")
