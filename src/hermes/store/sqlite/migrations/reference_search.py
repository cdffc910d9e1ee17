"""Removal of the reference's full-text tables and triggers, by name and without FTS5.

The Hermes index replaces these tables. SQLite cannot drop a virtual table that is damaged or incomplete, or
whose tokenizer is not available. So the names of the virtual tables are first deleted from the schema
("struck"). Their shadow tables are then plain tables, which can be dropped. If a damaged page prevents even
this, the shadow tables are struck too, and the next VACUUM frees their pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

import apsw

from hermes.store.sqlite.connection import run
from hermes.store.sqlite.migrations.identifiers import fill_names

T = TypeVar("T")

FIND = """SELECT type, name, rootpage, sql FROM sqlite_master
    WHERE type = 'table' AND name IN (
        'messages_fts', 'messages_fts_data', 'messages_fts_idx', 'messages_fts_content', 'messages_fts_docsize',
        'messages_fts_config', 'messages_fts_trigram', 'messages_fts_trigram_data', 'messages_fts_trigram_idx',
        'messages_fts_trigram_content', 'messages_fts_trigram_docsize', 'messages_fts_trigram_config')
    OR type = 'trigger' AND sql LIKE '%messages~_fts%' ESCAPE '~'
    ORDER BY type = 'table', name"""
NAMES = r"(?<![\w$])messages_fts(_trigram)?(_(data|idx|content|docsize|config))?(?![\w$])"
# Matches comments and quoted texts too, so that a name within them is not taken for a table name. A name in
# single quotes is a table name only where SQL expects a table.
NAMED = "|".join(
    (
        r"--[^\n]*|/\*.*?\*/",
        r"(?P<table>\b(into|from|update|join)\s+|\.\s*)?'(?P<text>([^']|'')*)'",
        f"(?P<name>{NAMES})",
    )
)
REFERENCE_TRIGGERS = {
    f"messages_fts{kind}_{verb}" for kind in ("", "_trigram") for verb in ("insert", "delete", "update")
}
STRIKE = "DELETE FROM sqlite_master WHERE type IN ('table', 'index') AND tbl_name = ?"
DROP_TABLE = "DROP TABLE {table}"
DROP_TRIGGER = "DROP TRIGGER {trigger}"


def drop_foreign_search(connection: apsw.Connection) -> list[str]:
    """Remove the reference's full-text tables and their triggers from a Hermes store, in which another program
    created them. Return the names of the tables.

    If there are no such tables, this costs one cheap query.
    """
    if not _find_search_objects(connection):
        return []
    removed, struck = in_transaction(connection, remove)
    if struck:
        try:
            run(connection, "VACUUM")
        except apsw.Error:
            pass  # only unused pages are left; the next rewrite of the file removes them
    return removed


def _find_search_objects(connection: apsw.Connection) -> list[tuple[str, str, int]]:
    """Return (type, name, root page) of each full-text table of the reference, and of each trigger that uses such a
    table.

    Triggers of other programs are included. Once the full-text tables are removed, every statement that fires such a
    trigger would fail.
    """
    rows = run(connection, FIND)
    return [
        (kind, name, page) for kind, name, page, sql in rows if kind == "table" or _is_search_trigger(sql)
    ]


def _is_search_trigger(trigger: str) -> bool:
    import re  # imported only if there is such a trigger

    return any(
        found["name"] or (found["table"] and re.fullmatch(NAMES, found["text"], re.IGNORECASE))
        for found in re.finditer(NAMED, trigger, re.IGNORECASE | re.DOTALL)
    )


def list_foreign_triggers(connection: apsw.Connection) -> list[str]:
    """Return the names of the triggers that use the full-text tables of the reference, but were created by another
    program.

    They are removed together with these tables, and the user is informed.
    """
    return [
        name
        for kind, name, _ in _find_search_objects(connection)
        if kind == "trigger" and name not in REFERENCE_TRIGGERS
    ]


def in_transaction(connection: apsw.Connection, work: Callable[[apsw.Connection, bool], T]) -> tuple[T, bool]:
    """Run `work(connection, strike)` in one transaction. Return its result, and the last value of `strike`.

    After SQLite has met a damaged page, it refuses every further write in the transaction. The transaction is
    then rolled back, and `work` is called again with `strike=True`. With this flag, `work` deletes the search
    tables from the schema only, without touching their pages.
    """
    try:
        with transaction(connection):
            return work(connection, False), False
    except apsw.CorruptError:
        with transaction(connection):
            return work(connection, True), True


def remove(connection: apsw.Connection, strike: bool) -> list[str]:
    """Remove the search tables and triggers within the caller's transaction.

    With `strike`, delete the tables from the schema only, without reading their pages. Return their names,
    without shadow tables.
    """
    found = _find_search_objects(connection)
    for kind, name, _ in found:
        if kind == "trigger":
            run(connection, fill_names(DROP_TRIGGER, trigger=name))
    tables = {name: page for kind, name, page in found if kind == "table"}
    # A virtual table has no page of its own.
    plain = [name for name, page in tables.items() if page and not strike]
    strike_names(connection, [name for name in tables if name not in plain])
    for name in plain:
        run(connection, fill_names(DROP_TABLE, table=name))
    return sorted(name for _, name, _ in found if not _is_behind_another(name, tables))


def strike_names(connection: apsw.Connection, tables: Collection[str]) -> None:
    if not tables:
        return
    with writable_schema(connection):
        for name in tables:
            run(connection, STRIKE, name)


@contextmanager
def writable_schema(connection: apsw.Connection) -> Iterator[None]:
    """Allow statements in the block to change `sqlite_master`.

    After the block, SQLite reads the schema again.
    """
    defended = connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    run(connection, "PRAGMA writable_schema=ON")
    try:
        yield
    finally:
        run(connection, "PRAGMA writable_schema=RESET")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, defended)


def _is_behind_another(name: str, tables: Collection[str]) -> bool:
    """Return whether `name` is the name of a table in which FTS5 stores the data of a full-text table (a shadow
    table), and that full-text table is in `tables`.
    """
    main, _, part = name.rpartition("_")
    return main in tables and part in ("data", "idx", "content", "docsize", "config")


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run a block between BEGIN IMMEDIATE and COMMIT, or ROLLBACK after an error."""
    run(connection, "BEGIN IMMEDIATE")
    try:
        yield
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself when the disk is full
            run(connection, "ROLLBACK")
        raise
