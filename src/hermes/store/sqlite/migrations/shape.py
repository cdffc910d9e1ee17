"""The comparison of `schema.sql` with a database. Like SQLite, it ignores the case of ASCII letters in names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

import apsw

from hermes import errors
from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations.identifiers import fill_names, quote_name

DOCUMENTED_TABLES = ("schema_version", "sessions", "messages", "state_meta")

INDEX_FILES = ("search/index.sql", "search/blocks.sql", "search/substring.sql")
KINDS = {"table": "a table", "view": "a view", "index": "an index"}
ASCII_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)

OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
TABLE_INFO = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
UNIQUE = (
    """SELECT c.name FROM pragma_index_list(?) i JOIN pragma_index_info(i.name) c WHERE i.origin <> 'c'"""
)
RENAME_COLUMN = "ALTER TABLE {table} RENAME COLUMN {old} TO {new}"
ADD_COLUMN = "ALTER TABLE {table} ADD COLUMN "
DROP_INDEX = "DROP INDEX {index}"
DROP_TRIGGER = "DROP TRIGGER {trigger}"
HAS_NULL = "SELECT 1 FROM {table} WHERE {column} IS NULL LIMIT 1"
FILL_NULL = "UPDATE {table} SET {column} = ? WHERE {column} IS NULL"
CONSTANT = "SELECT "


class Column(NamedTuple):
    name: str
    type: str
    required: bool
    default: str | None
    key: bool
    """Whether the column is part of the primary key or of a UNIQUE constraint."""


def fold_name(name: str) -> str:
    """Return one spelling for all names that SQLite treats as equal. SQLite folds the case of ASCII letters only."""
    return name.translate(ASCII_SMALL)


class Shape:
    """The tables of a database with their columns, and the SQL of its indexes and triggers, by folded name."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.kinds: dict[str, str] = {}
        """The kind of each name: table, view or index. These share one namespace.

        Triggers are not included, because a trigger may have the same name as one of them.
        """
        self.texts: dict[str, str] = {}
        self.triggers: dict[str, str] = {}
        self.tables: dict[str, dict[str, Column]] = {}
        self.virtual: set[str] = set()
        self.indexed: dict[str, str] = {}
        """The table of each index."""
        for kind, name, table, sql in run(connection, OBJECTS):
            key, text = fold_name(name), " ".join(sql.split())
            if kind == "trigger":
                self.triggers[key] = text
                continue
            self.kinds[key], self.texts[key] = kind, text
            if kind == "index":
                self.indexed[key] = fold_name(table)
            if kind == "table" and text.upper().startswith("CREATE VIRTUAL"):
                self.virtual.add(key)
            elif kind == "table":
                self.tables[key] = {
                    fold_name(at): column for at, column in read_columns(connection, name).items()
                }


def read_columns(connection: apsw.Connection, table: str) -> dict[str, Column]:
    unique = {row[0] for row in run(connection, UNIQUE, table)}
    return {
        name: Column(name, kind, bool(required), default, bool(key) or name in unique)
        for name, kind, required, default, key in run(connection, TABLE_INFO, table)
    }


def _read_sql(name: str) -> str:
    return files("hermes.store.sqlite").joinpath(name).read_text(encoding="utf-8")


def expected_shape() -> Shape:
    """Return the shape (tables, columns, indexes and triggers) of a new store, including all tables of the search
    index.

    It is read from a store that is built in memory.
    """
    connection = apsw.Connection(":memory:")
    try:
        for name in ("schema.sql", *INDEX_FILES):
            connection.execute(_read_sql(name)).fetchall()
        return Shape(connection)
    finally:
        connection.close()


def refuse_collisions(connection: apsw.Connection, path: Path, want: Shape) -> None:
    """Raise `MigrationFailed` if another program's table or view has a name that the store needs. Change nothing."""
    for name, kind in find_collisions(connection, want).items():
        raise errors.make_error(
            errors.MigrationFailed,
            f"{path} has {KINDS[kind]} named {name} that another program created and that conflicts with the store;"
            " nothing was changed: rename it to open the store",
        )


