"""Exact message search: the index narrows, the text decides, and rows the index has not reached are read directly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from hermes.store.content import decode
from hermes.store.matching import (
    And,
    Literal,
    MessageText,
    Node,
    Not,
    Or,
    Part,
    Phrase,
    Word,
    matches,
    needs_check,
)
from hermes.store.sqlite import index
from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.filters import ALLOWED, values_of
from hermes.store.values import Hit, MessageFilter, SearchAnswer

TAIL_ROWS = 500
"""So many rows that are not indexed yet are always looked at one by one; more of them only while time allows."""
TAIL_SECONDS = 2.0

# Each statement is put together from these parts once, at import; values are always bound.
FOUND = """SELECT m.id, m.session_id, m.role, m.content, m.content_kind, m.tool_name, m.tool_calls, m.timestamp,
    s.source, s.model, s.started_at"""
# CROSS JOIN keeps the order of the loops: rows come as the outermost table gives them, and reading stops at the limit.
OF_INDEX = """FROM messages_fts_words f CROSS JOIN messages m ON m.id = f.rowid
    CROSS JOIN sessions s ON s.id = m.session_id"""
OF_ROWS = "FROM messages m CROSS JOIN sessions s ON s.id = m.session_id"
OF_CHANGED = """FROM changed_messages c CROSS JOIN messages m ON m.id = c.message_id
    CROSS JOIN sessions s ON s.id = m.session_id"""
INDEXED = " ".join((FOUND, OF_INDEX, "WHERE f.messages_fts_words MATCH ?1", ALLOWED, "ORDER BY f.rank"))
NEWEST_FIRST = " ".join((FOUND, OF_ROWS, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
ABOVE = " ".join((FOUND, OF_ROWS, "WHERE m.id > ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED = " ".join((FOUND, OF_CHANGED, "WHERE m.id <= ?1", ALLOWED, "ORDER BY m.id DESC"))
CHANGED_IDS = "SELECT message_id FROM changed_messages"
NO_TERM = "("
"""What no message holds: a term is made of letters and digits."""


def search(reader: SqliteReader, tree: Node, wanted: MessageFilter, limit: int, offset: int) -> SearchAnswer:
    """The matching messages of this snapshot, best first; what is not indexed yet comes before, newest first."""
    allowed = values_of(wanted)
    mark, above, changed = index.behind(reader, TAIL_ROWS + 1)
    tail, unseen = _tail(reader, tree, allowed, mark, above, changed)
    end = offset + limit if limit >= 0 else None
    found = tail[:end]
    skip = {row[0] for row in reader.rows(CHANGED_IDS)} if changed else frozenset[int]()
    for hit in _indexed(reader, tree, allowed, mark):
        if end is not None and len(found) >= end:
            break
        if hit.id not in skip:
            found.append(hit)
    total = int(reader.value(index.HIGHEST) or 0) if unseen else 0
    return SearchAnswer(found[offset:], unseen, total)


def _indexed(reader: SqliteReader, tree: Node, allowed: tuple[Any, ...], mark: int) -> Iterator[Hit]:
    expression = fts5(tree)
    if expression is None:  # nothing the index could narrow by: punctuation alone, or only exclusions
        rows, check = reader.each(NEWEST_FIRST, mark, *allowed), True
    else:
        rows, check = reader.each(INDEXED, expression, *allowed), needs_check(tree)
    for row in rows:
        if row[0] <= mark and (not check or matches(tree, _text(row))):
            yield _hit(row)


def _tail(
    reader: SqliteReader, tree: Node, allowed: tuple[Any, ...], mark: int, above: int, changed: bool
) -> tuple[list[Hit], int]:
    """(matching rows the index does not know, how many of them there was no time to look at)."""
    found: list[Hit] = []
    seen, until = 0, time.monotonic() + TAIL_SECONDS
    if above:
        for row in reader.each(ABOVE, mark, *allowed):
            seen += 1
            if seen > TAIL_ROWS and time.monotonic() > until:
                return found, int(reader.value(index.HIGHEST)) - mark - seen
            if matches(tree, _text(row)):
                found.append(_hit(row))
    if changed:
        found += [_hit(row) for row in reader.each(CHANGED, mark, *allowed) if matches(tree, _text(row))]
    return found, 0


def _text(row: Any) -> MessageText:
    return MessageText.of(*index.fields_of(row[3], row[4], row[5], row[6]))


def _hit(row: Any) -> Hit:
    message_id, session_id, role, content, kind, tool_name, tool_calls, at, source, model, started = row
    return Hit(
        message_id, session_id, role, decode(content, kind), tool_name, tool_calls, at, source, model, started
    )


def fts5(tree: Node) -> str | None:
    """The tree as an FTS5 expression that finds at least everything the tree matches; None if it finds all.

    Exclusions are passed on only where the index decides them exactly.
    """
    match tree:
        case Word() | Phrase():
            if not tree.terms:
                return None
            return _quoted(" ".join(tree.terms)) + (" *" if tree.prefix_last else "")
        case Part(terms=terms):
            return None if terms is None else "(" + " OR ".join(map(_quoted, terms or (NO_TERM,))) + ")"
        case Literal():
            return None
        case And(of=parts):
            kept = [
                found for part in parts if not isinstance(part, Not) and (found := fts5(part)) is not None
            ]
            if not kept:
                return None
            joined = "(" + " AND ".join(kept) + ")"
            exact = [part for part in parts if isinstance(part, Not) and not needs_check(part)]
            barred = [found for part in exact if (found := fts5(part.of)) is not None]
            # One NOT for all of them: FTS5 allows no deep nesting.
            return "(" + joined + " NOT (" + " OR ".join(barred) + "))" if barred else joined
        case Or(of=parts):
            every = [fts5(part) for part in parts]
            return None if None in every else "(" + " OR ".join(found for found in every if found) + ")"
        case _:
            return None


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
