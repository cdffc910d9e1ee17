"""Tests that access SQLite directly are detected. They belong in the folders for SQLite-only tests."""

from __future__ import annotations

import pytest

from tests.sqlite_only import REACHES_SQLITE


@pytest.mark.parametrize(
    "line",
    [
        "db.raw().execute(sql)",
        "db._conn.execute(sql)",
        "db._engine._connections",
        "with sqlite3.connect(path) as other:",
        "import apsw",
        "    from apsw import Connection",
        "import sys; import apsw",
        "from hermes.store.sqlite import opener",
        "import hermes.store.sqlite.engine",
        "from hermes.store import sqlite",
        "from tests.store.sqlite.reference_databases import build",
    ],
)
def test_access_to_sqlite_is_recognised(line: str) -> None:
    assert REACHES_SQLITE.search(f"import os\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "import apsw.unicode",
        "assert isinstance(refused.value, sqlite3.OperationalError)",
        "output.raw()",
        'HEAVY = ("hermes.store.sqlite.search.index",)',
        "with db._engine.read() as reader:",
        "from tests.sqlite_only import is_sqlite_only",
    ],
)
def test_other_code_is_allowed(line: str) -> None:
    assert not REACHES_SQLITE.search(f"import os\n{line}\n")
