"""Result rows: a found conversation, its best matching message and the reason why it was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.message_content import describe_tool_calls, read_text
from hermes.recall.ranking.matched_terms import find_matched_terms
from hermes.recall.ranking.question_words import Question
from hermes.recall.snippets.snippets import make_snippet
from hermes.store.content import decode
from hermes.store.engine import Reader
from hermes.store.query_tree import Leaf, Or, make_word
from hermes.store.sessions.lineage import find_tip
from hermes.store.values import MessageFilter, Order, RankedBlock
from hermes.terms import is_spaceless

CONVERSATION = """SELECT title, source, kind, started_at, coalesce(conversation_active, last_active, started_at)
    FROM sessions WHERE id = ?"""
TITLE = "SELECT title FROM sessions WHERE id = ?"
MESSAGE = """SELECT id, session_id, role, timestamp, content, content_kind, tool_name, tool_calls FROM messages
    WHERE id = ?"""
RANGE = """SELECT id, session_id, role, timestamp, content, content_kind, tool_name, tool_calls FROM messages
    WHERE session_id = ? AND id BETWEEN ? AND ? AND active = 1 ORDER BY id"""


class Found(NamedTuple):
    """A found conversation with its score and the message or block that matched."""

    root_id: str
    score: float
    question: Question
    message_id: int | None = None
    block: RankedBlock | None = None
    day: str | None = None
    """The day named in the question, if the conversation has messages from that day."""
    order: Order = "relevance"
    message_filter: MessageFilter = MessageFilter()
    at: float = 0.0
    """The time of the message."""
    near: bool = False
    """Whether this is only an approximate match: the conversation contains some of the words, but does not
    satisfy the operators of the query."""


def make_result_row(reader: Reader, found: Found) -> dict[str, Any] | None:
    message: Sequence[Any] | None = None
    if found.message_id is not None:
        message = reader.row(MESSAGE, found.message_id)
    if message is None and found.block is not None:
        message = _find_best_message(reader, found.block, found.question.terms, found.message_filter)
    if message is None:
        return None
    message_id, session_id, role, _at, *columns = message
    text = _extract_message_text(role, *columns)
    matched = find_matched_terms(text, found.question.terms)
    if not matched:  # the match may be in the reasoning before the answer
        text = _extract_message_text(None, *columns)
        matched = find_matched_terms(text, found.question.terms)
    marks = found.question.tree if found.question.parts and found.question.tree else _make_marks(matched)
    return make_row(
        reader,
        found,
        (message_id, session_id, role),
        make_snippet(text, marks),
        explain_match(matched, found),
    )


def make_row(
    reader: Reader, found: Found, message: tuple[int, str, str], excerpt: str, reason: str
) -> dict[str, Any] | None:
    """Return the result row of a found conversation. `message` is the id, the session and the role of the message to
    show, `excerpt` its snippet, and `reason` says why it was found. None if the conversation no longer exists."""
    row = reader.row(CONVERSATION, found.root_id)
    if row is None:
        return None
    message_id, session_id, role = message
    title, source, session_kind, started_at, last_active = row
    live = find_tip(reader, found.root_id)
    return {
        "session_id": session_id,
        "conversation_id": found.root_id,
        "tip_id": live,
        "score": format_score(found.score),
        "message_id": message_id,
        "role": role,
        "snippet": excerpt,
        "why": reason,
        "title": reader.value(TITLE, live) or title,
        "source": source,
        "kind": session_kind,
        "started_at": started_at,
        "last_active": last_active,
        "order": found.order,
    }


def format_score(score: float) -> float:
    """Round a score to four significant digits."""
    return float(f"{score:.4g}")


def _find_best_message(
    reader: Reader, block: RankedBlock, terms: Sequence[str], message_filter: MessageFilter
) -> Sequence[Any] | None:
    """Return the row of the message in a block that contains the most words of `terms`. Other forms of a word count as
    well. Return None if the filter allows none of the messages in the block."""
    best, most = None, -1.0
    for row in reader.rows(RANGE, block.session_id, block.first_id, block.last_id):
        _id, _session, role, at, *columns = row
        if message_filter.roles and role not in message_filter.roles:
            continue
        if (message_filter.after is not None and at < message_filter.after) or (
            message_filter.before is not None and at >= message_filter.before
        ):
            continue
        # If two messages contain equally many words, prefer the one of the person.
        count = len(find_matched_terms(_extract_message_text(role, *columns), terms)) + (
            0.5 if role == "user" else 0.0
        )
        if count > most:
            best, most = row, count
    return best


def _extract_message_text(
    role: str | None, content: Any, kind: str | None, tool_name: str | None, tool_calls: str | None
) -> str:
    """Return the text of a message without the model's reasoning. If the message has no text, return a description of
    its tool calls."""
    text = read_text(decode(content, kind), role)
    if text.strip() or not tool_calls:
        return text
    return f"{tool_name or ''} {describe_tool_calls(tool_calls)}".strip()


def _make_marks(matched: Sequence[str]) -> Or:
    leaves: list[Leaf] = [leaf for term in matched if (leaf := make_word(term)) is not None]
    return Or(tuple(leaves))


def explain_match(matched: Sequence[str], found: Found) -> str:
    reasons = ["nothing matches exactly"] if found.near else []
    if found.question.parts:
        reasons.append(f"no word matches; found as part of a word: {', '.join(found.question.parts)}")
    if matched:
        reasons.append(f"matches {', '.join(_join_runs(matched))}")
    if found.day is not None:
        reasons.append(f"said on {found.day}")
    if found.order == "newest":
        reasons.append(
            "newest first, because every word is very common" if found.question.terms else "newest first"
        )
    if not matched and found.day is None and found.order == "relevance" and not found.question.parts:
        reasons.append("matches the messages around it" if found.score else "matches the query")
    return "; ".join(reasons)


def _join_runs(matched: Sequence[str]) -> list[str]:
    """Return the matched terms, with overlapping pairs of characters joined to the text that the person typed. Terms of
    scripts without spaces are such pairs. Other terms are not changed."""
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
