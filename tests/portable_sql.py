"""Finds SQL that only SQLite understands. The words of a statement are checked; the statement is not run."""

from __future__ import annotations

import re

TRANSACTION_CONTROL = "BEGIN|START TRANSACTION|SAVEPOINT|RELEASE|COMMIT|ROLLBACK"
SQL = re.compile(
    r"\b(SELECT|INSERT|REPLACE INTO|DESC|LIMIT|UPDATE \w+ SET|DELETE FROM|WHERE|ORDER BY|GROUP BY|CREATE TABLE|EXISTS"
    r"|(AND|OR|CASE WHEN) [(\w.,? ]+ (=|<|>|<>|IS|IN|LIKE))\b"
    rf"|\A\s*({TRANSACTION_CONTROL})\b"
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
    "transaction control, which is the engine's": rf"(?:\A|;)\s*(?:{TRANSACTION_CONTROL})\b",
    "a trigger": r"\b(?:CREATE|DROP) TRIGGER\b",
    "an operator that only SQLite has": r"\bGLOB\b|\bMATCH\b|\bREGEXP\b|==|(?<=[\s(])\+\w+\.\w+",
    "the order of types": r"<=?\s*''|(?<!<)>=?\s*''|(?<![\w'])x'",
    "IS for equality": r"\bIS (?:NOT )?(?!NOT\b|NULL\b|DISTINCT FROM\b|TRUE\b|FALSE\b)\S",
    "the greater or lesser of two values": r"\b(?:max|min)\([^()]*,",
    "a limit below zero": r"\bLIMIT -",
    "a text in double quotes": '"',
    "a number as a condition": (
        r"\b(?:WHERE|AND|OR|NOT|WHEN)\s+(?!NOT\b|EXISTS\b|NULL\b|TRUE\b|FALSE\b|SET\b)[a-z_.]+\s*"
        r"(?=\bAND\b|\bOR\b|\bTHEN\b|\bORDER\b|\bGROUP\b|\bLIMIT\b|\)|$)"
        r"|\bWHEN \w+ % \d+ THEN\b"
    ),
    "a condition that may be a number": r"\bcoalesce\([^()]*[<=>][^()]*, [01]\)",
    "a type that engines know by other names": r"\bAS (?:BLOB|REAL|INT|INTEGER|NUMERIC)\b",
    "NULL as the least value": rf"\b(?:{NULLABLE}) DESC(?! NULLS)|ORDER BY (?:\w+\.)?(?:{NULLABLE})(?:,|$)",
}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in REFUSED.items()}


def find_refused(sql: str) -> list[str]:
    """Return the rules that this statement breaks."""
    plain = re.sub(r"\bBETWEEN \S+ AND \S+", "BETWEEN", sql)
    return [name for name, pattern in PATTERNS.items() if pattern.search(plain)]
