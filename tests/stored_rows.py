"""Reads and changes the rows of a store with SQL that every engine accepts.

Tests use this module for states that the public methods cannot create: an old timestamp, a process that has
ended, rows of another program. Statements run through the interface in `hermes.store.engine`. A statement
that only SQLite understands is rejected, because a test that needs it belongs to the SQLite-only tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from hermes.store.engine import Engine, Row, Writer
from hermes_state import SessionDB
from tests.portable_sql import find_refused


@cache
def _check(sql: str) -> None:
    assert find_refused(sql) == [], f"not for every engine: {sql}"


def read_rows(db: SessionDB, sql: str, *values: object) -> list[Row]:
    _check(sql)
    with db._engine.read() as reader:
        return reader.rows(sql, *values)


def read_dicts(db: SessionDB, sql: str, *values: object) -> list[dict[str, Any]]:
    """Return each row as a dictionary."""
    _check(sql)
    with db._engine.read() as reader:
        return reader.dicts(sql, *values)


def read_value(db: SessionDB, sql: str, *values: object) -> Any:
    """Return the first column of the first row."""
    _check(sql)
    with db._engine.read() as reader:
        return reader.value(sql, *values)


def change_rows(db: SessionDB, sql: str, *values: object) -> int:
    """Run one change in its own transaction and return the number of changed rows."""
    return change_through(db._engine, sql, *values)


def change_through(engine: Engine, sql: str, *values: object) -> int:
    _check(sql)
    return engine.write(lambda writer: writer.run(sql, *values), share=False)


def change_each(db: SessionDB, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Run a change once for each row of values, all in one transaction."""
    _check(sql)
    listed = list(rows)

    def work(writer: Writer) -> None:
        for values in listed:
            writer.run(sql, *values)

    db._engine.write(work, share=False)


def insert_row(db: SessionDB, sql: str, *values: object) -> int:
    """Run an INSERT and return the key of the new row."""
    _check(sql)
    return db._engine.write(lambda writer: writer.insert(sql, *values), share=False)


@contextmanager
def hold_transaction(db: SessionDB) -> Iterator[None]:
    """Keep an empty write transaction of this store open while the block runs."""
    begun, ended = threading.Event(), threading.Event()

    def work(_: Writer) -> None:
        begun.set()
        ended.wait()

    holder = threading.Thread(target=lambda: db._engine.write(work, share=False))
    holder.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        ended.set()
        holder.join()
