"""Lists the conversations that a person may open in the place where a slash command was typed, and finds the one that
the person refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.conversation.commands.command_types import CommandContext
from hermes.conversation.commands.replies import Ambiguous, ConversationList, NotFound, Reason, Refused
from hermes.message_content import read_text
from hermes.store.sessions.titles import make_one_line

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

Row = dict[str, Any]

LISTED = 10
PAGE, SCANNED = 100, 500
"""The number of conversations that one store query reads, and the maximum number that are read for a list."""
LONGEST_NUMBER = 3
"""Maximum number of digits of a position in a list. A longer number is the beginning of an id, because ids start with a
date."""
LATEST = "latest"

_PAIRS = ('""', "''", "“”", "„“", "‘’", "«»", "‹›", "``", "[]", "()", "<>", "{}")


def list_conversations(
    context: CommandContext, words: str = "", *, is_resume: bool = False, skipped: int = 0
) -> ConversationList:
    """Return the conversations that may be opened in the place where the command was typed, newest first.

    If `words` is not empty, return only conversations whose title, preview or id contains this text. `skipped` is the
    number of newer conversations to leave out, for later pages. `is_resume` is copied to the result.
    """
    needle, rows, private, end = words.casefold(), list[Row](), 0, skipped + LISTED
    visibility = context.visibility
    for row in _scan_conversations(context):
        if row["id"] == context.conversation.session_id and not _has_content(row):
            continue  # the current conversation is empty, so it cannot be resumed
        if needle not in f"{row['title'] or ''} {row['preview']} {row['id']}".casefold():
            continue
        stored = context.store.get_session(row["id"])
        if stored is None:
            continue
        if visibility.can_open(stored):
            rows.append(row)
        elif visibility.is_own(stored):
            private += 1
        if len(rows) > end and not visibility.has_audience:  # no private rows to count
            break
    return ConversationList(
        rows[skipped:end], len(rows) > end, private, context.conversation.session_id, words, is_resume
    )


def _scan_conversations(context: CommandContext) -> Iterator[Row]:
    for offset in range(0, SCANNED, PAGE):
        page = context.store.list_conversations(limit=PAGE, offset=offset)
        yield from filter(_is_worth_listing, page.rows)
        if offset + PAGE >= page.total:
            break


def _is_worth_listing(row: Row) -> bool:
    """Return whether a conversation belongs in a list. It must have messages or a title, or be a branch. A new
    conversation is never listed if the person has undone its start."""
    if row["end_reason"] == "reset_undone":
        return False
    return bool(row["title"]) or _has_content(row)


def _has_content(row: Row) -> bool:
    return bool(row["message_count"] or row["relation"] == "branch")


class Lookup(NamedTuple):
    id: str | None
    """The live session of the matching conversation. None if no conversation matches, or more than one."""
    candidates: Sequence[Row] = ()
    """If several conversations match, a row for each: `id` (its live session), `title`, `preview`, `last_active`."""


def find_conversation(
    store: AnyStore,
    words: str,
    find_latest: Callable[[], str | None],
    *,
    preferred_owner: str | None = None,
) -> Lookup:
    """Find a conversation by id, id prefix, title or `latest`. The id or title can be that of any session of
    the conversation.

    `find_latest` returns the session for `latest`. If several people use the same title, the conversation of
    `preferred_owner` is selected.
    """
    name = make_one_line(words)
    bare = _strip_quotes(name)
    if bare == LATEST and store.get_session_by_title(LATEST) is None:
        return Lookup(find_latest())
    for candidate in dict.fromkeys((name, bare)):
        named = store.named(candidate, preferred_owner=preferred_owner)
        if named.id is not None:
            return Lookup(store.get_compression_tip(named.id))
        by_tip: dict[str, Row] = {}
        for row in named.candidates:  # several sessions of one conversation are one candidate
            tip = store.get_compression_tip(row["id"])
            by_tip.setdefault(tip, {**row, "id": tip})
        if by_tip:
            tips = list(by_tip.values())
            return Lookup(tips[0]["id"]) if len(tips) == 1 else Lookup(None, tips)
    return Lookup(None)


def _strip_quotes(name: str) -> str:
    """Remove quotation marks and brackets around a name, because people copy them from a usage line."""
    while len(name) > 1 and name[0] + name[-1] in _PAIRS:
        name = name[1:-1].strip()
    return name


def resolve_conversation(context: CommandContext, words: str) -> Row | Ambiguous | NotFound | Refused:
    """Find a conversation that can be opened here. `words` is its number in the last list, or a name as in
    `find_conversation`. Return its session row, or a reply that says why there is none."""
    bare = _strip_quotes(make_one_line(words))
    if bare.isdecimal() and len(bare) <= LONGEST_NUMBER:
        listed = context.listed or [row["id"] for row in list_conversations(context).rows]
        if 0 < int(bare) <= len(listed):
            return _resolve_id(context, listed[int(bare) - 1], words)
        titled = context.store.get_session_by_title(bare)
        return NotFound(words) if titled is None else _resolve_id(context, titled["id"], words)
    found = find_conversation(context.store, words, lambda: _find_latest(context))
    if found.id is not None:
        return _resolve_id(context, found.id, words)
    return _resolve_candidates(context, found.candidates, words)


def _find_latest(context: CommandContext) -> str | None:
    if context.find_latest is not None:
        return context.find_latest()
    return next((row["id"] for row in list_conversations(context).rows), None)


def _resolve_id(context: CommandContext, session_id: str, words: str) -> Row | NotFound | Refused:
    """Return the row of the conversation's live session, if it can be opened here.
    Otherwise return a conversation with the same title that can be opened, or a refusal.
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
    is_own = visibility.is_own(row)
    return Refused(Reason.PRIVATE_CONVERSATION if is_own else Reason.SHARED_CONVERSATION)


def _resolve_candidates(
    context: CommandContext, candidates: Sequence[Row], words: str
) -> Row | Ambiguous | NotFound | Refused:
    resolved = [_resolve_id(context, candidate["id"], words) for candidate in candidates]
    rows = [row for row in resolved if isinstance(row, dict)]
    if not rows:
        return resolved[0] if resolved else NotFound(words)
    if len(rows) == 1:
        return rows[0]
    return Ambiguous([{**row, "last_active": row["last_active"] or row["started_at"]} for row in rows])


def list_spoken(context: CommandContext, session_id: str) -> list[Row]:
    """Return the messages of people and of the agent in the context of a session. Messages without text, such as bare
    tool calls, are left out."""
    return [
        row
        for row in context.store.get_context(session_id)
        if row["role"] in ("user", "assistant") and read_text(row["content"], row["role"]).strip()
    ]
