"""The names that `schema.sql` declares, and the ones that a database lacks.

The check runs when a store is opened, so it compares names only. Building the schema in memory takes ten times as
long.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from hermes.store.sqlite.connection import SqliteReader

OBJECTS = "SELECT type, lower(name) FROM sqlite_master WHERE type IN ('table', 'index', 'view', 'trigger')"
COLUMNS = """SELECT lower(m.name), lower(c.name) FROM sqlite_master m JOIN pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%'"""
TOPIC_COLUMNS = {
    "telegram_dm_topic_mode": frozenset(
        [
            *("chat_id", "user_id", "enabled", "has_topics_enabled", "allows_users_to_create_topics"),
            *("activated_at", "updated_at"),
        ]
    ),
    "telegram_dm_topic_bindings": frozenset(
        [
            *("chat_id", "thread_id", "user_id", "session_key", "session_id", "managed_mode"),
            *("linked_at", "updated_at"),
        ]
    ),
}
"""The columns of the tables that `store.chats.telegram_topics` creates when topics are enabled.

A store in which topics were never enabled does not have these tables.
"""
HAS_TOPICS = "SELECT 1 FROM state_meta WHERE key = 'telegram_dm_topic_columns'"
LATER_TABLES = ("job_runs",)
"""Tables that were added after the first release, and that no statement on conversations reads. A store without them
can be read. They are added when it is opened for writing."""
CONSTRAINTS = ("FOREIGN", "PRIMARY", "UNIQUE", "CHECK", "CONSTRAINT")
"""The first words of lines in a table definition that declare no column."""


class Declared(NamedTuple):
    columns: dict[str, frozenset[str]]
    """The columns of each table."""
    rules: dict[str, str]
    """The kind of each index, view and trigger, by name."""


class Missing(NamedTuple):
    tables: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """The missing columns, as pairs (table, column)."""
    rules: tuple[str, ...] = ()
    """The names of the missing indexes, views and triggers."""

    @property
    def unreadable(self) -> list[str]:
        """The missing tables and columns as phrases for an error message, such as `the table messages`.

        Only parts without which statements of the store fail are included.
        """
        return [f"the table {table}" for table in self.tables if table not in LATER_TABLES] + [
            f"the column {table}.{column}" for table, column in self.columns
        ]

    @property
    def names(self) -> list[str]:
        rules = read_declared().rules
        later = [f"the table {table}" for table in self.tables if table in LATER_TABLES]
        return self.unreadable + later + [f"the {rules[name]} {name}" for name in self.rules]


def schema_sql() -> str:
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


@cache
def read_declared() -> Declared:
    """Parse `schema.sql`, which declares one column per line. Return the names of its tables, columns,
    indexes and triggers.
    """
    columns: dict[str, set[str]] = {}
    rules: dict[str, str] = {}
    table: set[str] | None = None
    for line in schema_sql().splitlines():
        words = line.split()
        if line.startswith("CREATE "):
            kind = words[2 if words[1] == "UNIQUE" else 1].lower()
            name, at = _name_in(words)
            if kind != "table":
                rules[name] = kind
                continue
            table = columns[name] = set()
            if at < len(words):  # the whole table is on one line
                table.add(words[at].lstrip("("))
                table = None
        elif line.startswith(")"):
            table = None
        elif table is not None and words and words[0] not in CONSTRAINTS and not words[0].startswith("--"):
            table.add(words[0])
    return Declared({name: frozenset(found) for name, found in columns.items()}, rules)


def _name_in(words: list[str]) -> tuple[str, int]:
    """Find the name of the new object in `words`, the words of the first line of a CREATE statement.

    Return the name, and the position in `words` at which the columns begin.
    """
    at = words.index("EXISTS") + 1
    return words[at], at + (2 if words[at + 1 :] == ["("] else 1)


def find_schema_gaps(reader: SqliteReader) -> Missing:
    """Return the parts of `schema.sql` that a store lacks. The search index is checked elsewhere."""
    columns, rules = read_declared()
    there = {(kind, name) for kind, name in reader.rows(OBJECTS)}
    have: dict[str, set[str]] = {}
    for table, column in reader.rows(COLUMNS):
        have.setdefault(table, set()).add(column)
    if "key" in have.get("state_meta", ()) and reader.value(HAS_TOPICS):
        columns = columns | TOPIC_COLUMNS
    return Missing(
        tuple(name for name in columns if ("table", name) not in there),
        tuple(
            (name, column)
            for name, expected in columns.items()
            if ("table", name) in there
            for column in sorted(expected - have.get(name, set()))
        ),
        tuple(name for name, kind in rules.items() if (kind, name) not in there),
    )
