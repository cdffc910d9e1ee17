"""Which conversations may be told of in a chat, and which of them a person means.

A person's handle already holds nobody else's. Where others read along it is not enough: what was said in private is
not told there, nor opened. What is not the asker's is, in every answer, what does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hermes import clock
from hermes.gateway.commands.command_context import Asked
from hermes.gateway.commands.markdown_format import line_of
from hermes.insights.number_format import format_plural
from hermes.store.sessions.titles import one_line

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


class Listed(NamedTuple):
    rows: list[Row]
    """The newest, those that a number means; rich rows."""
    more: bool
    """Whether there are others than these."""
    private: int
    """How many there are that cannot be told of in this chat."""


class Meant(NamedTuple):
    row: Row | None = None
    problem: str = NOT_FOUND
    """What to say if it is not clear which one."""


def describe_empty(asked: Asked) -> str:
    """Why a chat is in no conversation: its last one was moved to the trash, or there was none."""
    return IN_TRASH if asked.here.was_trashed else NOTHING_SAID


def read_along(asked: Asked) -> bool:
    """Whether others see what is answered here."""
    return asked.source.chat_type != "dm"


def visible_here(asked: Asked) -> Callable[[Row], bool]:
    """Whether a conversation may be told of in this chat, by its row in the store.

    In private all of one's own may. Where others read along: what is the room's, and what the asker said there
    themselves, before everybody's eyes.
    """
    if not read_along(asked):
        return lambda row: True
    room = asked.store.principal.room
    # A room may have been a private chat once: what was said then was said in private.
    return lambda row: row["owner"] == room or (held_here(asked, row) and row["chat_type"] != "dm")


def held_here(asked: Asked, row: Row) -> bool:
    """Whether a conversation was begun in this chat."""
    source = asked.source
    return (row["chat_id"], row["thread_id"] or "") == (source.chat_id, source.thread_id or "")


def may_open(asked: Asked) -> Callable[[Row], bool]:
    """Whether this chat can go on in a conversation: a shared one only in what is shared."""
    visible, who = visible_here(asked), asked.store.principal
    owner = who.room if asked.here.shared else who.person or who.room
    return lambda row: row["owner"] == owner and visible(row)


def listed(asked: Asked, words: str = "") -> Listed:
    """The asker's conversations that this chat could go on in, newest first; with words, those that have them."""
    wanted, found, private = words.casefold(), list[Row](), 0
    allows, person = may_open(asked), asked.store.principal.person
    for row, stored in _looked_through(asked):
        if wanted not in f"{row['title'] or ''} {row['preview']} {row['id']}".casefold():
            continue
        if allows(stored):
            found.append(row)
        elif stored["owner"] == person:
            private += 1
        if len(found) > LISTED and not read_along(asked):  # where all can be shown, none need be counted
            break
    return Listed(found[:LISTED], len(found) > LISTED, private)


def _looked_through(asked: Asked) -> Iterator[tuple[Row, Row]]:
    """The asker's conversations and the room's, newest first: each as a list shows it, and as it is stored."""
    for offset in range(0, SCANNED, PAGE):
        page = asked.store.list_conversations(limit=PAGE, offset=offset)
        for row in filter(_has_something, page.rows):
            stored = asked.store.get_session(row["id"])
            if stored is not None:
                yield row, stored
        if offset + PAGE >= page.total:
            break


def meant(asked: Asked, words: str) -> Meant:
    """Which conversation a person means by its number in the list, its id, the beginning of that, or its title."""
    raw = one_line(words)
    bare = _bare(raw)
    if bare.isdecimal() and len(bare) <= LONGEST_NUMBER:
        rows = listed(asked).rows
        if 0 < int(bare) <= len(rows):
            return _checked(asked, rows[int(bare) - 1]["id"])
        titled = asked.store.get_session_by_title(bare)
        return Meant() if titled is None else _checked(asked, titled["id"])
    for name in dict.fromkeys((raw, bare)):
        named = asked.store.named(name)
        if named.id is not None:
            return _checked(asked, named.id)
        if named.candidates:
            return _one_of(asked, named.candidates)
    return Meant()


def _checked(asked: Asked, session_id: str) -> Meant:
    """The live end of the conversation, if this chat may go on in it.

    Of two with the same title a person means their own; where that cannot be opened, they mean the room's.
    """
    row = asked.store.get_session(asked.store.get_compression_tip(session_id))
    if row is None:
        return Meant()
    allows = may_open(asked)
    if allows(row):
        return Meant(row)
    for _, other in _looked_through(asked):
        if other["title"] and other["title"] == row["title"] and allows(other):
            return Meant(other)
    return Meant(None, PRIVATE if row["owner"] == asked.store.principal.person else EVERYBODYS)


def _one_of(asked: Asked, candidates: list[Row]) -> Meant:
    """Several segments of one conversation are one of them."""
    by_tip: dict[str, Meant] = {}
    for candidate in candidates:
        tip = asked.store.get_compression_tip(candidate["id"])
        if tip not in by_tip:
            by_tip[tip] = _checked(asked, tip)
    allowed = [one for one in by_tip.values() if one.row is not None]
    if not allowed:
        return next(iter(by_tip.values()))
    if len(allowed) == 1:
        return allowed[0]
    now = clock.now()
    lines = [f"- {line_of(_rich(one.row), now)}" for one in allowed if one.row is not None]
    return Meant(None, "\n".join(("That could be any of these:", *lines)))


def busy_elsewhere(asked: Asked, session_id: str) -> str | None:
    """What to say if somebody works in a conversation, in another program or chat; one moves only where it is free."""
    lease = asked.store.leases.holder(session_id)
    if lease is None or lease.epoch == asked.here.epoch:
        return None
    return "That conversation is being worked in elsewhere just now; try again when that is done."


def private_ones(count: int) -> str:
    """What is said of what cannot be told here."""
    return f"{format_plural(count, 'private conversation')} not shown here: ask me in a private chat."


def _rich(row: Row) -> Row:
    return {**row, "last_active": row["last_active"] or row["started_at"]}


def _has_something(row: Row) -> bool:
    """Whether anybody would look for it: something was said, or carried over, or it has a name."""
    if row["end_reason"] == "reset_undone":
        return False
    return bool(row["message_count"] or row["title"] or row["relation"] == "branch")


def _bare(name: str) -> str:
    """Without the quotation marks or brackets that people copy along from a usage line."""
    while len(name) > 1 and name[0] + name[-1] in _PAIRS:
        name = name[1:-1].strip()
    return name
