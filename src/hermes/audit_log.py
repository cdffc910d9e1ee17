"""`<home>/audit.log`: security-relevant changes (settings, keys, access), one JSON object per line.

A write error never stops the audited action: the error is logged instead.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes import caller, clock, home
from hermes.logs import get_logger

NAME = "audit.log"
OLDER = "audit.log.1"
LARGEST = 5_000_000
"""Maximum size of the log in bytes. A full log is renamed to `audit.log.1`, replacing an older file of that
name."""
LONGEST_VALUE = 2_000

_log = get_logger(__name__)


def get_path() -> Path:
    return home.get_hermes_home() / NAME


def record(action: str, **details: str | int | bool | None) -> None:
    """Append a line with the time, the action, the process, the terminal, and whether a tool started the
    process."""
    from hermes.secrets import redact_value

    entry = {
        "time": clock.format_iso_utc(clock.now()),
        "action": action,
        "details": redact_value({name: _shorten(value) for name, value in details.items()}),
        "pid": os.getpid(),
        "by_tool": caller.is_started_by_tool(),
        "tty": caller.get_terminal(),
    }
    line = json.dumps(entry).encode() + b"\n"
    try:
        file = get_path()
        home.make_private_folder(file.parent)
        descriptor = _open_for_append(file)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as problem:
        _log.error("%s could not be written to %s: %s", action, NAME, problem.strerror or problem)


def read(limit: int | None = None) -> list[dict[str, Any]]:
    """Return the last `limit` entries, oldest first, or all entries if `limit` is None. Invalid lines are
    skipped."""
    files = [get_path().with_name(OLDER), get_path()]
    entries = [entry for file in files for entry in _read_entries(file)]
    return entries if limit is None else entries[-limit:]


def _shorten(value: str | int | bool | None) -> str | int | bool | None:
    if not isinstance(value, str) or len(value) <= LONGEST_VALUE:
        return value
    return f"{value[:LONGEST_VALUE]}…"


def _open_for_append(file: Path) -> int:
    """Open the file for appending. If the file is full, exactly one process renames it, and a new file is
    opened."""
    while True:
        descriptor = home.open_private_file(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if os.fstat(descriptor).st_size < LARGEST:
            return descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                    os.replace(file, file.with_name(OLDER))
        finally:
            os.close(descriptor)


def _read_entries(file: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry
