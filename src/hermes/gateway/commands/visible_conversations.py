"""Which conversations a chat may show or open, and which one a person refers to.

A person's handle holds only their own conversations. In a chat with an audience that is not enough: private
conversations are neither shown nor opened there. Every answer treats other people's conversations as not existing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hermes import clock
from hermes.gateway.commands.command_context import CommandContext
from hermes.gateway.outbound.markdown_format import format_conversation
from hermes.insights.number_format import format_plural
from hermes.store.sessions.titles import make_one_line

Row = dict[str, Any]

LISTED = 10
PAGE, SCANNED = 100, 500
"""How many conversations are looked at to find those that can be shown in this chat."""
LONGEST_NUMBER = 3
"""Digits. More of them begin an id: those start with a date."""

NOT_FOUND = "There is no such conversation. `/sessions` shows yours."
PRIVATE = (
    "That conversation is private: it cannot be opened where others read along. Ask me in a private chat."
)
EVERYBODYS = "That conversation is everybody's in this room; this one is yours alone."
NOTHING_SAID = "Nothing was said here yet."
IN_TRASH = "The conversation of this chat is in the trash. What you say next begins a new one."

_PAIRS = ('""', "''", "“”", "„“", "‘’", "«»", "‹›", "``", "[]", "()", "<>", "{}")


class ConversationList(NamedTuple):
    rows: list[Row]
    """The newest, those that a number means; rich rows."""
    more: bool
    """Whether there are others than these."""
    private: int
    """How many there are that cannot be told of in this chat."""


class Resolution(NamedTuple):
    row: Row | None = None
    problem: str = NOT_FOUND
    """What to say if it is not clear which one."""


def describe_empty(context: CommandContext) -> str:
    """Why a chat is in no conversation: its last one was moved to the trash, or there was none."""
    return IN_TRASH if context.chat.was_trashed else NOTHING_SAID


def has_audience(context: CommandContext) -> bool:
    """Whether others see what is answered here."""
    return context.source.chat_type != "dm"


def visibility_filter(context: CommandContext) -> Callable[[Row], bool]:
    """Whether a conversation may be told of in this chat, by its row in the store.

    In private all of one's own may. Where others read along: what is the room's, and what the asker said there
    themselves, before everybody's eyes.
    """
    if not has_audience(context):
        return lambda row: True
    room = context.store.principal.room
    # A room may have been a private chat once: what was said then was said in private.
    return lambda row: row["owner"] == room or (is_from_this_chat(context, row) and row["chat_type"] != "dm")


def is_from_this_chat(context: CommandContext, row: Row) -> bool:
    """Whether a conversation was begun in this chat."""
    source = context.source
    return (row["chat_id"], row["thread_id"] or "") == (source.chat_id, source.thread_id or "")


def openable_filter(context: CommandContext) -> Callable[[Row], bool]:
    """Whether this chat can go on in a conversation: a shared one only in what is shared."""
    visible, who = visibility_filter(context), context.store.principal
    owner = who.room if context.chat.is_shared else who.person or who.room
    return lambda row: row["owner"] == owner and visible(row)


def list_conversations(context: CommandContext, words: str = "") -> ConversationList:
    """The asker's conversations that this chat could go on in, newest first; with words, those that have them."""
    needle, rows, private = words.casefold(), list[Row](), 0
    allows, person = openable_filter(context), context.store.principal.person
    for row, stored in _scan_conversations(context):
        if needle not in f"{row['title'] or ''} {row['preview']} {row['id']}".casefold():
            continue
        if allows(stored):
            rows.append(row)
        elif stored["owner"] == person:
            private += 1
        if len(rows) > LISTED and not has_audience(context):  # where all can be shown, none need be counted
            break
    return ConversationList(rows[:LISTED], len(rows) > LISTED, private)


def _scan_conversations(context: CommandContext) -> Iterator[tuple[Row, Row]]:
    """The asker's conversations and the room's, newest first: each as a list shows it, and as it is stored."""
    for offset in range(0, SCANNED, PAGE):
        page = context.store.list_conversations(limit=PAGE, offset=offset)
        for row in filter(_is_worth_listing, page.rows):
            stored = context.store.get_session(row["id"])
            if stored is not None:
                yield row, stored
        if offset + PAGE >= page.total:
            break


def resolve_conversation(context: CommandContext, words: str) -> Resolution:
    """Which conversation a person means by its number in the list, its id, the beginning of that, or its title."""
    raw = make_one_line(words)
    bare = _strip_quotes(raw)
    if bare.isdecimal() and len(bare) <= LONGEST_NUMBER:
        rows = list_conversations(context).rows
        if 0 < int(bare) <= len(rows):
            return _resolve_id(context, rows[int(bare) - 1]["id"])
        titled = context.store.get_session_by_title(bare)
        return Resolution() if titled is None else _resolve_id(context, titled["id"])
    for name in dict.fromkeys((raw, bare)):
        named = context.store.named(name)
        if named.id is not None:
            return _resolve_id(context, named.id)
        if named.candidates:
            return _resolve_candidates(context, named.candidates)
    return Resolution()


def _resolve_id(context: CommandContext, session_id: str) -> Resolution:
    """The live end of the conversation, if this chat may go on in it.

    Of two with the same title a person means their own; where that cannot be opened, they mean the room's.
    """
    row = context.store.get_session(context.store.get_compression_tip(session_id))
    if row is None:
        return Resolution()
    allows = openable_filter(context)
    if allows(row):
        return Resolution(row)
    for _, other in _scan_conversations(context):
        if other["title"] and other["title"] == row["title"] and allows(other):
            return Resolution(other)
    return Resolution(None, PRIVATE if row["owner"] == context.store.principal.person else EVERYBODYS)


def _resolve_candidates(context: CommandContext, candidates: list[Row]) -> Resolution:
    """Several segments of one conversation are one of them."""
    by_tip: dict[str, Resolution] = {}
    for candidate in candidates:
        tip = context.store.get_compression_tip(candidate["id"])
        if tip not in by_tip:
            by_tip[tip] = _resolve_id(context, tip)
    allowed = [resolution for resolution in by_tip.values() if resolution.row is not None]
    if not allowed:
        return next(iter(by_tip.values()))
    if len(allowed) == 1:
        return allowed[0]
    now = clock.now()
    lines = [
        f"- {format_conversation(_with_last_active(resolution.row), now)}"
        for resolution in allowed
        if resolution.row is not None
    ]
    return Resolution(None, "\n".join(("That could be any of these:", *lines)))


def describe_busy(context: CommandContext, session_id: str) -> str | None:
    """What to say if somebody works in a conversation, in another program or chat; one moves only where it is free."""
    lease = context.store.leases.find_holder(session_id)
    if lease is None or lease.epoch == context.chat.epoch:
        return None
    return "That conversation is being worked in elsewhere just now; try again when that is done."


def describe_private(count: int) -> str:
    """What is said of what cannot be told here."""
    return f"{format_plural(count, 'private conversation')} not shown here: ask me in a private chat."


def _with_last_active(row: Row) -> Row:
    return {**row, "last_active": row["last_active"] or row["started_at"]}


def _is_worth_listing(row: Row) -> bool:
    """Whether anybody would look for it: something was said, or carried over, or it has a name."""
    if row["end_reason"] == "reset_undone":
        return False
    return bool(row["message_count"] or row["title"] or row["relation"] == "branch")


def _strip_quotes(name: str) -> str:
    """Without the quotation marks or brackets that people copy along from a usage line."""
    while len(name) > 1 and name[0] + name[-1] in _PAIRS:
        name = name[1:-1].strip()
    return name
