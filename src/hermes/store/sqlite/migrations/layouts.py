"""Migration of older layouts of a Hermes store to the current one, in one transaction.

Layout 2 stores `messages.uid` as text, so that every column of the tables that other programs read is text, a
number or NULL. Only this column changes. No message is recorded as changed, and the search index is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations import LAYOUT
from hermes.store.sqlite.migrations.reference_search import transaction, writable_schema

TEXT_UIDS = "UPDATE messages SET uid = lower(hex(uid)) WHERE typeof(uid) = 'blob'"
DEFINITION = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = 'messages'"
REDEFINE = "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND lower(name) = 'messages'"
BINARY_UID = re.compile(r"""((?:\buid|"uid"|`uid`|\[uid\])\s+)BLOB\b""", re.IGNORECASE)
MARK = f"PRAGMA user_version={LAYOUT}"


def migrate_layout(connection: apsw.Connection, path: Path) -> None:
    """Migrate a Hermes store in an older layout to the current layout, in one transaction.

    The connection must be writable and not in a transaction. `path` is the path of the store.
    """
    with without_triggers(connection), transaction(connection):
        raise_layout(connection, path)


def raise_layout(connection: apsw.Connection, path: Path) -> None:
    """Migrate a Hermes store in an older layout to the current layout, within the caller's transaction.

    The caller has disabled the triggers of the store (see `without_triggers`).
    """
    from hermes.store.sqlite.migrations.reconciliation import complete

    complete(connection, path)
    store_uids_as_text(connection)
    run(connection, MARK)


@contextmanager
def without_triggers(connection: apsw.Connection) -> Iterator[None]:
    """Disable all triggers during the block.

    They would record every message as changed, but a new layout changes no message.
    """
    enabled = connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, enabled)


def store_uids_as_text(connection: apsw.Connection) -> None:
    """Store `messages.uid` as text, within the caller's transaction.

    The column is in no index, so its type can be changed by editing the table definition.
    """
    sql = str(run(connection, DEFINITION)[0][0])
    changed = BINARY_UID.sub(r"\1TEXT", sql, count=1)
    if changed != sql:
        with writable_schema(connection):
            run(connection, REDEFINE, changed)
    run(connection, TEXT_UIDS)
