"""SQL functions of every connection: `hermes_folded` folds text of any script, `hermes_failed` detects tool failures.

Only some filters call them; see `search.row_filters`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import apsw

# Signs of a failure in the output of a tool, in lower case: fields of a JSON result, and beginnings of lines. The
# literal part is searched first, which takes a hundredth of the time of one pattern for all signs.
_TRUE, _FALSE = r'\\?"\s*:\s*true', r'\\?"\s*:\s*false'
_SOMETHING = r'\\?"\s*:\s*(?!null|false|0\b|\\?"\\?"|\{\s*\}|\[\s*\])\S'
_NOT_ZERO = r'\\?"\s*:\s*-?[1-9]'
_SIGNS = (
    ('"error', _SOMETHING),
    ('"is_error', _TRUE),
    ('"iserror', _TRUE),
    ('"success', _FALSE),
    ('"ok', _FALSE),
    ('"exit_code', _NOT_ZERO),
    ('"exitcode', _NOT_ZERO),
    ('"returncode', _NOT_ZERO),
    ("exit code ", r"-?[1-9]"),
    ("exit status ", r"-?[1-9]"),
    ("traceback (most recent call last)", ""),
    (": command not found", ""),
    (": no such file or directory", ""),
    (": permission denied", ""),
)
_WORDS = ("error", "exception", "failure", "failed", "fatal", "panic")
_BEFORE_WORD, _AFTER_WORD = r"(?:e +)?\W{0,4}[\w.]*", r"\s?[:\[(!]"
_EDGE = 4_000
"""How many characters at each end of a long text are checked. Tools report errors at the beginning or the end."""


def add_functions(connection: apsw.Connection) -> None:
    """Register the functions that `row_filters.ALLOWED` calls."""
    connection.create_scalar_function("hermes_folded", _fold_text, 1, deterministic=True)
    connection.create_scalar_function("hermes_failed", is_failure, 1, deterministic=True)


def _fold_text(*value: Any) -> str | None:
    from hermes.terms import fold  # imported late to keep opening a store fast

    return fold(value[0]) if isinstance(value[0], str) else None


def is_failure(*value: Any) -> bool:
    if not isinstance(value[0], str):
        return False
    text = (
        value[0].lower() if len(value[0]) <= 2 * _EDGE else f"{value[0][:_EDGE]}\n{value[0][-_EDGE:]}".lower()
    )
    signs, before, after = _patterns()
    return any(pattern.match(text, at) for letters, pattern in signs for at in _places(text, letters)) or any(
        after.match(text, at + len(word)) and before.fullmatch(text, text.rfind("\n", 0, at) + 1, at)
        for word in _WORDS
        for at in _places(text, word)
    )


@cache  # compiled late to keep opening a store fast
def _patterns() -> tuple[list[tuple[str, re.Pattern[str]]], re.Pattern[str], re.Pattern[str]]:
    signs = [(letters, re.compile(re.escape(letters) + more)) for letters, more in _SIGNS]
    return signs, re.compile(_BEFORE_WORD), re.compile(_AFTER_WORD)


def _places(text: str, letters: str) -> Iterator[int]:
    at = text.find(letters)
    while at >= 0:
        yield at
        at = text.find(letters, at + 1)
