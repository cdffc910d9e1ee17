"""Repair of a store: in place if only derived data is damaged, otherwise into a new file that replaces the
old one.

The damaged file is not written before all readable data is in a verified new file beside it. Then the log is
checkpointed into the damaged file, so that the log can never be applied to the new file. A copy of the
damaged file is kept. Last, the new file is renamed to the name of the store, in one step. If the repair is
killed at any point, either the original or the finished store is in place.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hermes import errors, home
from hermes.store.sessions import blobs
from hermes.store.sqlite import creation, damage_mark, lock_file
from hermes.store.sqlite.connection import (
    Patience,
    SqliteReader,
    SqliteWriter,
    connect,
    pragma,
    run,
    translate_error,
)
from hermes.store.sqlite.copies import backup as backups
from hermes.store.sqlite.encryption import encryption, recognition
from hermes.store.sqlite.migrations import ENCODING, check_version, has_former_layout
from hermes.store.sqlite.migrations.layouts import TEXT_UIDS, raise_layout, without_triggers
from hermes.store.sqlite.migrations.reconciliation import complete, recount_messages
from hermes.store.sqlite.repair.file_access import busy_error, fold_log, lock_out, open_unsealed
from hermes.store.sqlite.repair.pages import Image, Log
from hermes.store.sqlite.repair.recovered_rows import RecoveredRows
from hermes.store.sqlite.repair.store_rebuild import (
    ADOPT,
    DANGLING,
    NOTE_ALL,
    PLACEHOLDER,
    StoreRebuild,
    refresh_all,
)
from hermes.store.sqlite.schema import find_schema_gaps, schema_sql
from hermes.store.sqlite.search import index, index_damage
from hermes.store.sqlite.upkeep import integrity, row_ids
from hermes.store.sqlite.upkeep.file_swap import beside, get_size, keep_aside, retire, sync
from hermes.store.values import Health, Repair
from hermes.text import format_count, to_text

WAIT_S = 3.0
"""How long the repair waits for other programs to close the file. After that the repair is refused."""
MOST_REPORTED = 100

BROKEN = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError, UnicodeDecodeError)
"""The errors that SQLite raises for a file that it cannot read, an unreadable disk, or invalid text."""


def repair_file(path: Path, *, check_only: bool = False, keep_backup: bool = True) -> Repair:
    """Diagnose the store at `path` and repair it. With `check_only`, only report which repair is needed.

    Raise `StoreBusy` if a SessionDB has the store open, in this process or any other.
    """
    path = Path(path)
    if not path.parent.is_dir():
        return _report_absent(path)
    try:
        with lock_file.exclusive(path, wait=WAIT_S):
            encryption.settle_note(path)
            with _prevent_new_log(path):
                report = _repair_in_place(path, check_only)
            return _salvage(path, check_only, keep_backup) if report is None else report
    except apsw.Error as problem:
        raise translate_error(problem, path) from problem
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise errors.make_error(
                errors.StoreFull,
                f"no room left to repair {path}; it was left unchanged (a repair needs as much space as the store)",
            ) from problem
        raise errors.make_error(errors.StoreFailed, f"{path} cannot be repaired: {problem}") from problem


@contextmanager
def _prevent_new_log(path: Path) -> Iterator[None]:
    """If the store at `path` had no write-ahead log before the `with` block, remove the empty log that SQLite created
    during the block.

    Keep this log if another program has opened the store.
    """
    log = beside(path.resolve(), "-wal")
    before = get_size(log)
    yield
    if before is None and get_size(log) == 0:
        try:
            with lock_out(path, path.resolve()):
                log.unlink()
        except errors.StoreBusy:
            pass


# -------------------------------------------------------------------- repair in place


def _repair_in_place(path: Path, check_only: bool) -> Repair | None:
    """Repair damage that needs no new file, and return a report. With `check_only`, only report it.

    Return None if tables other than the search index are damaged, so that a new file is needed.
    """
    if damage_mark.describe_short_file(get_size(path) or 0):  # SQLite would treat it as a new database
        return None
    connection = None
    try:
        connection = _open_locked(path, check_only)
        report = _repair_opened(path, connection, check_only)
        if report is not None and not check_only:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.NotADBError:
        if connection is not None:
            connection.close(True)
        return _repair_in_place(path, check_only) if recognition.adopt_encrypted(path) else None
    except BROKEN:
        return None
    finally:
        if connection is not None:
            connection.close(True)
    if report is not None and not check_only:
        damage_mark.clear_damage_mark(path)
    return report


def _open_locked(path: Path, check_only: bool) -> apsw.Connection:
    """Open a connection to the store at `path` that locks all other programs out. Raise `StoreBusy` if one of them is
    using the store.

    When the connection is closed, it does not copy the write-ahead log into the file. `check_only` means that the
    caller will roll back all changes. They are then kept in memory, so that they never reach the disk.
    """
    connection = connect(path)
    try:
        connection.set_busy_handler(Patience(WAIT_S))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        run(connection, "PRAGMA locking_mode=EXCLUSIVE")
        if check_only:  # changes that are rolled back must never reach the disk
            run(connection, "PRAGMA cache_spill=OFF")
        run(connection, "BEGIN EXCLUSIVE; COMMIT")
    except apsw.BusyError:
        connection.close(True)
        raise busy_error(path) from None
    except BaseException:
        connection.close(True)
        raise
    return connection


def _repair_opened(path: Path, connection: apsw.Connection, check_only: bool) -> Repair | None:
    try:
        standing = check_version(connection, path)
    except errors.StoreFailed:  # not a session store, or too damaged to tell
        if run(connection, integrity.INTEGRITY) != [("ok",)]:
            return None
        raise
    if standing != "ours" and not has_former_layout(connection):
        if run(connection, integrity.INTEGRITY) != [("ok",)]:
            return None
        if (encoding := pragma(connection, "PRAGMA encoding")) != ENCODING:  # it cannot be migrated
            sentence = f"{path}: intact, but its text is {encoding}; it would be copied into a new file"
            return Repair(path, (sentence,), ok=False) if check_only else None
        sentence = f"{path}: no problems found; it is of an older version and is migrated when it is opened"
        return Repair(path, (sentence,))
    try:
        return _settle_rows(path, connection, check_only)
    except errors.StoreDamaged:  # the store lacks a column that cannot be restored
        return None
    except BROKEN:
        pass
    if not index_damage.is_truth_whole(connection):
        return None
    if check_only:
        sentence = f"{path}: the search index is damaged and would be rebuilt; the messages are intact"
        return Repair(path, (sentence,), ok=False)
    index.rebuild(connection)
    run(connection, "VACUUM")  # removes damaged pages that nothing refers to
    refresh_all(connection)
    report = _settle_rows(path, connection, check_only=False)
    if report is None:
        return None
    sentence = f"{path}: the search index was damaged and has been rebuilt; the messages are intact"
    return Repair(path, (sentence, *report.done[1:]))


def _settle_rows(path: Path, connection: apsw.Connection, check_only: bool) -> Repair | None:
    """Correct derived data and create missing session rows, in one transaction. With `check_only`, roll the
    transaction back.

    Return a report, or None if damage remains that needs a new file. Raise `CorruptError` if the file has damaged
    pages.
    """
    reader, writer = SqliteReader(connection, {}), SqliteWriter(connection, {})
    done: list[str] = []
    run(connection, "BEGIN IMMEDIATE")
    try:
        if run(connection, integrity.INTEGRITY) != [("ok",)]:
            raise apsw.CorruptError("integrity_check")
        former = has_former_layout(connection)
        done += _complete_schema(path, connection)
        adopted = run(connection, ADOPT, PLACEHOLDER)
        if adopted:
            done.append(
                f"missing session rows, created again as '{PLACEHOLDER}':"
                f" {', '.join(to_text(row[0]) for row in adopted)}"
            )
            recount_messages(writer, [row[0] for row in adopted])
        run(connection, DANGLING["routing"])
        if lost := connection.changes():
            done.append(f"routes to sessions that no longer exist, removed: {lost}")
        done += row_ids.move_high_ids(writer)
        refresh_all(connection)
        drift = integrity.check_health(reader, path).drift
        if drift:
            done += [f"made consistent again: {what}" for what in drift]
            while blobs.collect_batch(writer).blobs:
                pass
            run(connection, NOTE_ALL)
            index.reset(connection)
            refresh_all(connection)
        health = integrity.check_health(reader, path)
        run(connection, "ROLLBACK" if check_only else "COMMIT")
    finally:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
    if health.damage:
        return None
    state = "no problems found" if not done else "these would be repaired" if check_only else "repaired"
    contents = f"{format_count(health.sessions, 'session')}, {format_count(health.messages, 'message')}"
    sentence = f"{path}: {state}; {contents}"
    done += _list_drift(health)
    ok = not (health.drift or (done and check_only))
    if former:
        done.append("its layout is an older one, which is migrated when it is opened or repaired")
    return Repair(path, (sentence, *done), ok=ok)


def _complete_schema(path: Path, connection: apsw.Connection) -> list[str]:
    """Add the missing parts of the schema to the store at `path`, and migrate an older layout, within the caller's
    transaction.

    Return a description of each problem that was repaired. The migration of an older layout is not described.
    """
    done: list[str] = []
    with without_triggers(connection):
        if has_former_layout(connection):
            raise_layout(connection, path)
            return []
        if any(find_schema_gaps(SqliteReader(connection, {}))):
            done += [f"added again: {name}" for name in complete(connection, path).names]
        run(connection, TEXT_UIDS)
    if count := connection.changes():
        done.append(f"uids stored as bytes, converted to text: {count}")
    return done


# -------------------------------------------------------------------- repair into a new file


def _salvage(path: Path, check_only: bool, keep_backup: bool) -> Repair:
    real = path.resolve()
    if get_size(real) is None and not get_size(beside(real, "-wal")):
        return _report_absent(path)
    for stale in [] if check_only else real.parent.glob(real.name + ".new-*"):
        stale.unlink(missing_ok=True)
    with lock_out(path, real) as (descriptor, log), _open_image(real, descriptor, log) as image:
        if check_only:
            return _forecast_repair(path, image)
        fresh = real.with_name(f"{real.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
        os.close(home.create_private_file(fresh))
        try:
            encryption.copy_note(real, fresh)
            health, lost = _fill_store(path, fresh, image)
            if not health.sessions and not health.messages:
                return _report_hopeless(path)
            damage_mark.mark_damaged(path, "a repair of it was not finished")
            kept = keep_aside(real, descriptor) if keep_backup else None
            fold_log(real, descriptor, image)
            # These files are no longer needed, and must not be beside the new file.
            for suffix in ("-wal", "-shm", "-journal"):
                beside(real, suffix).unlink(missing_ok=True)
            os.replace(fresh, real)
            sync(real.parent)
            retire(descriptor)
        finally:
            for suffix in ("", "-journal", "-wal", "-shm", encryption.NOTE):
                beside(fresh, suffix).unlink(missing_ok=True)
    damage_mark.clear_damage_mark(path)
    saved = _format_counts(health.sessions, health.messages)
    done = [f"{path}: saved {saved} into a new file, with a new search index", *_list_drift(health)]
    if lost:
        done += _list_backups(path)
    more = [f"and {len(lost) - MOST_REPORTED} more"] if len(lost) > MOST_REPORTED else []
    return Repair(path, tuple(done), (*lost[:MOST_REPORTED], *more), kept)


@contextmanager
def _open_image(real: Path, descriptor: int | None, log: Log | None) -> Iterator[Image]:
    if encryption.find_key(real) is None:
        yield Image(descriptor, log)
        return
    with open_unsealed(real, descriptor) as image:
        yield image


def _fill_store(path: Path, fresh: Path, image: Image) -> tuple[Health, list[str]]:
    """Build a new store in the file `fresh` from the readable data of a damaged store: complete, verified and flushed
    to disk.

    `path` is the damaged store, and `image` contains its pages. Return the result of the verification and a list of
    the losses. Damaged derived data does not stop the repair.
    """
    creation.build_store(fresh)
    remains = RecoveredRows(image, schema_sql())
    connection = connect(fresh)
    try:
        run(connection, "PRAGMA synchronous=OFF")
        run(connection, "PRAGMA foreign_keys=OFF")
        refill = StoreRebuild(connection, remains)
        refill.run()
        health = integrity.verify(SqliteReader(connection, {}), fresh)
        pointing = Counter(row[0] for row in run(connection, "PRAGMA foreign_key_check"))
        broken = [
            *health.damage,
            *(f"rows of {table} have broken references" for table in pointing if table in refill.own),
        ]
        if broken:
            sentence = (
                f"the data saved from {path} is inconsistent ({broken[0]}); the file was left unchanged"
            )
            raise errors.make_error(errors.StoreFailed, sentence)
    finally:
        connection.close(True)
        remains.close()
    sync(fresh)
    others = [f"the rows that {count} rows of {table} refer to" for table, count in pointing.items()]
    return health, refill.lost + others


def _list_drift(health: Health) -> list[str]:
    return [f"could not be made consistent: {what}" for what in health.drift]


def _forecast_repair(path: Path, image: Image) -> Repair:
    found: dict[str, set[int]] = {"sessions": set(), "messages": set()}
    remains = RecoveredRows(image, schema_sql())
    for layout, row in remains.rows():
        if layout.name in found:
            found[layout.name].add(row.rowid)
    remains.close()
    sessions, messages = len(found["sessions"]), len(found["messages"])
    if not sessions and not messages:
        return _report_hopeless(path)
    sentence = f"{path}: damaged; {_format_counts(sessions, messages)} can be read and saved into a new file"
    return Repair(path, (sentence, *_list_backups(path)), ok=False)


def _format_counts(sessions: int, messages: int) -> str:
    return f"{format_count(sessions, 'session')} and {format_count(messages, 'message')}"


def _report_hopeless(path: Path) -> Repair:
    lines = [f"{path}: nothing in it is readable, so nothing was changed"]
    lines += _list_backups(path) or [
        f"there is no backup; to start with an empty store, move it away (and {path.name}.damaged, if it exists)"
    ]
    return Repair(path, tuple(lines), ok=False)


def _report_absent(path: Path) -> Repair:
    return Repair(path, (f"{path} does not exist", *_list_backups(path)), ok=False)


def _list_backups(path: Path) -> list[str]:
    return [f"there is a backup: hermes sessions restore {file}" for file in backups.list_backups(path)]
