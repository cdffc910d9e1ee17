"""Fixtures that access the file of a store as another program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Outside = Callable[..., list[list[Any]]]

# The other program uses only the sqlite3 module of Python and no code of this project.
PROGRAM = """
import json, sqlite3, sys
path, statements = sys.argv[1], json.load(sys.stdin)
connection = sqlite3.connect(path, isolation_level=None, timeout=20)
rows = []
for statement, values in statements:
    rows = connection.execute(statement, values).fetchall()
connection.close()
json.dump(rows, sys.stdout)
"""


@pytest.fixture
def outside() -> Outside:
    """Return a function that runs plain SQL in another process: `outside(path, sql, (sql, values), …)`. It
    returns the rows of the last statement."""

    def run(path: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> list[list[Any]]:
        work = [(one, ()) if isinstance(one, str) else one for one in statements]
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)],
            input=json.dumps(work),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        rows: list[list[Any]] = json.loads(result.stdout)
        return rows

    return run
