"""A conversation that was found, as a row: what it is, the message that speaks for it, and why it was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.reasoning import answer_in
from hermes.recall.ranking.matched_terms import held
from hermes.recall.ranking.question_words import Question
from hermes.recall.snippets.snippets import snippet
from hermes.store.content import decode
from hermes.store.engine import Reader
from hermes.store.matching import Leaf, Or, word
from hermes.store.sessions.lineage import tip
from hermes.store.values import MessageFilter, Order, RankedBlock
from hermes.terms import is_spaceless
from hermes.text import text_of, text_of_tool_calls

CONVERSATION = """SELECT title, source, kind, started_at, coalesce(conversation_active, last_active, started_at)
    FROM sessions WHERE id = ?"""
TITLE = "SELECT title FROM sessions WHERE id = ?"
MESSAGE = """SELECT id, session_id, role, timestamp, content, content_kind, tool_name, tool_calls FROM messages
    WHERE id = ?"""
RANGE = """SELECT id, session_id, role, timestamp, content, content_kind, tool_name, tool_calls FROM messages
    WHERE session_id = ? AND id BETWEEN ? AND ? AND active = 1 ORDER BY id"""


class Found(NamedTuple):
    """A conversation, and what speaks for it."""

    root_id: str
    score: float
    question: Question
    message_id: int | None = None
    block: RankedBlock | None = None
    day: str | None = None
    """The day that was named, if something was said on it."""
    order: Order = "relevance"
    wanted: MessageFilter = MessageFilter()
    near: bool = False
    """It holds some of the words, but not what was asked for strictly."""


def shown(reader: Reader, one: Found) -> dict[str, Any] | None:
    message: Sequence[Any] | None = None
    if one.message_id is not None:
        message = reader.row(MESSAGE, one.message_id)
    if message is None and one.block is not None:
        message = _best_of(reader, one.block, one.question.terms, one.wanted)
    if message is None:
        return None
    message_id, session_id, role, _at, *said = message
    text = _text(role, *said)
    matched = held(text, one.question.terms)
    if not matched:  # what was found may stand in the reasoning before the answer
        text = _text(None, *said)
        matched = held(text, one.question.terms)
    marks = one.question.tree if one.question.parts and one.question.tree else _marks(matched)
    return row_of(reader, one, (message_id, session_id, role), snippet(text, marks), why(matched, one))


def row_of(
    reader: Reader, one: Found, message: tuple[int, str, str], excerpt: str, reason: str
) -> dict[str, Any] | None:
    """A conversation with the id, session and role of the message that is shown of it."""
    row = reader.row(CONVERSATION, one.root_id)
    if row is None:
        return None
    message_id, session_id, role = message
    title, source, session_kind, started_at, last_active = row
    live = tip(reader, one.root_id)
    return {
        "session_id": session_id,
        "conversation_id": one.root_id,
        "tip_id": live,
        "score": float(f"{one.score:.4g}"),
        "message_id": message_id,
        "role": role,
        "snippet": excerpt,
        "why": reason,
        "title": reader.value(TITLE, live) or title,
        "source": source,
        "kind": session_kind,
        "started_at": started_at,
        "last_active": last_active,
        "order": one.order,
    }


def _best_of(
    reader: Reader, block: RankedBlock, terms: Sequence[str], wanted: MessageFilter
) -> Sequence[Any] | None:
    """The message of a block that has most of the words, also in another form."""
    best, most = None, -1.0
    for row in reader.rows(RANGE, block.session_id, block.first_id, block.last_id):
        _id, _session, role, at, *said = row
        if wanted.roles and role not in wanted.roles:
            continue
        if (wanted.after is not None and at < wanted.after) or (
            wanted.before is not None and at >= wanted.before
        ):
            continue
        # Of two that have as much, what the person said.
        count = len(held(_text(role, *said), terms)) + (0.5 if role == "user" else 0.0)
        if count > most:
            best, most = row, count
    return best


def _text(
    role: str | None, content: Any, kind: str | None, tool_name: str | None, tool_calls: str | None
) -> str:
    """What a message says, without the reasoning of an answer; if it only calls tools, the calls."""
    said = text_of(answer_in(decode(content, kind), role))
    if said.strip() or not tool_calls:
        return said
    return f"{tool_name or ''} {text_of_tool_calls(tool_calls)}".strip()


def _marks(matched: Sequence[str]) -> Or:
    leaves: list[Leaf] = [leaf for term in matched if (leaf := word(term)) is not None]
    return Or(tuple(leaves))


def why(matched: Sequence[str], one: Found) -> str:
    told = ["nothing matches exactly"] if one.near else []
    if one.question.parts:
        told.append(f"no word matches; found as part of a word: {', '.join(one.question.parts)}")
    if matched:
        told.append(f"matches {', '.join(_runs(matched))}")
    if one.day is not None:
        told.append(f"said on {one.day}")
    if one.order == "newest":
        told.append("newest first, for every word is very common" if one.question.terms else "newest first")
    if not matched and one.day is None and one.order == "relevance" and not one.question.parts:
        told.append("matches what stands around it" if one.score else "matches what was typed")
    return "; ".join(told)


def _runs(matched: Sequence[str]) -> list[str]:
    """Pairs of a script without spaces, put together again to what was typed."""
    runs: list[str] = []
    for term in matched:
        if (
            runs
            and is_spaceless(term)
            and is_spaceless(runs[-1])
            and runs[-1][-1] == term[0]
            and len(term) > 1
        ):
            runs[-1] += term[1:]
        else:
            runs.append(term)
    return runs
