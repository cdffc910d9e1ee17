"""The diagnosis for `hermes doctor`: the surroundings of a store, then its contents. It changes nothing.

Problems are returned as findings, not raised. If the file cannot be opened, one finding gives the reason, and all
other checks still run.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from hermes import errors, home
from hermes.store.arguments import check_database_path
from hermes.store.findings import Diagnosis, Finding
from hermes.store.sqlite.connection import (
    SqliteReader,
    connect,
    connect_read_only,
    has_log,
    run,
    upkeep_command,
)
from hermes.store.sqlite.copies.backup import list_backups
from hermes.store.sqlite.damage_mark import describe_short_file
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.migrations import check_version
from hermes.store.sqlite.upkeep import content_check, surroundings_check
from hermes.store.sqlite.upkeep.surroundings_check import Holder, advise_repair

PATIENCE_S = 1.0


def diagnose(path: Path, *, deep: bool = False) -> Diagnosis:
    path = path.absolute()
    holders = surroundings_check.find_holders(path)
    found = [
        *_run_check(path, "SQLite", surroundings_check.check_programs),
        *_run_check(path, "Disk", lambda: surroundings_check.check_room(path)),
        *_run_check(path, "Permissions", lambda: surroundings_check.check_permissions(path)),
        *_run_check(path, "Open in", lambda: surroundings_check.describe_holders(path, holders)),
        *_run_check(path, "Damage", lambda: surroundings_check.check_damage_mark(path)),
        *_run_check(path, "Spool", lambda: surroundings_check.check_spool(path)),
        *_run_check(path, "Cache", lambda: surroundings_check.check_readable_copies(path)),
    ]
    absent = _check_file(path)
    if absent is not None:
        return Diagnosis(path, (*found, absent))
    return Diagnosis(path, (*found, *_run_check(path, "Store", lambda: _check_contents(path, holders, deep))))


def _run_check(path: Path, about: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. If the check raises an error, return the error as a finding."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except Exception as problem:  # noqa: BLE001 - any failure is a finding
        found.append(_report_failure(path, about, problem))
    return found


def _report_failure(path: Path, about: str, problem: Exception) -> Finding:
    reason = " ".join(str(problem).split())
    if isinstance(problem, apsw.NotADBError):
        return Finding(
            "error", f"{about}: it is not a SQLite database, or it is encrypted", advise_repair(path)
        )
    if isinstance(problem, apsw.CorruptError | errors.StoreDamaged | UnicodeDecodeError):
        return Finding("error", f"{about}: it is damaged: {reason}", advise_repair(path))
    if isinstance(problem, apsw.BusyError | apsw.LockedError):
        see = (
            "; ".join(f"`ps -fp {holder.pid}`" for holder in surroundings_check.find_holders(path))
            or "see Open in"
        )
        return Finding(
            "warning", f"{about}: another program has locked it and keeps readers out", f"close it: {see}"
        )
    if isinstance(problem, errors.StoreTooNew):
        return Finding(
            "error", f"{about}: {reason}", f"read it without changing it: `{upkeep_command(path, 'list')}`"
        )
    return Finding(
        "warning",
        f"{about}: cannot be checked: {reason}",
        f"examine it: `{upkeep_command(path, 'verify')}`",
    )


def _check_file(path: Path) -> Finding | None:
    """Return a finding if there is no usable database file at `path`, and None if there is one.

    This is checked before SQLite opens the file. SQLite treats a missing or empty file as a new database, and would
    delete the write-ahead log beside it.
    """
    try:
        check_database_path(path)
    except errors.InvalidArgument as problem:
        return Finding("error", f"Store: {problem}")
    try:
        size = os.stat(path).st_size if os.path.isfile(path) else None
    except OSError as problem:
        return _report_failure(path, "Store", problem)
    if size is not None:
        wrong = describe_short_file(size)
        return Finding("error", f"Store: {wrong}", advise_repair(path)) if wrong else None
    if has_log(path):
        return Finding(
            "error", "Store: the file is missing, but its write-ahead log exists", advise_repair(path)
        )
    if list_backups(path):
        return Finding(
            "error", f"Store: there is no file {path}, but there are backups of it", advise_repair(path)
        )
    return Finding(
        "error",
        f"Store: there is no file {path}",
        f"the first conversation creates it: run `{_get_chat_command(path)}`",
    )


def _get_chat_command(path: Path) -> str:
    """Return the shell command that starts a conversation in the store at `path`, for the advice in a finding."""
    if path == home.get_default_db_path():
        return "hermes"
    return f"hermes --store {shlex.quote(str(path))}"


def _check_contents(path: Path, holders: list[Holder], deep: bool) -> Iterable[Finding]:
    connection = _open_store(path, holders)
    try:
        run(connection, "BEGIN")
        standing = check_version(connection, path)
        if standing != "ours":
            state = "is empty" if standing == "empty" else "is of an older version"
            yield Finding(
                "note",
                f"Store: it {state}",
                f"it is migrated when it is next opened: `{upkeep_command(path, 'list')}`",
            )
            return
        sealed = encryption.is_encrypted(path)
        yield Finding("ok", f"Encryption: {'on' if sealed else 'none, any SQLite can read the file'}")
        if sealed:
            yield from _run_check(path, "Plain files", lambda: surroundings_check.check_plain_files(path))
        reader = SqliteReader(connection, {})
        for about, check in {
            "Schema": lambda: content_check.check_schema(reader, path),
            "Journal": lambda: content_check.check_journal(connection, path),
            "Size": lambda: content_check.check_size(reader, path),
            "Index": lambda: content_check.check_index_lag(reader, path),
            "Ids": lambda: content_check.check_high_ids(reader, path),
            "Sessions": lambda: content_check.check_live_sessions(reader),
            "Leases": lambda: content_check.check_leases(reader),
            "Backups": lambda: content_check.check_backups(reader, path, deep=deep),
            "Routing": lambda: content_check.check_routes(reader, path),
            "Trash": lambda: content_check.check_trash(reader),
            "Clock": lambda: content_check.check_clocks(reader),
        }.items():
            yield from _run_check(path, about, check)
        if deep:
            yield from _run_check(path, "Contents", lambda: _check_deeply(reader, path, holders))
    finally:
        connection.close(True)


def _check_deeply(reader: SqliteReader, path: Path, holders: list[Holder]) -> list[Finding]:
    fresh = _open_store(path, holders)
    try:
        return list(content_check.check_everything(reader, fresh, path))
    finally:
        fresh.close()


def _open_store(path: Path, holders: list[Holder]) -> apsw.Connection:
    """Open the store read-only.

    If no process has it open, open it as immutable, because a usual reader would leave a log behind.
    """
    closed = not holders and not any(os.path.exists(f"{path}{ending}") for ending in ("-wal", "-journal"))
    if closed:
        return connect(path, read_only=True, immutable=True)
    return connect_read_only(path, deadline=PATIENCE_S)