def find_collisions(connection: apsw.Connection, want: Shape) -> dict[str, str]:
    """Return the names in `want`, the shape of a store, that another program uses in the database for a different
    object.

    Each name is mapped to the kind of the other program's object, such as `table` or `view`.
    """
    have = Shape(connection)
    return {
        name: have.kinds[name]
        for name in want.kinds
        if name in have.kinds and not _may_be_ours(name, have, want)
    }


def _may_be_ours(name: str, have: Shape, want: Shape) -> bool:
    """Return whether the object `name` in the database can be the one that a store needs under this name.

    `have` is the shape of the database, and `want` is the shape of a store. The kind of the object must be the same.
    A table must have the columns that a store needs, and an SQL index must be on the same columns.
    """
    if have.kinds[name] != want.kinds[name] or (name in have.virtual) != (name in want.virtual):
        return False
    if name in want.indexed:
        return have.indexed[name] == want.indexed[name]
    if name not in want.tables or name in DOCUMENTED_TABLES:
        return True
    return want.tables[name].keys() <= have.tables[name].keys()


def find_misspelt(connection: apsw.Connection, want: Shape) -> list[tuple[str, str]]:
    """Return (table, column) for each column whose name differs from `schema.sql` only in the case of its letters, as
    in `Title`.

    SQLite treats both spellings as equal.
    """
    return [
        (table, name)
        for table in ("sessions", "messages", "state_meta")
        for name in read_columns(connection, table)
        if name not in want.tables[table] and fold_name(name) in want.tables[table]
    ]


def respell(connection: apsw.Connection, misspelt: list[tuple[str, str]]) -> None:
    """Rename the columns `misspelt`, which `find_misspelt` returned, to the spelling in `schema.sql`. Code that reads
    whole rows expects this spelling.
    """
    for table, name in misspelt:
        run(connection, fill_names(RENAME_COLUMN, table=table, old=name, new=fold_name(name)))


def add_column(connection: apsw.Connection, table: str, column: Column) -> bool:
    """Add `column` to `table`, unless the table does not exist or already has a column of this name. Return whether
    it was added.
    """
    have = read_columns(connection, table)
    if not have or column.name in map(fold_name, have):
        return False
    parts = [quote_name(column.name), column.type]
    if column.required:
        parts.append("NOT NULL")
    if column.default is not None:
        parts += ["DEFAULT", column.default]
    connection.execute(fill_names(ADD_COLUMN, table=table) + " ".join(parts)).fetchall()
    return True


def find_gaps(connection: apsw.Connection, want: Shape) -> dict[str, list[str]]:
    """For `sessions` and `messages`, return the columns in which a row has NULL although `schema.sql` forbids it.

    This happens if another program created the table and declared the column without NOT NULL.
    """
    gaps: dict[str, list[str]] = {}
    for table in ("sessions", "messages"):
        have = read_columns(connection, table)
        gaps[table] = [
            name
            for name, column in want.tables[table].items()
            if column.required and column.default is not None and name in have
            if run(connection, fill_names(HAS_NULL, table=table, column=name))
        ]
    return gaps


def fill_gaps(connection: apsw.Connection, want: Shape, gaps: dict[str, list[str]]) -> None:
    for table, names in gaps.items():
        for name in names:
            default = connection.execute(CONSTANT + str(want.tables[table][name].default)).fetchall()[0][0]
            run(connection, fill_names(FILL_NULL, table=table, column=name), default)


def drop_changed(connection: apsw.Connection, want: Shape) -> None:
    """Drop all triggers of Hermes from the database, and those SQL indexes whose definition differs from the one in
    `want`, the shape of a new store.

    The caller then creates them again from `schema.sql`.
    """
    have = Shape(connection)
    for name, kind in have.kinds.items():
        if kind == "index" and want.texts.get(name, have.texts[name]) != have.texts[name]:
            run(connection, fill_names(DROP_INDEX, index=name))
    for name in have.triggers:
        if name in want.triggers or name.startswith("hermes_"):
            run(connection, fill_names(DROP_TRIGGER, trigger=name))
