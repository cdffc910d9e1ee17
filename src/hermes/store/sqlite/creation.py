"""Creation of a new, complete store in an empty file."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from hermes.store.sqlite.connection import connect, run
from hermes.store.sqlite.migrations import APPLICATION_ID, LAYOUT, SCHEMA_VERSION
from hermes.store.sqlite.schema import schema_sql

INSERT_VERSION = "INSERT INTO schema_version (version) VALUES (?)"
WRITE_MARKS = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={LAYOUT}"


def build_store(path: Path) -> None:
    """Fill an empty file with a complete, current store, and flush it to disk."""
    connection = connect(path)
    try:
        run(connection, "PRAGMA synchronous=OFF")  # one fsync at the end instead of one per statement
        run(connection, "PRAGMA auto_vacuum=INCREMENTAL")
        run(connection, "PRAGMA journal_mode=DELETE")
        fill(connection)
    finally:
        connection.close()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fill(connection: apsw.Connection) -> None:
    from hermes.store.sqlite.search import index

    with connection:
        run(connection, schema_sql())
        run(connection, index.read_definition())
        run(connection, INSERT_VERSION, SCHEMA_VERSION)
        run(connection, WRITE_MARKS)


def publish(fresh: Path, path: Path) -> None:
    """Give the finished store in the temporary file `fresh` its final name, `path`.

    If another program has created a file at `path` in the meantime, leave that file in place.
    """
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:
        os.rename(fresh, path)  # no hard links on this file system; the lock excludes other Hermes processes
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
