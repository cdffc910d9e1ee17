"""SQL outside `store/sqlite` works with every engine. The test checks the words of each statement and does
not run it.

The same rule applies to tests outside the folders for SQLite-only tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes
from tests.portable_sql import SQL, find_refused
from tests.sqlite_only import FOLDER, PLACES, REACHES_SQLITE, TESTS, is_sqlite_only

SOURCES = Path(hermes.__file__).parent
ENGINE = SOURCES / "store" / "sqlite"


def statements(file: Path) -> Iterator[tuple[int, str]]:
    """Return (line, text) of each string in `file` that looks like SQL or a part of SQL. Docstrings are
    ignored."""
    tree = ast.parse(file.read_bytes())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in prose:
            continue
        if isinstance(node.value, str) and SQL.search(node.value):
            yield node.lineno, node.value


def test_statements_of_managers_are_for_every_engine() -> None:
    found, seen = [], 0
    for file in sorted(SOURCES.rglob("*.py")):
        if file.is_relative_to(ENGINE):
            continue
        place = str(file.relative_to(SOURCES))
        for line, sql in statements(file):
            seen += 1
            found += [f"{place}:{line}: {name}: {sql}" for name in find_refused(sql)]
    assert found == []
    assert seen > 400, "the statements are no longer recognised"


def test_only_sqlite_only_tests_reach_sqlite() -> None:
    using = [
        file
        for file in sorted(TESTS.rglob("*.py"))
        if REACHES_SQLITE.search(file.read_text(encoding="utf-8"))
    ]
    misplaced = [str(file.relative_to(TESTS)) for file in using if not is_sqlite_only(file)]
    assert misplaced == [], "use tests/stored_rows.py, or move the test to a folder `sqlite`"
    assert len(using) > 10, "the ways to SQLite are no longer recognised"


def test_sqlite_only_tests_are_marked_and_their_places_described(request: pytest.FixtureRequest) -> None:
    marked = {item.path for item in request.session.items if item.get_closest_marker("sqlite")}
    assert marked == {item.path for item in request.session.items if is_sqlite_only(item.path)}
    described = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for place in (FOLDER, *PLACES):
        assert (TESTS / place).exists() or place == FOLDER
        assert f"{place}`" in described or f"{place}/`" in described


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT rowid FROM messages",
        "INSERT OR IGNORE INTO tags VALUES (?)",
        "REPLACE INTO tags VALUES (?)",
        "SELECT 1 FROM sessions WHERE last_active < ''",
        "SELECT 1 FROM sessions WHERE last_active >= ''",
        "SELECT typeof(id) FROM sessions",
        "SELECT substr(id, -3) FROM sessions",
        "SELECT 1 FROM sessions WHERE archived",
        "SELECT 1 FROM sessions WHERE NOT s.archived AND id = ?",
        "SELECT max(a, b) FROM sessions",
        "SELECT id FROM sessions LIMIT -1",
        "SELECT id FROM sessions WHERE owner IS ?",
        "SELECT id FROM sessions WHERE owner IS NOT root_id",
        'SELECT id FROM sessions WHERE owner = "me"',
        "SELECT json_extract(model_config, '$.a') FROM sessions",
        "SELECT id FROM sessions ORDER BY last_active DESC",
        "SELECT id FROM sessions WHERE title = ? COLLATE NOCASE",
        "UPDATE sessions SET a = ? WHERE NOT coalesce(b >= ?, 0)",
        "SELECT CAST(content AS BLOB) FROM messages",
        "SELECT 1 FROM messages m WHERE +m.session_id = ?",
        "SELECT CASE WHEN id % 2 THEN 'odd' END FROM messages",
        "BEGIN IMMEDIATE",
        "SAVEPOINT follower",
        "RELEASE follower",
        "COMMIT",
        "ROLLBACK TO follower",
        "DELETE FROM tags; COMMIT",
        "CREATE TRIGGER t BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'no'); END",
    ],
)
def test_sql_that_only_sqlite_accepts_is_refused(sql: str) -> None:
    assert SQL.search(sql)
    assert find_refused(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(id), min(id) FROM messages WHERE id BETWEEN ? AND last_id AND active = 1",
        "SELECT 1 FROM sessions WHERE owner <> '' AND title IS NOT NULL",
        "SELECT 1 FROM sessions WHERE a IS NOT DISTINCT FROM b",
        "SELECT 1 FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)",
        "SELECT id FROM sessions ORDER BY last_active DESC NULLS LAST, id",
        "INSERT INTO tags (tag) VALUES (?) ON CONFLICT DO NOTHING",
        "UPDATE sessions SET title = 'begin' WHERE title = 'Commit; then roll back'",
        "SELECT replace(?, title, '') FROM sessions WHERE coalesce(a = ?, TRUE)",
    ],
)
def test_sql_that_every_engine_accepts_is_allowed(sql: str) -> None:
    assert find_refused(sql) == []
