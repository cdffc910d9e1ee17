"""The tables and rows that a damaged file still contains: first those in its trees, then those in other pages.

The schema is read from the file where possible. For a table whose definition is lost, the definition of `schema.sql`
is assumed. A row on a page that no tree reaches is assigned to the table whose columns it fits. Pages on the free
list are ignored, because their content was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import apsw

from hermes.store.sqlite.connection import run
from hermes.store.sqlite.repair.pages import Image, Row

TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
COLUMNS = """SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid"""
WITHOUT_ROWID = "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?"
INDEX_COLUMNS = "SELECT name FROM pragma_index_xinfo(?) ORDER BY seqno"

VIRTUAL_GENERATED, STORED_GENERATED = 2, 3


class Entry(NamedTuple):
    """A row of SQLite's table `sqlite_master`, which describes one table, index, view or trigger of the
    damaged file.
    """

    kind: str
    name: str
    table: str
    root: int
    sql: str | None


class Column(NamedTuple):
    name: str
    type: str
    required: bool
    default: str | None
    copied: bool


class Layout(NamedTuple):
    """The columns of a table in the damaged file, and how its rows are stored. It is used to interpret the rows."""

    name: str
    columns: tuple[Column, ...]
    alias: int | None
    """The position of the column that is an alias of the rowid, or None if there is none.

    In the record, the value of this column is NULL.
    """
    rowid: bool
    """Whether the rows of the table have rowids."""
    root: int


class RecoveredRows:
    def __init__(self, image: Image, ours: str) -> None:
        self.image = image
        self._free = image.free_pages()
        self._seen: set[int] = set()
        self.schema = self._read_schema()
        self._scratch = apsw.Connection(":memory:")
        for entry in sorted(self.schema, key=lambda entry: entry.kind != "table"):
            self._define(entry)
        roots = {entry.name: entry.root for entry in self.schema if entry.kind == "table"}
        found = _read_layouts(self._scratch, roots)
        model = apsw.Connection(":memory:")
        run(model, ours)
        assumed = {layout.name: layout for layout in _read_layouts(model, {})}
        model.close()
        self.tables = [_mend_layout(layout, assumed.get(layout.name)) for layout in found]
        known = {layout.name: layout.columns for layout in self.tables}
        # If the file's definition differs, the expected one is added too. The shape of a row shows which one applies.
        self.tables += [layout for layout in assumed.values() if known.get(layout.name) != layout.columns]

    def close(self) -> None:
        self._scratch.close()

    # ---------------------------------------------------------------- the schema

    def _read_schema(self) -> list[Entry]:
        found: dict[str, Entry] = {}
        self._read_entries(self.image.tree(1, set()), found)
        if self.image.unreadable:
            self._read_entries(self.image.leaves_outside(self._seen | self._free), found)
        return list(found.values())

    def _read_entries(self, pages: Iterable[tuple[int, bytes]], found: dict[str, Entry]) -> None:
        for number, data in pages:
            entries = [
                entry for row in self.image.rows(number, data) if (entry := _parse_entry(row)) is not None
            ]
            if entries:
                self._seen.add(number)
            for entry in entries:
                found.setdefault(entry.name, entry)

    def _define(self, entry: Entry) -> None:
        if entry.sql is None or not entry.root or entry.name.startswith("sqlite_"):
            return
        try:
            run(self._scratch, entry.sql)
        except apsw.Error:
            return  # an index on a table whose definition is lost, or invalid SQL

    # ---------------------------------------------------------------- the rows

    def rows(self) -> Iterator[tuple[Layout, Row]]:
        """Yield every readable row: first those on intact pages that a tree reaches, then all others.

        If two rows have the same rowid, the first one is more reliable, and the caller should keep it.
        """
        outside: list[tuple[Layout | None, int]] = []
        doubtful: list[tuple[Layout | None, int]] = []
        for layout in self.tables:
            if layout.root:
                for number, data in self.image.tree(layout.root, self._seen, index=not layout.rowid):
                    found = list(self.image.rows(number, data))
                    if layout.rowid and not (self._is_sound(number, found) and _is_mostly(found, layout)):
                        doubtful.append((layout, number))
                    else:
                        yield from ((layout, row) for row in found if len(row.values) <= len(layout.columns))
        for number, data in self.image.leaves_outside(self._seen | self._free):
            sound = self._is_sound(number, list(self.image.rows(number, data)))
            (outside if sound else doubtful).append((None, number))
        for claimed, number in outside + doubtful:
            for row in self.image.rows(number, self.image.page(number)):
                owner = self._owner(row) or claimed
                if owner is not None and len(row.values) <= len(owner.columns):
                    yield owner, row

    def _is_sound(self, number: int, rows: list[Row]) -> bool:
        """Return whether the page `number` is undamaged: all its cells were readable, and the rowids of its rows
        (`rows`) are ascending.
        """
        return number not in self.image.unreadable and all(a.rowid < b.rowid for a, b in pairwise(rows))

    def _owner(self, row: Row) -> Layout | None:
        fitting = [layout for layout in self.tables if layout.rowid and is_row_of(row, layout)]
        exact = [layout for layout in fitting if len(layout.columns) == len(row.values)]
        chosen = exact or fitting
        return chosen[0] if len({layout.name for layout in chosen}) == 1 else None

    def index_entries(self, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield rowid and indexed columns of every readable entry in the SQL indexes of a table."""
        for entry in self.schema:
            if entry.kind != "index" or entry.table != table:
                continue
            names = [row[0] for row in run(self._scratch, INDEX_COLUMNS, entry.name)]
            for number, data in self.image.tree(entry.root, self._seen, index=True):
                for row in self.image.rows(number, data):
                    if row.whole and len(row.values) == len(names) and isinstance(row.values[-1], int):
                        known = {name: value for name, value in zip(names, row.values, strict=True) if name}
                        yield row.values[-1], known


