"""The documented import path: `from hermes_state import SessionDB`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.db.session_db import SCHEMA_VERSION, SessionDB, format_session_db_unavailable, get_last_init_error
from hermes.db.session_db import _set_last_init_error as _set_last_init_error

DEFAULT_DB_PATH: Path
SCHEMA_SQL: str

__all__ = [
    "DEFAULT_DB_PATH",
    "SCHEMA_SQL",
    "SCHEMA_VERSION",
    "SessionDB",
    "format_session_db_unavailable",
    "get_last_init_error",
]


def __getattr__(name: str) -> Any:
    """Return `DEFAULT_DB_PATH` for the current `HERMES_HOME`, and read `SCHEMA_SQL` only when it is used."""
    if name == "DEFAULT_DB_PATH":
        from hermes.home import get_default_db_path

        return get_default_db_path()
    if name == "SCHEMA_SQL":
        from hermes.store.sqlite.schema import schema_sql

        return schema_sql()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
