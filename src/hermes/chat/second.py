"""Somebody else works in the conversation: who, since when, and what can be done about it.

Follow and only read, take it over (what they still try to write is refused), or go on in a branch of one's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.chat.recap import collapsed, names_of_calls, said
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB
    from hermes.store.leases import Lease

Row = dict[str, Any]

FOLLOW, TAKE_OVER, BRANCH, LEAVE = "follow", "take over", "branch", "leave"
CHOICES = [
    (FOLLOW, "follow, and only read"),
    (TAKE_OVER, "take over: the other one cannot write any more"),
    (BRANCH, "branch: go on from here in a conversation of your own"),
    (LEAVE, "leave it"),
]
POLL_S = 0.5


def who(lease: Lease) -> str:
    """`A terminal (process 4711 on this host) has been in this conversation since 14:05 (5m ago).`"""
    holder, since = lease.holder, clock.iso(lease.since)[11:16]
    ago = clock.relative(lease.since, clock.now())
    surface = printable(holder.surface)
    return (
        f"Another {surface} (process {holder.pid} on {printable(holder.host)}) has been in this conversation since"
        f" {since} ({ago})."
    )


async def follow(
    db: SessionDB, session_id: str, after: int, show: Callable[[Row], None], stop: asyncio.Event
) -> str | None:
    """Show what is said as it is said. `stop` ends it; else it ends when nobody works there any more, and says so."""
    last = after
    while not stop.is_set():
        for row in await asyncio.to_thread(db.leases.follow, session_id, last):
            last = row["id"]
            show(row)
        if await asyncio.to_thread(db.leases.holder, session_id) is None:
            return "Nobody works in it any more."
        try:
            await asyncio.wait_for(stop.wait(), POLL_S)
        except TimeoutError:
            continue
    return None


def followed(row: Row) -> tuple[str, str] | None:
    """A message as who follows sees it: its speaker and its text; None for what is not shown."""
    text = said(row).strip()
    if row["role"] == "user":
        return "● You", text
    if row["role"] == "assistant":
        return "◆ Hermes", "\n".join(filter(None, (text, collapsed(names_of_calls(row)))))
    return None
