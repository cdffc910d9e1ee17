"""Identifiers in statements: the one place where a name becomes part of SQL, because SQL binds only values."""

from __future__ import annotations


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def fill_names(statement: str, **names: str) -> str:
    """The statement with each `{key}` as a quoted identifier."""
    for key, name in names.items():
        statement = statement.replace("{" + key + "}", quote_name(name))
    return statement
