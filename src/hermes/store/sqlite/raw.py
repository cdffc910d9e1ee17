"""Plain SQL with the store's own SQLite library, for scripts that were written for a `sqlite3` connection.

It uses a separate connection, so that a transaction of a script never mixes with a transaction of the store.
Every statement commits by itself unless the script executes BEGIN. Outside a transaction `commit()` does
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes import errors
from hermes.store.sqlite.connection import translate_error
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.wal.log_lock import LogLock

Parameters = Sequence[object] | Mapping[str, object]


class Row(tuple[Any, ...]):
    """A row with access by index and by column name, like `sqlite3.Row`."""

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
    """Runs a statement and holds its rows. All rows are read at once."""

    arraysize = 1

    def __init__(self, raw: RawConnection, path: Path) -> None:
        self._raw = raw
        self._path = path
        self._rows: Iterator[Row] = iter(())
        self.description: list[tuple[str, None, None, None, None, None, None]] | None = None
        self.rowcount = -1
        self.lastrowid = 0

    def execute(self, sql: str, parameters: Parameters = ()) -> Cursor:
        names: tuple[str, ...] = ()

        def note_columns(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
            nonlocal names
            names = tuple(column[0] for column in cursor.get_description())
            return True

        with self._raw.use_connection() as connection:
            before = connection.total_changes()
            try:
                with Inside():
                    cursor = connection.cursor()
                    # The column names of a statement without rows are available only during this callback.
                    cursor.exec_trace = note_columns
                    rows = cursor.execute(sql, parameters).fetchall()
            except apsw.Error as problem:
                raise translate_error(problem, self._path) from problem
            self.rowcount = -1 if names else connection.changes()
            self.lastrowid = connection.last_insert_rowid()
            has_committed = not connection.in_transaction and (
                connection.total_changes() != before or not names
            )
        self._rows = iter([Row.of(row, names) for row in rows])
        self.description = [(name, None, None, None, None, None, None) for name in names] or None
        if has_committed:
            self._raw.settle()
        return self

    def executemany(self, sql: str, sequence: Iterable[Parameters]) -> Cursor:
        before = self._raw.total_changes
        for parameters in sequence:
            self.execute(sql, parameters)
        self.rowcount = self._raw.total_changes - before
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
        self,
        connect: Callable[[], apsw.Connection],
        path: Path,
        settle: Callable[[], None],
        closed: Callable[[RawConnection], None],
        hold_log: Callable[[], LogLock],
    ) -> None:
        """Open a connection for plain SQL by calling `connect`. `path` is the path of the store.

        The other arguments are functions of the store. `hold_log` is called before a transaction. It checks that the
        write-ahead log is in its place, and returns a lock that keeps other processes from starting a new log.
        `settle` is called after the transaction and checks the log again. `closed` is called when this connection is
        closed.
        """
        self._connect = connect
        self._path = path
        self.settle = settle
        self._forget = closed
        self._hold_log = hold_log
        self._lock: LogLock | None = None  # held during an open transaction
        self._mutex = threading.RLock()
        self._is_closed = False
        self._opened: apsw.Connection | None = connect()

    @property
    def connection(self) -> apsw.Connection:
        """The SQLite connection behind this object. It is opened again if the store has closed it to recover
        its log.
        """
        if self._opened is None:
            if self._is_closed:
                raise errors.make_error(errors.StoreClosed, f"{self._path}: this connection is closed")
            self._opened = self._connect()
        return self._opened

    @contextmanager
    def use_connection(self) -> Iterator[apsw.Connection]:
        lock = None if self.in_transaction else self._hold_log()
        try:
            with self._mutex:
                yield self.connection
        finally:
            if self.in_transaction and self._lock is None:
                self._lock, lock = lock, None
            elif not self.in_transaction:
                self._release_log()
            if lock is not None:
                lock.close()

    def _release_log(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def is_idle(self, until: float) -> bool:
        """Return whether this connection is idle: it runs no statement and has no open transaction.

        If a statement is running, wait for its end until the time `until`.
        """
        if not self._mutex.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        try:
            return not self.in_transaction
        finally:
            self._mutex.release()

    def suspend(self) -> None:
        with self._mutex:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close(True)
            self._release_log()

    def cursor(self) -> Cursor:
        return Cursor(self, self._path)

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
        return self._opened is not None and self._opened.in_transaction

    @property
    def total_changes(self) -> int:
        return self.connection.total_changes()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def close(self) -> None:
        self._is_closed = True
        self.suspend()
        self._forget(self)
