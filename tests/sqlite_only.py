"""Which tests are for the SQLite engine alone; CONTRIBUTING.md says what each place holds."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
FOLDER = "sqlite"
"""The name of a folder of SQLite-only tests, in whatever area it is."""
PLACES = ("encrypted", "previous_version", "survival", "test_encryption.py", "test_reference_databases.py")
"""Folders and modules directly below `tests/`."""

# `output.raw()` is the output of a command.
PLAIN_SQL = re.compile(r"(?<!\boutput)[.]raw\(\)|[.](?:_conn|_execute_write)\b")
"""The ways to SQLite's own connection."""


def is_sqlite_only(file: Path) -> bool:
    if not file.is_relative_to(TESTS):
        return False
    parts = file.relative_to(TESTS).parts
    return FOLDER in parts[:-1] or parts[0] in PLACES
