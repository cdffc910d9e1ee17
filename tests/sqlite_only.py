"""Finds the tests that only apply to the SQLite engine. CONTRIBUTING.md describes where each kind of test
belongs."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
FOLDER = "sqlite"
"""The name of the folders with SQLite-only tests, in any area."""
PLACES = ("encrypted", "previous_version", "survival", "test_encryption.py", "test_reference_databases.py")
"""Folders and modules directly below `tests/` that contain only SQLite-only tests."""

REACHES_SQLITE = re.compile(
    r"(?<!\boutput)[.]raw\(\)"  # `output.raw()` is the output of a command
    r"|[.](?:_conn|_execute_write)\b"
    r"|\b_?engine[.]_(?!_)"
    r"|\bsqlite3[.]connect\b"
    r"|(?:^|;)[ \t]*(?:import|from) apsw\b(?![.]unicode)"
    r"|(?:^|;)[ \t]*(?:import|from) (?:hermes|tests)[.](?:\w+[.])*sqlite\b"
    r"|(?:^|;)[ \t]*from (?:hermes|tests)[.](?:\w+[.])*\w+ import (?:.*\W)?sqlite\b",
    re.MULTILINE,
)
"""Patterns of code that accesses SQLite directly: its connections, files and modules, and the helpers of its
tests.

Not included are the exceptions of `sqlite3`, which are part of the documented interface, and `apsw.unicode`,
which does not access a store.
"""


def is_sqlite_only(file: Path) -> bool:
    if not file.is_relative_to(TESTS):
        return False
    parts = file.relative_to(TESTS).parts
    return FOLDER in parts[:-1] or parts[0] in PLACES
