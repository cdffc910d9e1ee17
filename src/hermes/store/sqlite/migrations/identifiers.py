"""Identifiers in statements. SQL binds only values, so this is the one place where names are inserted into SQL."""

from __future__ import annotations


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def fill_names(statement: str, **names: str) -> str:
    """Return `statement` with each placeholder `{key}` replaced by the quoted identifier that is passed as the
    keyword argument `key`.
    """
    for key, name in names.items():
        statement = statement.replace("{" + key + "}", quote_name(name))
    return statement
