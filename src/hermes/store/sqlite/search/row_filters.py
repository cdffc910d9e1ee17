"""Which rows a search may find, as part of its SQL. `?1` is the caller's; what follows is bound by `values_of`.

What SQL cannot say, comparing in any script and telling whether a tool failed, two functions say that every connection
has. They are called only if the filter asks, and for a title once for each session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import apsw

from hermes.store.content import to_json

if TYPE_CHECKING:
    from hermes.store.values import MessageFilter

# Of a message `m` and its session `s`. Title, pin and archive are the conversation's: its first session has them.
# A session that another program has just made has no root yet: it is its own.
OF_MESSAGE = """AND m.active = 1
    AND (?4 IS NULL OR m.role IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR m.timestamp >= ?5) AND (?6 IS NULL OR m.timestamp < ?6)
    AND (?7 IS NULL OR lower(m.tool_name) = lower(?7) OR EXISTS (SELECT 1 FROM json_each(
        CASE WHEN json_valid(m.tool_calls) THEN m.tool_calls ELSE '[]' END) c WHERE lower(CASE c.type WHEN 'object'
            THEN coalesce(json_extract(c.value, '$.function.name'), json_extract(c.value, '$.name')) END) = lower(?7)))
    AND (?12 = 0 OR (m.role = 'tool' AND hermes_failed(m.content)))
    AND (?13 = 0 OR m.role = 'tool' OR (m.tool_calls IS NOT NULL AND m.tool_calls NOT IN ('', '[]', 'null')))"""
OF_SESSION = """AND s.trashed_at IS NULL
    AND (?2 IS NULL OR s.source IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR s.source NOT IN (SELECT value FROM json_each(?3)))
    AND (?8 IS NULL OR coalesce(s.root_id, s.id) IN (SELECT coalesce(r.root_id, r.id) FROM sessions r
        WHERE r.title IS NOT NULL AND instr(hermes_folded(r.title), hermes_folded(?8)) > 0))
    AND (?9 IS NULL OR instr(lower(s.model), lower(?9)) > 0)
    AND (?10 IS NULL OR s.workspace = ?10 OR substr(s.workspace, -length(?10) - 1) IN ('/' || ?10, '\\' || ?10))
    AND (?11 IS NULL OR s.kind IN (SELECT value FROM json_each(?11)))
    AND (?14 = 0 OR EXISTS (SELECT 1 FROM sessions p
        WHERE p.id = coalesce(s.root_id, s.id) AND p.pinned_at IS NOT NULL))
    AND (?15 = 0 OR NOT EXISTS (SELECT 1 FROM sessions a
        WHERE a.id = coalesce(s.root_id, s.id) AND a.archived <> 0))
    AND (?16 IS NULL OR coalesce(s.root_id, s.id) NOT IN (SELECT value FROM json_each(?16)))"""
ALLOWED = " ".join((OF_MESSAGE, OF_SESSION))

# How tools say that something went wrong, in lower case: fields of a JSON answer, and the beginnings of lines. Each is
# first looked for by its letters, which takes a hundredth of the time that a pattern of them all would.
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
"""Tools say it at the beginning of what they say, or at the end."""


def add_functions(connection: apsw.Connection) -> None:
    """What `ALLOWED` calls."""
    connection.create_scalar_function("hermes_folded", _folded, 1, deterministic=True)
    connection.create_scalar_function("hermes_failed", _failed, 1, deterministic=True)


def _folded(*value: Any) -> str | None:
    from hermes.terms import fold  # not when a store is opened

    return fold(value[0]) if isinstance(value[0], str) else None


def _failed(*value: Any) -> bool:
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


@cache  # not when a store is opened
def _patterns() -> tuple[list[tuple[str, re.Pattern[str]]], re.Pattern[str], re.Pattern[str]]:
    signs = [(letters, re.compile(re.escape(letters) + more)) for letters, more in _SIGNS]
    return signs, re.compile(_BEFORE_WORD), re.compile(_AFTER_WORD)


def _places(text: str, letters: str) -> Iterator[int]:
    at = text.find(letters)
    while at >= 0:
        yield at
        at = text.find(letters, at + 1)


def is_of_messages(wanted: MessageFilter) -> bool:
    """Whether the filter tells messages of one session apart."""
    return bool(
        wanted.roles
        or wanted.tool
        or wanted.errors_only
        or wanted.calls_only
        or wanted.after is not None
        or wanted.before is not None
    )


def values_of(wanted: MessageFilter) -> tuple[Any, ...]:
    """The values of ?2 to ?16."""
    return (
        None if wanted.sources is None else to_json(wanted.sources),
        to_json(wanted.exclude_sources) if wanted.exclude_sources else None,
        to_json(wanted.roles) if wanted.roles else None,
        wanted.after,
        wanted.before,
        wanted.tool,
        wanted.title,
        wanted.model,
        wanted.workspace,
        None if wanted.kinds is None else to_json(wanted.kinds),
        int(wanted.errors_only),
        int(wanted.calls_only),
        int(wanted.pinned_only),
        int(wanted.hide_archived),
        to_json(wanted.but_conversations) if wanted.but_conversations else None,
    )
