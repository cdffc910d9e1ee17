"""The conversations that can be shown or opened here, and which one a person refers to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.conversation.commands.command_types import CommandContext
from hermes.conversation.commands.replies import Ambiguous, ConversationList, NotFound, Refused
from hermes.message_content import read_text
from hermes.store.sessions.titles import make_one_line

Row = dict[str, Any]

LISTED = 10
PAGE, SCANNED = 100, 500
"""How many conversations are read to find those that can be shown."""
LONGEST_NUMBER = 3
"""Digits. More of them begin an id: those start with a date."""
LATEST = "latest"

_PAIRS = ('""', "''", "“”", "„“", "‘’", "«»", "‹›", "``", "[]", "()", "<>", "{}")


def list_conversations(
    context: CommandContext, words: str = "", *, is_resume: bool = False
) -> ConversationList:
    """The conversations that can be opened here, newest first; with words, those whose title or beginning has them."""
    needle, rows, private = words.casefold(), list[Row](), 0
    visibility = context.visibility
    for row in _scan_conversations(context):
        if needle not in f"{row['title'] or ''} {row['preview']} {row['id']}".casefold():
            continue
        stored = context.store.get_session(row["id"])
        if stored is None:
            continue
        if visibility.can_open(stored):
            rows.append(row)
        elif visibility.is_own(stored):
            private += 1
        if len(rows) > LISTED and not visibility.has_audience:  # nothing is private here
            break
    return ConversationList(
        rows[:LISTED], len(rows) > LISTED, private, context.conversation.session_id, words, is_resume
    )


def _scan_conversations(context: CommandContext) -> Iterator[Row]:
    for offset in range(0, SCANNED, PAGE):
        page = context.store.list_conversations(limit=PAGE, offset=offset)
        yield from filter(_is_worth_listing, page.rows)
        if offset + PAGE >= page.total:
            break


def _is_worth_listing(row: Row) -> bool:
    """Whether anybody would look for it: something was said, or carried over, or it has a title."""
    if row["end_reason"] == "reset_undone":
        return False
    return bool(row["message_count"] or row["title"] or row["relation"] == "branch")


def resolve_conversation(context: CommandContext, words: str) -> Row | Ambiguous | NotFound | Refused:
    """Find a conversation by its number in the list, its id, the beginning of that, or its title."""
    name = make_one_line(words)
    bare = _strip_quotes(name)
    if bare.isdecimal() and len(bare) <= LONGEST_NUMBER:
        listed = context.listed or [row["id"] for row in list_conversations(context).rows]
        if 0 < int(bare) <= len(listed):
            return _resolve_id(context, listed[int(bare) - 1], words)
        titled = context.store.get_session_by_title(bare)
        return NotFound(words) if titled is None else _resolve_id(context, titled["id"], words)
    if bare == LATEST and context.store.get_session_by_title(LATEST) is None:
        latest_id = _find_latest(context)
        return NotFound(words) if latest_id is None else _resolve_id(context, latest_id, words)
    for candidate in dict.fromkeys((name, bare)):
        named = context.store.named(candidate)
        if named.id is not None:
            return _resolve_id(context, named.id, words)
        if named.candidates:
            return _resolve_candidates(context, named.candidates, words)
    return NotFound(words)


def _find_latest(context: CommandContext) -> str | None:
    if context.find_latest is not None:
        return context.find_latest()
    return next((row["id"] for row in list_conversations(context).rows), None)


def _resolve_id(context: CommandContext, session_id: str, words: str) -> Row | NotFound | Refused:
    """The live end of the conversation, if it can be opened here.

    Of two with the same title a person means their own; where that cannot be opened, they mean the other one.
    """
    row = context.store.get_session(context.store.get_compression_tip(session_id))
    if row is None:
        return NotFound(words)
    visibility = context.visibility
    if visibility.can_open(row):
        return row
    for other in _scan_conversations(context):
        if other["title"] and other["title"] == row["title"]:
            stored = context.store.get_session(other["id"])
            if stored is not None and visibility.can_open(stored):
                return stored
    return Refused(visibility.explain_closed(row))


def _resolve_candidates(
    context: CommandContext, candidates: list[Row], words: str
) -> Row | Ambiguous | NotFound | Refused:
    """Several sessions of one conversation are one candidate."""
    by_tip: dict[str, Row | NotFound | Refused] = {}
    for candidate in candidates:
        tip = context.store.get_compression_tip(candidate["id"])
        if tip not in by_tip:
            by_tip[tip] = _resolve_id(context, tip, words)
    rows = [resolved for resolved in by_tip.values() if isinstance(resolved, dict)]
    if not rows:
        return next(iter(by_tip.values()))
    if len(rows) == 1:
        return rows[0]
    return Ambiguous([{**row, "last_active": row["last_active"] or row["started_at"]} for row in rows])


def list_spoken(context: CommandContext, session_id: str) -> list[Row]:
    """What people and the agent said in a conversation, as far as it is live."""
    return [
        row
        for row in context.store.get_context(session_id)
        if row["role"] in ("user", "assistant") and read_text(row["content"], row["role"]).strip()
    ]


def _strip_quotes(name: str) -> str:
    """Without the quotation marks or brackets that people copy along from a usage line."""
    while len(name) > 1 and name[0] + name[-1] in _PAIRS:
        name = name[1:-1].strip()
    return name
