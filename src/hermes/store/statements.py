"""Builders for SQL with column lists. Statements are built once, when their module is imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import LiteralString


def join_columns(names: Iterable[LiteralString]) -> LiteralString:
    return ", ".join(names)


def make_insert(table: LiteralString, names: Sequence[LiteralString]) -> LiteralString:
    """Return `INSERT INTO table (a, b) VALUES (?, ?)`."""
    marks = join_columns(["?"] * len(names))
    return "".join(("INSERT INTO ", table, " (", join_columns(names), ") VALUES (", marks, ")"))


def make_update(
    table: LiteralString, names: Iterable[LiteralString], clear: Iterable[LiteralString] = ()
) -> LiteralString:
    """Return `UPDATE table SET a = ?, b = ?, c = NULL WHERE id = ?`, with `a` and `b` from `names` and `c`
    from `clear`."""
    changes = [*(name + " = ?" for name in names), *(name + " = NULL" for name in clear)]
    return "".join(("UPDATE ", table, " SET ", join_columns(changes), " WHERE id = ?"))


def make_completion(table: LiteralString, names: Iterable[LiteralString]) -> LiteralString:
    """Return `UPDATE table SET a = coalesce(?, a) WHERE id = ?`, with a term for each column name. If a
    parameter is NULL, the column keeps its stored value."""
    changes = ["".join((name, " = coalesce(?, ", name, ")")) for name in names]
    return "".join(("UPDATE ", table, " SET ", join_columns(changes), " WHERE id = ?"))
