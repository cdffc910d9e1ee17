"""The reference's full-text tables and triggers: found by name, removed without asking FTS5.

Ours replace them. They may be damaged, half there, or need a tokenizer that is not here, and then SQLite cannot drop
them as what they are. So their names are struck from the schema first, after which the tables behind them are plain
tables and are dropped as such. Where even that meets a broken page they are struck as well, and the next VACUUM gives
their pages back.
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
# In a comment they name no table, and in single quotes only where a table is expected.
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
    """Remove what another program re-created in a store of ours; the names. One cheap query if there is nothing."""
    if not _find_search_objects(connection):
        return []
    removed, struck = in_transaction(connection, remove)
    if struck:
        try:
            run(connection, "VACUUM")
        except apsw.Error:
            pass  # unused pages are all that is left; whatever rewrites the file next takes them away
    return removed


def _find_search_objects(connection: apsw.Connection) -> list[tuple[str, str, int]]:
    """Kind, name and page. Of triggers those that use these tables, whatever their names and wherever they are: once
    the tables are gone, every statement that fires one would fail."""
    rows = run(connection, FIND)
    return [
        (kind, name, page) for kind, name, page, sql in rows if kind == "table" or _is_search_trigger(sql)
    ]


def _is_search_trigger(trigger: str) -> bool:
    import re  # nobody pays for it who has no such trigger

    return any(
        found["name"] or (found["table"] and re.fullmatch(NAMES, found["text"], re.IGNORECASE))
        for found in re.finditer(NAMED, trigger, re.IGNORECASE | re.DOTALL)
    )


def list_foreign_triggers(connection: apsw.Connection) -> list[str]:
    """Those of them that the reference does not make: somebody will miss them."""
    return [
        name
        for kind, name, _ in _find_search_objects(connection)
        if kind == "trigger" and name not in REFERENCE_TRIGGERS
    ]


def in_transaction(connection: apsw.Connection, work: Callable[[apsw.Connection, bool], T]) -> tuple[T, bool]:
    """Do `work(connection, strike)` in one transaction; (its result, whether tables had to be struck).

    SQLite refuses every further write of a transaction in which it met a broken page. So the work is undone and done
    again, this time told not to touch the pages of search tables.
    """
    try:
        with transaction(connection):
            return work(connection, False), False
    except apsw.CorruptError:
        with transaction(connection):
            return work(connection, True), True


def remove(connection: apsw.Connection, strike: bool) -> list[str]:
    """Remove them inside the caller's transaction; the names of the tables and triggers a person knows."""
    found = _find_search_objects(connection)
    for kind, name, _ in found:
        if kind == "trigger":
            run(connection, fill_names(DROP_TRIGGER, trigger=name))
    tables = {name: page for kind, name, page in found if kind == "table"}
    plain = [
        name for name, page in tables.items() if page and not strike
    ]  # a virtual table has no page of its own
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
    """Let statements change `sqlite_master`; SQLite reads it again afterwards."""
    defended = connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    run(connection, "PRAGMA writable_schema=ON")
    try:
        yield
    finally:
        run(connection, "PRAGMA writable_schema=RESET")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, defended)


def _is_behind_another(name: str, tables: Collection[str]) -> bool:
    """Whether this is one of the tables in which FTS5 keeps another one of the list."""
    main, _, part = name.rpartition("_")
    return main in tables and part in ("data", "idx", "content", "docsize", "config")


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE, and COMMIT or ROLLBACK."""
    run(connection, "BEGIN IMMEDIATE")
    try:
        yield
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            run(connection, "ROLLBACK")
        raise
