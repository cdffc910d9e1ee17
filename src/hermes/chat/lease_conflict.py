"""Somebody else works in the conversation: who, since when, and what can be done about it.

Follow and only read, take it over (what they still try to write is refused), or go on in a branch of one's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.agent.models.finish_reasons import explain_reason, normalize_reason
from hermes.chat.commands.table import Leave
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.question import Option
from hermes.chat.view.calls import describe_call, read_calls
from hermes.chat.view.recap import extract_text
from hermes.chat.view.screen import GOLD, GREEN
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.leases import Lease

Row = dict[str, Any]

CHOICES = [
    Option("follow", "follow, and only read", "f"),
    Option("take over", "take over: the other one cannot write any more", "t"),
    Option("branch", "branch: go on from here in a conversation of your own", "b"),
    Option("leave", "leave it", "l"),
]
"""The first is marked: it changes nothing."""
POLL_S = 0.5


def describe_holder(lease: Lease) -> str:
    """`A terminal (process 4711 on this host) has been in this conversation since 14:05 (5m ago).`"""
    holder, since = lease.holder, clock.format_iso(lease.since)[11:16]
    ago = clock.format_relative(lease.since, clock.now())
    surface = make_printable(holder.surface)
    return (
        f"Another {surface} (process {holder.pid} on {make_printable(holder.host)}) has been in this conversation since"
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
        if await asyncio.to_thread(db.leases.find_holder, session_id) is None:
            return "Nobody works in it any more."
        try:
            await asyncio.wait_for(stop.wait(), POLL_S)
        except TimeoutError:
            continue
    return None


def format_followed(row: Row) -> tuple[str, str] | None:
    """A message as who follows sees it: its speaker and its text; None for what is not shown."""
    text = extract_text(row).strip()
    if row["role"] == "user":
        return "● You", text
    if row["role"] == "assistant":
        calls = [
            f"→ {describe_call(call.name, call.arguments)}" for _, call in read_calls(row.get("tool_calls"))
        ]
        lines = [text, *calls]
        if not any(lines) or normalize_reason(row.get("finish_reason")) is not None:
            lines.append(explain_reason(row.get("finish_reason"), is_empty=not any(lines)) or "")
        return "◆ Hermes", "\n".join(filter(None, lines))
    return None


async def resolve_conflict(chat: Chat, session_id: str, lease: Lease) -> bool:
    """Ask the person; False if they would rather leave it."""
    chat.screen.print_line(describe_holder(lease), "yellow")
    while True:
        match await chat.choose("What now?", CHOICES):
            case "follow":
                await _watch(chat, session_id)
            case "take over":
                notes = await chat.conversation.switch_to(session_id, take_over=True)
                await chat.show_recap(["It is yours now.", *notes])
                return True
            case "branch":
                child = await chat.conversation.branch_off(session_id)
                await chat.show_recap([f"A branch of {session_id}, which the other one keeps: {child}"])
                return True
            case _:
                return False


async def handle_takeover(chat: Chat, typed_text: str) -> None:
    """Another terminal has taken our conversation over; what was typed is not lost."""
    chat.prefill = typed_text
    session_id = await asyncio.to_thread(
        chat.conversation.db.get_compression_tip, chat.conversation.session_id
    )
    lease = await asyncio.to_thread(chat.conversation.db.leases.find_holder, session_id)
    if lease is None:  # and has left it already
        await chat.show_recap(await chat.conversation.switch_to(session_id, take_over=True))
    elif not await resolve_conflict(chat, session_id, lease):
        raise Leave


async def _watch(chat: Chat, session_id: str) -> None:
    chat.screen.print_note("Following; Ctrl-C ends it.")
    rows = await asyncio.to_thread(chat.conversation.db.get_context, session_id)
    stop = asyncio.Event()

    def show(row: Row) -> None:
        message = format_followed(row)
        if message is not None:
            chat.screen.print_line(message[0], f"bold {GOLD if row['role'] == 'user' else GREEN}")
            chat.screen.print_line(message[1])

    last = max((row["id"] for row in rows), default=0)
    with quiet_keyboard.suppress_echo(), chat.handle_interrupts(stop.set):
        ended = await follow(chat.conversation.db, session_id, last, show, stop)
    if ended is not None:
        chat.screen.print_note(ended)
