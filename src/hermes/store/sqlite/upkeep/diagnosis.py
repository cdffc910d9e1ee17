"""The doctor's round: what is around a store, then what is in it. Nothing is changed, and nothing found is an error.

A file that cannot be opened gets a finding that says why, and everything else is looked at all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from hermes import errors
from hermes.store.arguments import database_path
from hermes.store.findings import Diagnosis, Finding
from hermes.store.sqlite.connection import SqliteReader, connect, connect_read_only, has_log, run, upkeep
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.migrations import check_version
from hermes.store.sqlite.opener import too_short
from hermes.store.sqlite.upkeep import content_check, surroundings_check
from hermes.store.sqlite.upkeep.backup import backups_of
from hermes.store.sqlite.upkeep.surroundings_check import Holder, way_out

PATIENCE_S = 1.0


def diagnose(path: Path, *, deep: bool = False) -> Diagnosis:
    path = path.absolute()
    holders = surroundings_check.holders(path)
    found = [
        *_asked(path, "SQLite", surroundings_check.programs),
        *_asked(path, "Disk", lambda: surroundings_check.room(path)),
        *_asked(path, "Permissions", lambda: surroundings_check.permissions(path)),
        *_asked(path, "Open in", lambda: surroundings_check.told_holders(path, holders)),
        *_asked(path, "Damage", lambda: surroundings_check.damage_mark(path)),
        *_asked(path, "Spool", lambda: surroundings_check.waiting(path)),
        *_asked(path, "Cache", lambda: surroundings_check.readable_copies(path)),
    ]
    absent = _absent(path)
    if absent is not None:
        return Diagnosis(path, (*found, absent))
    return Diagnosis(path, (*found, *_asked(path, "Store", lambda: _inside(path, holders, deep))))


def _asked(path: Path, about: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; if it cannot be made, that is what was found."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is a finding
        found.append(_failed(path, about, problem))
    return found


def _failed(path: Path, about: str, problem: Exception) -> Finding:
    told = " ".join(str(problem).split())
    if isinstance(problem, apsw.NotADBError):
        return Finding("error", f"{about}: it is not a SQLite database, or it is encrypted", way_out(path))
    if isinstance(problem, apsw.CorruptError | errors.StoreDamaged | UnicodeDecodeError):
        return Finding("error", f"{about}: it is damaged: {told}", way_out(path))
    if isinstance(problem, apsw.BusyError | apsw.LockedError):
        see = (
            "; ".join(f"`ps -fp {holder.pid}`" for holder in surroundings_check.holders(path))
            or "see Open in"
        )
        return Finding(
            "warning", f"{about}: another program has locked it and keeps readers out", f"close it: {see}"
        )
    if isinstance(problem, errors.StoreTooNew):
        return Finding("error", f"{about}: {told}", f"read it as it is: `{upkeep(path, 'list')}`")
    return Finding(
        "warning", f"{about}: cannot be looked at: {told}", f"look closer: `{upkeep(path, 'verify')}`"
    )


def _absent(path: Path) -> Finding | None:
    """SQLite must not open what it would take for new: it would delete the log beside it."""
    try:
        database_path(path)
    except errors.InvalidArgument as problem:
        return Finding("error", f"Store: {problem}")
    try:
        size = os.stat(path).st_size if os.path.isfile(path) else None
    except OSError as problem:
        return _failed(path, "Store", problem)
    if size is not None:
        told = too_short(size)
        return Finding("error", f"Store: {told}", way_out(path)) if told else None
    if has_log(path):
        return Finding("error", "Store: the file is gone, but its write-ahead log is there", way_out(path))
    if backups_of(path):
        return Finding("error", f"Store: there is no file {path}, but backups of it", way_out(path))
    return Finding(
        "error",
        f"Store: there is no file {path}",
        f"the first conversation makes it: `{upkeep(path, 'list')}` does, too",
    )


def _inside(path: Path, holders: list[Holder], deep: bool) -> Iterable[Finding]:
    connection = _opened(path, holders)
    try:
        run(connection, "BEGIN")
        standing = check_version(connection, path)
        if standing != "ours":
            what = "holds nothing yet" if standing == "empty" else "is of an older version"
            yield Finding(
                "note",
                f"Store: it {what}",
                f"it is brought up to date when first opened: `{upkeep(path, 'list')}`",
            )
            return
        sealed = encryption.in_use(path)
        yield Finding("ok", f"Encryption: {'on' if sealed else 'none, any SQLite can read the file'}")
        if sealed:
            yield from _asked(path, "Plain files", lambda: surroundings_check.plain_files(path))
        reader = SqliteReader(connection, {})
        for about, check in {
            "Schema": lambda: content_check.schema(reader, path),
            "Journal": lambda: content_check.journal(connection, path),
            "Size": lambda: content_check.size(reader, path),
            "Index": lambda: content_check.index_lag(reader, path),
            "Ids": lambda: content_check.high_ids(reader, path),
            "Sessions": lambda: content_check.live_sessions(reader),
            "Leases": lambda: content_check.leases(reader),
            "Backups": lambda: content_check.backups(reader, path, deep=deep),
            "Routing": lambda: content_check.routes(reader, path),
            "Trash": lambda: content_check.trash(reader),
            "Clock": lambda: content_check.clocks(reader),
        }.items():
            yield from _asked(path, about, check)
        if deep:
            yield from _asked(path, "Contents", lambda: _deep(reader, path, holders))
    finally:
        connection.close(True)


def _deep(reader: SqliteReader, path: Path, holders: list[Holder]) -> list[Finding]:
    fresh = _opened(path, holders)
    try:
        return list(content_check.everything(reader, fresh, path))
    finally:
        fresh.close()


def _opened(path: Path, holders: list[Holder]) -> apsw.Connection:
    """To read only. A store that is closed is read as it stands: a reader would leave a log and its index behind."""
    closed = not holders and not any(os.path.exists(f"{path}{ending}") for ending in ("-wal", "-journal"))
    if closed:
        return connect(path, read_only=True, immutable=True)
    return connect_read_only(path, deadline=PATIENCE_S)
