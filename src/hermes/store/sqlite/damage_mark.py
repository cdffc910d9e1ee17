"""The mark beside a file in which some process has seen damage: nobody writes to the file before it is repaired."""

from __future__ import annotations

import os
from pathlib import Path

from hermes import errors, home
from hermes.atomic_files import DAMAGE_MARK
from hermes.store.sqlite.connection import damage_error

SHORTEST = 100
"""The header alone of a database takes so many bytes."""


def describe_short_file(size: int) -> str | None:
    """What is wrong with a file that is too short for a store; None if it is long enough."""
    if not size:
        return "the file is empty"
    return f"the file was cut to a length of {size}" if size < SHORTEST else None


def mark_damaged(path: Path, problem: str) -> None:
    """Leave a mark that every later opener sees. Best effort: the disk may be the one that failed."""
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
    """The error to raise if some process has seen damage in this file."""
    try:
        with open(f"{path}{DAMAGE_MARK}", encoding="utf-8", errors="replace") as mark:
            problem = mark.read().strip()
    except OSError:
        return None
    return damage_error(path, problem or "damage was seen in it")
