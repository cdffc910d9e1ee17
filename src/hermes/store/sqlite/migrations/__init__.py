"""Migration of an older database to the current layout: recognition, backup, then named steps.

Owns the layouts and the steps between them. A new store is made by `schema.sql`, an old one is changed by the
steps. A test builds a store in both ways and compares them. "The reference" is the program whose documented
schema, version 11, a Hermes store follows.

Each step is one transaction. If a migration is killed, the next one continues after the last complete step.
The caller of `migrate` holds the lock file beside the store: one process migrates, and the others wait until
it is done.

This module is imported at every open and stays small. The steps are imported only when they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apsw

from hermes import errors
from hermes.store.sqlite.connection import pragma, run, upkeep_command
from hermes.store.sqlite.migrations.reference_search import drop_foreign_search

if TYPE_CHECKING:
    from hermes.store.sqlite.migrations.runner import MigrationReport

__all__ = [
    "APPLICATION_ID",
    "LAYOUT",
    "SCHEMA_VERSION",
    "check_documented_version",
    "check_version",
    "drop_foreign_search",
    "has_former_layout",
    "migrate",
]

APPLICATION_ID = 0x48524D53
"""`PRAGMA application_id` of a Hermes store: HRMS."""
LAYOUT = 2
"""`PRAGMA user_version` of a Hermes store: the version of the columns, tables and triggers that the schema of
the reference does not have.

Layout 1 stored `messages.uid` as 16 bytes, layout 2 stores it as text.
"""
ENCODING = "UTF-8"
"""The text encoding of every Hermes store. Another program may have created a store with a different one."""
SCHEMA_VERSION = 11
"""The schema version of the reference that the tables of a Hermes store have. Other programs read it from the
table `schema_version`."""

Standing = Literal["empty", "older", "ours"]
"""The kind of a database. `empty`: it has no tables. `older`: it must be migrated. `ours`: it is a Hermes
store in the current layout."""

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
COLUMNS = "SELECT name FROM pragma_table_info(?)"
DOCUMENTED_VERSION = "SELECT max(version) FROM schema_version"

# Columns of the first version, which distinguish a session store from tables of other programs with the same names.
SIGNS = {
    "sessions": {"id", "source", "started_at"},
    "messages": {"id", "session_id", "role", "content", "timestamp"},
}


def check_version(connection: apsw.Connection, path: Path) -> Standing:
    """Return the kind of a database: `empty` (no tables), `older` (it must be migrated), or `ours` (a Hermes store in
    the current layout).

    If this version of the program must not open the database, raise an error. The database is not changed.
    """
    marked = pragma(connection, "PRAGMA application_id") == APPLICATION_ID
    layout = pragma(connection, "PRAGMA user_version")
    if marked and layout > LAYOUT:
        raise errors.make_error(
            errors.StoreTooNew,
            f"{path} was written by a newer version of this program (layout {layout}, this one supports {LAYOUT});"
            " it was left untouched: upgrade this program to write to it;"
            " `hermes sessions list`, `show`, `search` and `export` read it",
        )
    tables = {row[0].lower() for row in run(connection, TABLES)}
    if not tables:
        return "empty"
    if "schema_version" in tables:
        _refuse_newer(read_documented_version(connection, path), path)
    found = [name for name in SIGNS if name in tables]
    if (
        not found
        or not (marked or "sessions" in found)
        or any(not _has_signs(connection, name) for name in found)
    ):
        raise errors.make_error(errors.StoreFailed, f"{path} is not a session store; it was left untouched")
    return "ours" if marked and layout == LAYOUT else "older"


def has_former_layout(connection: apsw.Connection) -> bool:
    """Return whether the database is a Hermes store in an older layout. Such a store can be read without a
    migration.
    """
    if pragma(connection, "PRAGMA application_id") != APPLICATION_ID:
        return False
    return bool(0 < pragma(connection, "PRAGMA user_version") < LAYOUT)


def check_documented_version(connection: apsw.Connection, path: Path) -> None:
    """Raise `StoreTooNew` if the schema version of a Hermes store is above `SCHEMA_VERSION`.

    The check is one statement. It makes SQLite parse the schema, so use it on a connection that needs the
    schema anyway.
    """
    try:
        version = run(connection, DOCUMENTED_VERSION)[0][0]
    except apsw.SQLError:  # the table was dropped, so there is no version to check
        return
    _refuse_newer(_parse_version(version, path), path)


def _refuse_newer(version: int | None, path: Path) -> None:
    if version is not None and version > SCHEMA_VERSION:
        import shlex

        raise errors.make_error(
            errors.StoreTooNew,
            f"{path} has schema version {version}, this program writes up to {SCHEMA_VERSION}; it was left untouched."
            " `hermes sessions list`, `show`, `search` and `export` read it; to continue with it here, import it into"
            f" another home: `HERMES_HOME=FOLDER hermes sessions import --trusted {shlex.quote(str(path))}`",
        )


def read_documented_version(connection: apsw.Connection, path: Path) -> int | None:
    """Return the schema version of the reference that the table `schema_version` of the database names.

    Return None if the table has no row, as in a new installation of the reference, or has no column `version`.
    """
    if "version" not in {row[0].lower() for row in run(connection, COLUMNS, "schema_version")}:
        return None
    return _parse_version(run(connection, DOCUMENTED_VERSION)[0][0], path)


def _parse_version(version: Any, path: Path) -> int | None:
    if version is None or isinstance(version, int):
        return version
    raise errors.make_error(
        errors.StoreFailed, f"{path} has the schema version {version!r}, which is not a number"
    )


def _has_signs(connection: apsw.Connection, table: str) -> bool:
    return SIGNS[table] <= {row[0].lower() for row in run(connection, COLUMNS, table)}


def migrate(path: Path, connection: apsw.Connection, *, keep_backup: bool = True) -> MigrationReport | None:
    """Migrate a database to the current layout.

    Return a report, or None if the database was empty or already a Hermes store. The opener fills an empty
    database. A Hermes store in an older layout is migrated without a report. The caller holds the lock file
    beside the store. The connection must be writable and not in a transaction.
    """
    if check_version(connection, path) != "older":
        return None
    if has_former_layout(connection):
        from hermes.store.sqlite.migrations.layouts import migrate_layout

        migrate_layout(connection, path)
        return None
    if (encoding := pragma(connection, "PRAGMA encoding")) != ENCODING:
        raise errors.make_error(
            errors.MigrationFailed,
            f"{path} stores its text as {encoding}, which cannot be migrated; it was left untouched:"
            f" run `{upkeep_command(path, 'repair')}`, which copies everything into a new file",
        )
    from hermes.store.sqlite.migrations.runner import run_course

    return run_course(path, connection, keep_backup=keep_backup)
