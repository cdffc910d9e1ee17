"""What `schema.sql` wants, compared with what a database has."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import errors
from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations.foreign import transaction
from hermes.store.sqlite.migrations.names import named, quoted

DOCUMENTED_TABLES = ("schema_version", "sessions", "messages", "state_meta")

OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
TABLE_INFO = 'SELECT name, type, "notnull", dflt_value FROM pragma_table_info(?)'
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


class Shape:
    """Tables with their columns, and the text of indexes and triggers."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.kinds: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.tables: dict[str, dict[str, Column]] = {}
        for kind, name, sql in run(connection, OBJECTS):
            self.kinds[name] = kind
            self.texts[name] = " ".join(sql.split())
            if kind == "table" and not sql.upper().startswith("CREATE VIRTUAL"):
                self.tables[name] = columns_of(connection, name)

    def named(self, kind: str) -> list[str]:
        return [name for name, its in self.kinds.items() if its == kind]


def columns_of(connection: apsw.Connection, table: str) -> dict[str, Column]:
    return {
        row[0]: Column(row[0], row[1], bool(row[2]), row[3]) for row in run(connection, TABLE_INFO, table)
    }


def schema_sql() -> str:
    return files("hermes.store.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")


def wanted() -> Shape:
    """The shape of a new store, learned by making one in memory."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(schema_sql()).fetchall()
        return Shape(connection)
    finally:
        connection.close()


def refuse_collisions(connection: apsw.Connection, path: Path, want: Shape) -> None:
    """Somebody else's table under a name of ours: nothing is renamed or guessed, the person is told."""
    have = Shape(connection)
    for table, columns in want.tables.items():
        kind = have.kinds.get(table)
        strange = kind is not None and (kind != "table" or table not in have.tables)
        if table not in DOCUMENTED_TABLES and table in have.tables:
            strange = strange or not columns.keys() <= have.tables[table].keys()
        if strange:
            raise errors.raised(
                errors.MigrationFailed,
                f"{path} has a {kind} named {table} that another program made and that is in the way;"
                " nothing was changed: rename it to open the store",
            )


def add_column(connection: apsw.Connection, table: str, column: Column) -> bool:
    """Add the column if the table is there and has none of that name; whether it was added."""
    have = columns_of(connection, table)
    if not have or column.name in have:
        return False
    parts = [quoted(column.name), column.type]
    if column.required:
        parts.append("NOT NULL")
    if column.default is not None:
        parts += ["DEFAULT", column.default]
    connection.execute(named(ADD_COLUMN, table=table) + " ".join(parts)).fetchall()
    return True


def nullable_gaps(connection: apsw.Connection, want: Shape) -> dict[str, list[str]]:
    """Columns that are never NULL here but are in this database: an older or looser program declared them."""
    gaps: dict[str, list[str]] = {}
    for table in ("sessions", "messages"):
        have = columns_of(connection, table)
        gaps[table] = [
            name
            for name, column in want.tables[table].items()
            if column.required and column.default is not None and name in have
            if run(connection, named(HAS_NULL, table=table, column=name))
        ]
    return gaps


def fill_gaps(connection: apsw.Connection, want: Shape, gaps: dict[str, list[str]]) -> None:
    for table, names in gaps.items():
        for name in names:
            default = connection.execute(CONSTANT + str(want.tables[table][name].default)).fetchall()[0][0]
            run(connection, named(FILL_NULL, table=table, column=name), default)


def drop_changed(connection: apsw.Connection, want: Shape) -> None:
    """Indexes under a name of ours that say something else, and all triggers of ours: `schema.sql` makes them anew."""
    have = Shape(connection)
    for name in have.named("index"):
        if want.texts.get(name, have.texts[name]) != have.texts[name]:
            run(connection, named(DROP_INDEX, index=name))
    for name in have.named("trigger"):
        if name in want.texts or name.startswith("hermes_"):
            run(connection, named(DROP_TRIGGER, trigger=name))


def renew_rules(connection: apsw.Connection) -> None:
    """Give a store of ours the indexes and triggers of today; its tables and rows stay as they are."""
    with transaction(connection):
        drop_changed(connection, wanted())
        connection.execute(schema_sql()).fetchall()
