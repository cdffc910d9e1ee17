"""The sequence of a migration: checks, backup, steps in order, and clean-up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import errors
from hermes.store.sqlite.connection import pragma, run, translate_error
from hermes.store.sqlite.copies.backup import make_backup
from hermes.store.sqlite.migrations import read_documented_version
from hermes.store.sqlite.migrations.adoption import Differs, adopt_store
from hermes.store.sqlite.migrations.identifiers import fill_names
from hermes.store.sqlite.migrations.reference_search import list_foreign_triggers
from hermes.store.sqlite.migrations.shape import Shape, expected_shape, refuse_collisions
from hermes.store.sqlite.migrations.steps import STEPS, run_step
from hermes.text import format_count

ANY_ROW = "SELECT 1 FROM {table} LIMIT 1"
LAST_STEP = "our layout"
ERASE = ("PRAGMA secure_delete=OFF", "PRAGMA secure_delete=ON", "PRAGMA secure_delete=FAST")
"""The statements that restore the setting `secure_delete`. The index is the former value: 0, 1 or 2."""

PASSED_THROUGH = (
    errors.StoreBusy,
    errors.StoreFull,
    errors.StoreReadOnly,
    errors.StoreDamaged,
    errors.StoreLocked,
)


class MigrationReport(NamedTuple):
    """The result of a migration. Its text is one line for a log."""

    path: Path
    from_version: int
    steps: tuple[str, ...]
    backup: Path | None
    sessions: int
    messages: int
    before: int
    after: int
    """The size of the database and its log in bytes, before and after."""
    notes: tuple[str, ...] = ()
    """Corrections that were made, and work that was left for later."""

    def __str__(self) -> str:
        contents = f"{format_count(self.sessions, 'session')} and {format_count(self.messages, 'message')}"
        size = f"{self.before / 1e6:.1f} MB -> {self.after / 1e6:.1f} MB"
        sentence = f"{self.path}: migrated from version {self.from_version}, {contents}, {size}"
        if self.backup is not None:
            sentence += f"; the original file is {self.backup}"
        return "; ".join((sentence, *self.notes))


def run_course(path: Path, connection: apsw.Connection, *, keep_backup: bool = True) -> MigrationReport:
    want = expected_shape()
    refuse_collisions(connection, path, want)
    have = Shape(connection)
    version = max(1, _read_version(connection, path, have))
    before = _get_size(path)
    backup = None
    if keep_backup and _has_rows(connection, have):
        backup = make_backup(connection, path, None, reason=f"before-migration-v{version}").path

    missed = list_foreign_triggers(connection)
    with _prepare_connection(connection):
        struck, done = False, []
        try:
            for step in STEPS:
                if step.version > version:
                    done.append(step.name)
                    struck |= run_step(connection, step, want)
            done.append(LAST_STEP)
            outcome = adopt_store(connection, want)
        except (apsw.Error, UnicodeDecodeError, Differs) as problem:
            raise _migration_error(problem, path, done[-1], backup) from problem
    notes = list(outcome.notes)
    if missed:
        notes.append(
            f"removed, because they used a search table that no longer exists: the triggers {', '.join(missed)}"
        )
    if struck or outcome.struck:
        notes.append("a full-text table of another program was damaged and was discarded")
    if unshrunk := shrink(connection):
        notes.append(unshrunk)
    return MigrationReport(
        path,
        version,
        tuple(done),
        backup,
        outcome.sessions,
        outcome.messages,
        before,
        _get_size(path),
        tuple(notes),
    )


def shrink(connection: apsw.Connection) -> str | None:
    """Rewrite the database file with VACUUM, so that it has no free pages. After a migration, these are the pages of
    the old search tables.

    The rewrite changes no data. If it fails, for example because the disk is full or the file is busy, return a text
    for the user that says how to do it later. Otherwise return None.
    """
    try:
        run(connection, "PRAGMA auto_vacuum=INCREMENTAL")
        run(connection, "VACUUM")
        run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    except apsw.Error as problem:
        return f"the space of the old search tables was not freed ({problem}): run `hermes sessions optimize`"
    return None


def _read_version(connection: apsw.Connection, path: Path, have: Shape) -> int:
    """Return the schema version of the reference that the database has. If the database names no version, return 1.

    From version 1, all migration steps are run. That is cheap, because each step first checks whether it is needed.
    """
    return (read_documented_version(connection, path) or 1) if "schema_version" in have.tables else 1


def _has_rows(connection: apsw.Connection, have: Shape) -> bool:
    return any(
        run(connection, fill_names(ANY_ROW, table=table))
        for table in have.tables
        if table != "schema_version" and not table.startswith(("sqlite_", "messages_fts"))
    )


@contextmanager
def _prepare_connection(connection: apsw.Connection) -> Iterator[None]:
    """Set two pragmas of the connection during the migration, which is the `with` block, and restore them afterwards.

    Foreign keys are turned off, because old rows may have invalid references. Freed pages are overwritten only where
    this needs no additional writes, because the VACUUM after the migration removes them anyway.
    """
    keys, erase = pragma(connection, "PRAGMA foreign_keys"), pragma(connection, "PRAGMA secure_delete")
    run(connection, "PRAGMA foreign_keys=OFF")
    run(connection, "PRAGMA secure_delete=FAST")
    try:
        yield
    finally:
        run(connection, ERASE[erase])
        run(connection, "PRAGMA foreign_keys=ON" if keys else "PRAGMA foreign_keys=OFF")


def _migration_error(problem: Exception, path: Path, step: str, backup: Path | None) -> errors.HermesError:
    """Return the usual error for a locked, full, read-only or damaged store.

    Return `MigrationFailed` for any other problem.
    """
    if isinstance(problem, apsw.Error):
        usual = translate_error(problem, path)
        if isinstance(usual, PASSED_THROUGH):
            return usual
    kept = f"; the original file is {backup}" if backup else ""
    return errors.make_error(
        errors.MigrationFailed,
        f"{path} was not migrated: step '{step}' failed and was rolled back: {problem}{kept}",
    )


def _get_size(path: Path) -> int:
    return sum(os.stat(name).st_size for name in (path, f"{path}-wal") if os.path.exists(name))
