"""`<home>/audit.log`: security-relevant changes (settings, keys, access), one JSON object per line.

A write error never stops the audited action: the error is logged instead.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from hermes import caller, clock, home
from hermes.logs import get_logger

NAME = "audit.log"
LARGEST = 5_000_000
"""Maximum size of the log in bytes. A full log is renamed to `audit.log.1`. The older `audit.log.1` is renamed to
`audit.log.2`, and so on."""
OLDER_FILES = 5
"""Number of full logs that are kept."""
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
    entries: list[dict[str, Any]] = []
    for file in (get_path(), *_list_older()):
        entries[:0] = _read_entries(file)
        if limit is not None and len(entries) >= limit:
            break
    return entries if limit is None else entries[-limit:]


def follow() -> Iterator[dict[str, Any] | None]:
    """Yield each entry that is recorded from now on. Yield None whenever there is no new entry."""
    file, descriptor, rest = get_path(), _open_at_end(get_path()), b""
    try:
        while True:
            added = b"" if descriptor is None else os.read(descriptor, 65_536)
            *lines, rest = (rest + added).split(b"\n")
            yield from _parse_lines(lines)
            if added:
                continue
            yield None
            if descriptor is None or not _is_same(descriptor, file):  # the log was renamed, or is new
                if descriptor is not None and os.fstat(descriptor).st_size > os.lseek(
                    descriptor, 0, os.SEEK_CUR
                ):
                    continue  # an entry was added before the renaming
                fresh = _open_at_end(file, at_end=False)
                if fresh is not None:
                    if descriptor is not None:
                        os.close(descriptor)
                    descriptor, rest = fresh, b""
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_at_end(file: Path, *, at_end: bool = True) -> int | None:
    try:
        descriptor = home.open_private_file(file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    if at_end:
        os.lseek(descriptor, 0, os.SEEK_END)
    return descriptor


def _is_same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False))
    except FileNotFoundError:
        return True  # the next entry creates the file


def _list_older() -> list[Path]:
    """Return the paths to which full audit logs are renamed, newest first. The files need not exist."""
    return [get_path().with_name(f"{NAME}.{number}") for number in range(1, OLDER_FILES + 1)]


def _shorten(value: str | int | bool | None) -> str | int | bool | None:
    if not isinstance(value, str) or len(value) <= LONGEST_VALUE:
        return value
    return f"{value[:LONGEST_VALUE]}…"


def _open_for_append(file: Path) -> int:
    """Open the audit log for appending, and return its descriptor. If the log is full, exactly one process
    renames it, and a new log is opened."""
    while True:
        descriptor = home.open_private_file(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if os.fstat(descriptor).st_size < LARGEST:
            return descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                    _rename_all(file)
        finally:
            os.close(descriptor)


def _rename_all(file: Path) -> None:
    older = [file, *_list_older()]
    for newer, place in reversed(list(pairwise(older))):
        with suppress(FileNotFoundError):
            os.replace(newer, place)


def _read_entries(file: Path) -> list[dict[str, Any]]:
    try:
        return list(_parse_lines(file.read_bytes().splitlines()))
    except FileNotFoundError:
        return []


def _parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry
