"""Checks of a store that can be opened: size, index, open sessions, leases and backups.

Each check is a few index lookups; only `check_everything` reads every row. No check writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from hermes import clock, errors
from hermes.store.content import to_json
from hermes.store.findings import Finding
from hermes.store.processes import is_running
from hermes.store.sqlite.connection import SqliteReader, connect, pragma, run, upkeep_command
from hermes.store.sqlite.copies.backup import list_backups
from hermes.store.sqlite.copies.page_copy import find_damage
from hermes.store.sqlite.migrations import check_version
from hermes.store.sqlite.schema import find_schema_gaps
from hermes.store.sqlite.search import index
from hermes.store.sqlite.upkeep import integrity, row_ids
from hermes.store.sqlite.upkeep.surroundings_check import advise_repair
from hermes.store.sqlite.wal.journal_choice import journal_for
from hermes.text import format_count

FORMAT_AT, LOG_FORMAT = 18, 2
"""The offset of the journal mode in the header of a database, and its value for a write-ahead log."""

LARGE_LOG = 64_000_000
"""A write-ahead log larger than this many bytes is a sign that a reader blocks its checkpoints.

Without such a reader, checkpoints keep the log below a quarter of this size.
"""
LARGE_TAIL = 1_000
MANY_FREE = 0.25
OLD_BACKUP = 7 * clock.DAY
FUTURE = 5 * clock.MINUTE
MOST_SHOWN = 10

LIVE = """SELECT s.id, s.title, (SELECT max(m.id) FROM messages m WHERE m.session_id = s.id) FROM sessions s
    WHERE s.ended_at IS NULL AND s.trashed_at IS NULL AND (s.last_active > ? OR EXISTS
        (SELECT 1 FROM leases l WHERE l.conversation_id = s.root_id AND l.expires_at > ?))
    ORDER BY s.last_active DESC, s.id"""
WRITTEN_AT = "SELECT timestamp FROM messages WHERE id = ?"
LEASES = """SELECT conversation_id, holder_host, holder_pid, holder_start, holder_surface, expires_at FROM leases
    WHERE expires_at > ? AND holder_pid IS NOT NULL ORDER BY since"""
LOST_ROUTES = (
    """SELECT count(*) FROM routing r LEFT JOIN sessions s ON s.id = r.session_id WHERE s.id IS NULL"""
)
TRASH = """SELECT count(DISTINCT s.id), count(m.id), coalesce(sum(length(m.content)), 0) FROM sessions s
    LEFT JOIN messages m ON m.session_id = s.id WHERE s.trashed_at IS NOT NULL"""
FROM_THE_FUTURE = """SELECT count(*), max(m.timestamp) FROM sessions s JOIN messages m ON m.session_id = s.id
    WHERE s.last_active > ? AND m.timestamp > ?"""
COUNT_SESSIONS = "SELECT count(*) FROM sessions"
LAST_MESSAGE = "SELECT max(id) FROM messages"


def check_journal(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    mode = "wal" if _read_header(connection)[0] == LOG_FORMAT else "delete"
    chosen, kind = journal_for(path)
    place = kind or "an unknown file system"
    if chosen == "wal":
        if mode == "wal":
            yield Finding("ok", f"Journal: write-ahead log on {place}, which is safe")
        else:
            sentence = f"Journal: rollback journal on {place}, safe but slower than a write-ahead log"
            yield Finding(
                "note",
                sentence,
                f"it changes when the store is next opened: `{upkeep_command(path, 'list')}`",
            )
        return
    yield Finding(
        "note",
        f"File system: {place}, on a network or shared with another machine: its locks depend on its server",
        f"use a local disk: `{upkeep_command(path, 'backup')} FILE` makes a copy; set HERMES_HOME to the new folder",
    )
    if mode == "wal":
        sentence = f"Journal: a write-ahead log on {place} loses commits"
        yield Finding(
            "error",
            sentence,
            f"close every program that has it open, then `{upkeep_command(path, 'list')}` changes the journal",
        )
    else:
        yield Finding("ok", f"Journal: rollback journal, which is safe on {place}")


def _read_header(connection: apsw.Connection) -> bytes:
    """Return the journal byte of the header.

    It is read directly, because SQLite does not report the journal mode of an immutable connection.
    """
    return connection.read("main", 0, FORMAT_AT, 1)[1]


def check_schema(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    names = find_schema_gaps(reader).names
    if names:
        yield Finding(
            "warning",
            f"Schema: {', '.join(names)} {'is' if len(names) == 1 else 'are'} missing",
            f"added when the store is next opened for writing: `{upkeep_command(path, 'list')}`",
        )
    else:
        yield Finding("ok", "Schema: every table, column, index and trigger exists")


def check_size(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    pages, free, each = (
        int(reader.value(name)) for name in ("PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size")
    )
    log = os.stat(f"{path}-wal").st_size if os.path.exists(f"{path}-wal") else 0
    sentence = f"Size: {pages * each / 1e6:.1f} MB, {free} of {pages} pages free, log {log / 1e6:.1f} MB"
    tidy = f"`{upkeep_command(path, 'optimize')}` frees the space"
    if log > LARGE_LOG:
        yield Finding(
            "warning",
            f"{sentence}: the log is too large, because a program has been reading for a long time",
            f"close that program (see Open in), then {tidy}",
        )
    elif free > pages * MANY_FREE and free * each > LARGE_LOG:
        yield Finding("note", f"{sentence}: much of the file is unused", tidy)
    else:
        yield Finding("ok", sentence)


def check_index_lag(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    _mark, above, changed = index.measure_lag(reader, 1 << 60)
    sentence = f"Index: {format_count(above, 'message')} waiting{', and changes by another program' if changed else ''}"
    if above > LARGE_TAIL:
        yield Finding(
            "note", f"{sentence}: searches are slower", f"index them: `{upkeep_command(path, 'optimize')}`"
        )
    else:
        yield Finding("ok", sentence if above or changed else "Index: complete")


def check_high_ids(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    for found in row_ids.find_high_ids(reader):
        yield Finding("warning", f"Ids: {found}", f"assign another id: `{upkeep_command(path, 'repair')}`")


def check_live_sessions(reader: SqliteReader) -> Iterator[Finding]:
    now = clock.now()
    rows = reader.rows(LIVE, now - clock.DAY, now)
    for session_id, title, message_id in rows[:MOST_SHOWN]:
        name = f"{session_id} ({title})" if title else session_id
        if message_id is None:
            yield Finding("ok", f"Session {name}: open, no message yet")
            continue
        at = reader.value(WRITTEN_AT, message_id)
        when = f"{_format_time(at)}, {clock.format_relative(at, now)}"
        yield Finding("ok", f"Session {name}: last stored is message {message_id} of {when}")
    if len(rows) > MOST_SHOWN:
        yield Finding("ok", f"Sessions: {len(rows) - MOST_SHOWN} more are open and were active today")
    if not rows:
        yield Finding("ok", "Sessions: no open session was active today")


def check_leases(reader: SqliteReader) -> Iterator[Finding]:
    for conversation, host, pid, start, surface, until in reader.rows(LEASES, clock.now()):
        sentence = f"Lease: conversation {conversation} is held by {surface or 'a program'} ({pid} on {host})"
        here = host == os.uname().nodename
        if here and not is_running(to_json({"host": host, "pid": pid, "start": start})):
            yield Finding("ok", f"{sentence}, which has ended; the next program can take it over")
        else:
            yield Finding("ok", f"{sentence} until {_format_time(until)}")


def check_backups(reader: SqliteReader, path: Path, *, deep: bool) -> Iterator[Finding]:
    made, found = f"make one: `{upkeep_command(path, 'backup')}`", list_backups(path)
    if not found:
        if reader.value(LAST_MESSAGE) is None:
            yield Finding("ok", "Backups: none, and nothing to back up yet")
        else:
            yield Finding("note", "Backups: none in the store's own folder", made)
        return
    newest, at = found[0], found[0].stat().st_mtime
    age = clock.now() - at
    sentence = f"Backups: {len(found)}, the newest {newest.name} of {_format_time(at)}"
    wrong = _find_wrong(newest, deep=deep)
    if wrong is not None:
        yield Finding("warning", f"{sentence}, which cannot be restored: {wrong}", made)
    elif age > OLD_BACKUP and (reader.value(index.NEWEST_TIME) or 0) > at:
        yield Finding(
            "note",
            f"{sentence}, {format_count(int(age // clock.DAY), 'day')} old, with messages since",
            f"make a newer {made[5:]}",
        )
    else:
        yield Finding("ok", f"{sentence}, {'intact' if deep else 'readable'}")


def _find_wrong(backup: Path, *, deep: bool) -> str | None:
    try:
        copy = connect(backup, read_only=True, immutable=True)
        try:
            check_version(copy, backup)
            run(copy, COUNT_SESSIONS)
            run(copy, LAST_MESSAGE)
            whole = int(pragma(copy, "PRAGMA page_count")) * int(pragma(copy, "PRAGMA page_size"))
            if os.stat(backup).st_size < whole:
                return "its end is missing"
            return find_damage(copy) if deep else None
        finally:
            copy.close()
    except (apsw.Error, errors.HermesError, OSError) as problem:
        return str(problem)


def check_routes(reader: SqliteReader, path: Path) -> Iterator[Finding]:
    lost = int(reader.value(LOST_ROUTES))
    if lost:
        sentence = f"Routing: the session of {format_count(lost, 'chat')} no longer exists"
        yield Finding("warning", sentence, f"let them start new sessions: `{upkeep_command(path, 'repair')}`")
    else:
        yield Finding("ok", "Routing: every chat leads to a session")


def check_trash(reader: SqliteReader) -> Iterator[Finding]:
    sessions, messages, length = reader.row(TRASH) or (0, 0, 0)
    count = f"{format_count(sessions, 'session')}, {format_count(messages, 'message')}"
    yield Finding("ok", f"Trash: {f'{count}, {length / 1e6:.1f} MB of text' if sessions else 'empty'}")


def check_clocks(reader: SqliteReader) -> Iterator[Finding]:
    soon = clock.now() + FUTURE
    count, latest = reader.row(FROM_THE_FUTURE, soon, soon) or (0, None)
    if count:
        messages = format_count(count, "message")
        ahead = f"{messages} dated in the future, up to {_format_time(latest)}"
        yield Finding(
            "warning",
            f"Clock: {ahead}; lists show them first",
            "check the clock of this machine: `date`",
        )
    else:
        yield Finding("ok", "Clock: no message is dated in the future")


def check_everything(reader: SqliteReader, fresh: apsw.Connection, path: Path) -> Iterator[Finding]:
    """Check every page and every derived column. `fresh` is a connection that has not used the index yet."""
    damage = [str(row[0]) for row in run(fresh, integrity.INTEGRITY) if row[0] != "ok"]
    health = integrity.check_health(reader, path)
    for problem in (*damage, *health.damage):
        yield Finding("error", f"Damage: {' '.join(problem.split())}", advise_repair(path))
    for problem in health.drift:
        yield Finding("warning", f"Inconsistent: {problem}", f"fix it: `{upkeep_command(path, 'repair')}`")
    if not damage and health.ok:
        contents = (
            f"{format_count(health.sessions, 'session')} and {format_count(health.messages, 'message')}"
        )
        yield Finding("ok", f"Contents: {contents}, all intact")


def _format_time(at: object) -> str:
    if not isinstance(at, int | float):
        return "?"
    return (
        f"{clock.format_day(at)} {clock.format_stamp(at)[9:11]}:{clock.format_stamp(at)[11:13]}"
        if abs(at) < 1e11
        else "?"
    )
