"""SQL outside `store/sqlite` is understood by every engine: statements are read word by word, none is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes

SOURCES = Path(hermes.__file__).parent
ENGINE = SOURCES / "store" / "sqlite"
SQL = re.compile(
    r"\b(SELECT|INSERT|REPLACE INTO|DESC|LIMIT|UPDATE \w+ SET|DELETE FROM|WHERE|ORDER BY|GROUP BY|CREATE TABLE|EXISTS"
    r"|(AND|OR|CASE WHEN) [(\w.,? ]+ (=|<|>|<>|IS|IN|LIKE))\b"
)
FUNCTIONS = (
    "changes char date datetime format glob group_concat hex ifnull iif instr julianday last_insert_rowid like likely"
    " printf quote random randomblob strftime substr substring time total total_changes typeof unhex unicode unixepoch"
    " unlikely zeroblob"
).split()
NULLABLE = "conversation_active|ended_at|last_active|last_person_at|pinned_at"

REFUSED = {
    "a function that only SQLite has": rf"\b(?:{'|'.join(FUNCTIONS)}|json\w*)\s*\(",
    "a name that only SQLite has": r"\b_?rowid_?\b|\bsqlite_\w+|\bPRAGMA\b|\bNOCASE\b|\bAUTOINCREMENT\b",
    "a clause that only SQLite has": r"\b(?:INSERT|UPDATE) OR\b|\bREPLACE INTO\b|\bINDEXED\b",
    "an operator that only SQLite has": r"\bGLOB\b|\bMATCH\b|\bREGEXP\b|==|(?<=[\s(])\+\w+\.\w+",
    "the order of types": r"<=?\s*''|(?<!<)>=?\s*''|\bx'",
    "IS for equality": r"\bIS (?:NOT )?(?!NOT\b|NULL\b|DISTINCT FROM\b|TRUE\b|FALSE\b)\S",
    "the greater or lesser of two values": r"\b(?:max|min)\([^()]*,",
    "a limit below zero": r"\bLIMIT -",
    "a text in double quotes": '"',
    "a number as a condition": (
        r"\b(?:WHERE|AND|OR|NOT|WHEN)\s+(?!NOT\b|EXISTS\b|NULL\b|TRUE\b|FALSE\b|SET\b)[a-z_.]+\s*"
        r"(?=\bAND\b|\bOR\b|\bTHEN\b|\bORDER\b|\bGROUP\b|\bLIMIT\b|\)|$)"
    ),
    "a condition that may be a number": r"\bcoalesce\([^()]*[<=>][^()]*, [01]\)",
    "a type that engines know by other names": r"\bAS (?:BLOB|REAL|INT|INTEGER|NUMERIC)\b",
    "NULL as the least value": rf"\b(?:{NULLABLE}) DESC(?! NULLS)|ORDER BY (?:\w+\.)?(?:{NULLABLE})(?:,|$)",
}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in REFUSED.items()}


def statements(file: Path) -> Iterator[tuple[int, str]]:
    """Lines and texts of what looks like SQL, or a part of it; docstrings are prose."""
    tree = ast.parse(file.read_bytes())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in prose:
            continue
        if isinstance(node.value, str) and SQL.search(node.value):
            yield node.lineno, node.value


def refused(sql: str) -> list[str]:
    plain = re.sub(r"\bBETWEEN \S+ AND \S+", "BETWEEN", sql)
    return [name for name, pattern in PATTERNS.items() if pattern.search(plain)]


def test_statements_of_managers_are_for_every_engine() -> None:
    found, seen = [], 0
    for file in sorted(SOURCES.rglob("*.py")):
        if file.is_relative_to(ENGINE):
            continue
        place = str(file.relative_to(SOURCES))
        for line, sql in statements(file):
            seen += 1
            found += [f"{place}:{line}: {name}: {sql}" for name in refused(sql)]
    assert found == []
    assert seen > 400, "the statements are no longer recognised"


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
    ],
)
def test_what_only_sqlite_takes_is_refused(sql: str) -> None:
    assert SQL.search(sql)
    assert refused(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(id), min(id) FROM messages WHERE id BETWEEN ? AND last_id AND active = 1",
        "SELECT 1 FROM sessions WHERE owner <> '' AND title IS NOT NULL",
        "SELECT 1 FROM sessions WHERE a IS NOT DISTINCT FROM b",
        "SELECT 1 FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)",
        "SELECT id FROM sessions ORDER BY last_active DESC NULLS LAST, id",
        "INSERT INTO tags (tag) VALUES (?) ON CONFLICT DO NOTHING",
        "SELECT replace(?, title, '') FROM sessions WHERE coalesce(a = ?, TRUE)",
    ],
)
def test_what_every_engine_takes_is_allowed(sql: str) -> None:
    assert refused(sql) == []