def _read_layouts(connection: apsw.Connection, roots: dict[str, int]) -> list[Layout]:
    names = [row[0] for row in run(connection, TABLES)]
    found = [
        _read_layout(connection, name, roots.get(name, 0)) for name in names if name != "sqlite_sequence"
    ]
    if "sqlite_sequence" in roots:  # the highest rowids ever used; SQLite creates this table itself
        columns = (Column("name", "", True, None, True), Column("seq", "", True, None, True))
        found.append(Layout("sqlite_sequence", columns, None, True, roots["sqlite_sequence"]))
    return found


def _read_layout(connection: apsw.Connection, name: str, root: int) -> Layout:
    rowid = not run(connection, WITHOUT_ROWID, name)[0][0]
    stored = [row for row in run(connection, COLUMNS, name) if row[5] != VIRTUAL_GENERATED]
    keys = [row for row in stored if row[4]]
    alias = None
    if rowid and len(keys) == 1 and str(keys[0][1]).upper() == "INTEGER":
        alias = stored.index(keys[0])
    if not rowid:  # a record of such a table begins with the primary key
        stored = sorted(keys, key=lambda row: int(row[4])) + [row for row in stored if not row[4]]
    columns = tuple(
        Column(
            column,
            (kind or "").upper(),
            bool(pk or (notnull and default is None)),
            default,
            hidden != STORED_GENERATED,
        )
        for column, kind, notnull, default, pk, hidden in stored
    )
    return Layout(name, columns, alias, rowid, root)


def _mend_layout(found: Layout, ours: Layout | None) -> Layout:
    """Return the layout `found`, which was read from the damaged file, with corrected column names.

    `ours` is the layout of the same table in `schema.sql`, or None if `schema.sql` has no such table. The names are
    taken from `ours` only if both have the same number of columns and at most two names differ.
    """
    if ours is None or len(ours.columns) != len(found.columns):
        return found
    strange = {column.name for column in found.columns} - {column.name for column in ours.columns}
    moved = sum(a.name != b.name for a, b in zip(found.columns, ours.columns, strict=True))
    return found._replace(columns=ours.columns) if strange and moved <= 2 else found


def _parse_entry(row: Row) -> Entry | None:
    if len(row.values) != 5 or not row.whole:
        return None
    kind, name, table, root, sql = row.values
    if (
        kind not in ("table", "index", "trigger", "view")
        or not isinstance(name, str)
        or not isinstance(table, str)
    ):
        return None
    if not isinstance(root, int | None) or not isinstance(sql, str | None):
        return None
    if any(mark in name + (sql or "") for mark in ("\ufffd", "\0")):
        return None
    return Entry(kind, name, table, root or 0, sql)


_HOLDS: dict[str, tuple[type, ...]] = {
    "TEXT": (str, bytes),
    "INTEGER": (int,),
    "REAL": (int, float),
    "BLOB": (bytes,),
}


def _is_mostly(rows: list[Row], layout: Layout) -> bool:
    """Return whether at least half of `rows`, which were read from one page, fit the table that `layout` describes.

    If not, a damaged tree may have led to a page of another table.
    """
    return sum(is_row_of(row, layout) for row in rows) * 2 >= len(rows)


def is_row_of(row: Row, layout: Layout) -> bool:
    """Return whether `row` can be a row of the table that `layout` describes, by the number and the types of
    its values.
    """
    needed = max((at + 1 for at, column in enumerate(layout.columns) if column.required), default=1)
    if not needed <= len(row.values) <= len(layout.columns):
        return False
    for at, (value, column) in enumerate(zip(row.values, layout.columns, strict=False)):
        if at == layout.alias:
            if value is not None:
                return False
        elif value is None:
            if column.required and row.whole:
                return False
        elif not isinstance(value, _HOLDS.get(column.type, (object,))):
            return False
    return True
