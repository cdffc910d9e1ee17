"""Plain SQL on the store's own library, for scripts that were written against a `sqlite3` connection.

It is a connection of its own, so that a script's transaction never mixes with the store's. Every statement commits
by itself unless the script says BEGIN; `commit()` does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from hermes.store.sqlite.connection import translated
from hermes.store.sqlite.forking import Inside

Parameters = Sequence[object] | Mapping[str, object]


class Row(tuple[Any, ...]):
    """A row by index and by name, as `sqlite3.Row` is."""

    _names: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[Any], names: tuple[str, ...]) -> Row:
        row = cls(values)
        row._names = names
        return row

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            folded = key.lower()
            for at, name in enumerate(self._names):
                if name.lower() == folded:
                    return tuple.__getitem__(self, at)
            raise IndexError(f"no column named {key!r}")
        return tuple.__getitem__(self, key)

    def keys(self) -> list[str]:
        return list(self._names)


class Cursor:
    """Runs a statement and holds its rows, already read."""

    arraysize = 1

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._rows: Iterator[Row] = iter(())
        self.description: list[tuple[str, None, None, None, None, None, None]] | None = None
        self.rowcount = -1
        self.lastrowid = 0

    def execute(self, sql: str, parameters: Parameters = ()) -> Cursor:
        names: tuple[str, ...] = ()

        def seen(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
            nonlocal names
            names = tuple(column[0] for column in cursor.get_description())
            return True

        try:
            with Inside():
                cursor = self._connection.cursor()
                cursor.exec_trace = (
                    seen  # the only moment at which a statement without rows names its columns
                )
                rows = cursor.execute(sql, parameters).fetchall()
        except apsw.Error as problem:
            raise translated(problem, self._path) from problem
        self._rows = iter([Row.of(row, names) for row in rows])
        self.description = [(name, None, None, None, None, None, None) for name in names] or None
        self.rowcount = -1 if names else self._connection.changes()
        self.lastrowid = self._connection.last_insert_rowid()
        return self

    def executemany(self, sql: str, sequence: Iterable[Parameters]) -> Cursor:
        before = self._connection.total_changes()
        for parameters in sequence:
            self.execute(sql, parameters)
        self.rowcount = self._connection.total_changes() - before
        return self

    def executescript(self, sql: str) -> Cursor:
        return self.execute(sql)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def fetchmany(self, size: int = 1) -> list[Row]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def close(self) -> None:
        self._rows = iter(())


class RawConnection:
    def __init__(
        self, connection: apsw.Connection, path: Path, closed: Callable[[apsw.Connection], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._closed = closed

    def cursor(self) -> Cursor:
        return Cursor(self._connection, self._path)

    def execute(self, sql: str, parameters: Parameters = ()) -> Cursor:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, sequence: Iterable[Parameters]) -> Cursor:
        return self.cursor().executemany(sql, sequence)

    def executescript(self, sql: str) -> Cursor:
        return self.cursor().executescript(sql)

    def commit(self) -> None:
        if self.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        if self.in_transaction:
            self.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def close(self) -> None:
        self._connection.close()
        self._closed(self._connection)
