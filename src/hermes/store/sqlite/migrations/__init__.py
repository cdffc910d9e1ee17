"""How an older database becomes ours: recognised, copied aside, then changed in named steps, each one transaction.

Owns the layouts and the steps between them. `schema.sql` is what a new store gets; the steps are what an old one
gets; a test builds both ways and compares. A step is kept whole or not at all, so that a killed migration is taken up
where it stopped. Whoever calls `migrate` holds the lock beside the store: one process migrates, the others wait and
find the work done.

This module is imported at every open and stays small; the steps are imported when there is something to do.
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
"""`PRAGMA application_id` of a store of ours: HRMS."""
LAYOUT = 2
"""`PRAGMA user_version` of a store of ours: which columns, tables and triggers stand beside the documented ones.

Layout 1 stored `messages.uid` as 16 bytes, layout 2 stores it as text.
"""
ENCODING = "UTF-8"
"""How SQLite writes the text of every store but one that another program made otherwise."""
SCHEMA_VERSION = 11
"""The documented version of the tables that other programs read."""

Standing = Literal["empty", "older", "ours"]

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
COLUMNS = "SELECT name FROM pragma_table_info(?)"
DOCUMENTED_VERSION = "SELECT max(version) FROM schema_version"

# By these columns, of its first version, a session store is told from another program's table of the same name.
SIGNS = {
    "sessions": {"id", "source", "started_at"},
    "messages": {"id", "session_id", "role", "content", "timestamp"},
}


def check_version(connection: apsw.Connection, path: Path) -> Standing:
    """What kind of database this is. One that we may not touch is refused, and has not been touched."""
    marked = pragma(connection, "PRAGMA application_id") == APPLICATION_ID
    layout = pragma(connection, "PRAGMA user_version")
    if marked and layout > LAYOUT:
        raise errors.make_error(
            errors.StoreTooNew,
            f"{path} was written by a newer version of this program (layout {layout}, this one knows {LAYOUT});"
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
    """Whether this is a store of ours in an older layout: it can be read as it is."""
    if pragma(connection, "PRAGMA application_id") != APPLICATION_ID:
        return False
    return bool(0 < pragma(connection, "PRAGMA user_version") < LAYOUT)


def check_documented_version(connection: apsw.Connection, path: Path) -> None:
    """Of a store of ours, which has that table: one statement, for a connection that has to read the schema anyway."""
    try:
        version = run(connection, DOCUMENTED_VERSION)[0][0]
    except apsw.SQLError:  # somebody dropped it: then nobody says that it is newer
        return
    _refuse_newer(_parse_version(version, path), path)


def _refuse_newer(version: int | None, path: Path) -> None:
    if version is not None and version > SCHEMA_VERSION:
        import shlex

        raise errors.make_error(
            errors.StoreTooNew,
            f"{path} has schema version {version}, this program writes up to {SCHEMA_VERSION}; it was left untouched."
            " `hermes sessions list`, `show`, `search` and `export` read it; to go on with it here, import it into"
            f" another home: `HERMES_HOME=FOLDER hermes sessions import --trusted {shlex.quote(str(path))}`",
        )


def read_documented_version(connection: apsw.Connection, path: Path) -> int | None:
    """The version in `schema_version`; None if that table is empty, which the reference takes for a new install."""
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
    """Bring a database to our layout; None if it is ours, of whatever layout, or empty and so for the opener to fill.

    The caller holds the lock beside the store and gives a connection that may write and is in no transaction.
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
            f"{path} keeps its text as {encoding}, which cannot be migrated; it was left untouched:"
            f" run `{upkeep_command(path, 'repair')}`, which carries everything over into a new file",
        )
    from hermes.store.sqlite.migrations.runner import run_course

    return run_course(path, connection, keep_backup=keep_backup)
