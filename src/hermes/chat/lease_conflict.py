"""Lease conflicts: another process works in the conversation, and the person chooses how to continue.

The person can follow the conversation read-only, take it over, or continue in a branch. After a takeover, the
store refuses further writes of the other process.
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
from hermes.chat.view.recap import format_row_text
from hermes.chat.view.screen import GOLD, GREEN
from hermes.message_content import PARTIAL
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.leases import Lease

Row = dict[str, Any]

CHOICES = [
    Option("follow", "follow it read-only", "f"),
    Option("take over", "take over: the other process can no longer write", "t"),
    Option("branch", "branch: continue in a new conversation from here", "b"),
    Option("leave", "leave it", "l"),
]
"""The first choice is the default, because it changes nothing."""
POLL_S = 0.5


def describe_holder(lease: Lease) -> str:
    """Describe the holder of a lease, for example `Another terminal (process 4711 on host) has been in this
    conversation since ...`"""
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
    """Show the new messages of a conversation in which another process works. Stop when `stop` is set or when
    no process works in the conversation any more.

    `after` is the id of the last message that the person has seen. `show` is called with each new message.
    Return None if `stop` was set, otherwise a sentence for the person.
    """
    last = after
    while not stop.is_set():
        holder = await asyncio.to_thread(db.leases.find_holder, session_id)
        for row in await asyncio.to_thread(db.leases.follow, session_id, last):
            if holder is not None and row["finish_reason"] == PARTIAL:
                break  # the answer is being written; it is shown when it is complete
            last = row["id"]
            show(row)
        if holder is None:
            return "The conversation is no longer in use."
        try:
            await asyncio.wait_for(stop.wait(), POLL_S)
        except TimeoutError:
            continue
    return None


def format_followed(row: Row) -> tuple[str, str] | None:
    """Return the speaker and the text of a message, as shown to a person who follows the conversation; None
    if the message is not shown."""
    text = format_row_text(row).strip()
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
    """Tell the person that another process works in the conversation, and ask how to continue. Carry out the
    choice. Return False if the person decides not to open the conversation. `lease` is the lease of the other
    process."""
    chat.screen.print_line(describe_holder(lease), "yellow")
    while True:
        match await chat.choose("What now?", CHOICES):
            case "follow":
                await _watch(chat, session_id)
            case "take over":
                notes = await chat.conversation.switch_to(session_id, take_over=True)
                await chat.show_recap(["You have taken over the conversation.", *notes])
                return True
            case "branch":
                child = await chat.conversation.branch_off(session_id)
                await chat.show_recap([f"A branch of {session_id}: {child}"])
                return True
            case _:
                return False


async def handle_takeover(chat: Chat, typed_text: str) -> None:
    """Called when another process has taken over the conversation of this terminal. Ask the person how to
    continue. `typed_text` is the text that could not be sent; it is put into the next prompt."""
    chat.prefill = typed_text
    session_id = await asyncio.to_thread(
        chat.conversation.store.get_compression_tip, chat.conversation.session_id
    )
    lease = await asyncio.to_thread(chat.conversation.store.leases.find_holder, session_id)
    if lease is None:  # the other process has left already
        await chat.show_recap(await chat.conversation.switch_to(session_id, take_over=True))
    elif not await resolve_conflict(chat, session_id, lease):
        raise Leave


async def _watch(chat: Chat, session_id: str) -> None:
    chat.screen.print_note("Following the conversation; press Ctrl-C to stop following.")
    rows = await asyncio.to_thread(chat.conversation.store.get_context, session_id)
    stop = asyncio.Event()

    def show(row: Row) -> None:
        message = format_followed(row)
        if message is not None:
            chat.screen.print_line(message[0], f"bold {GOLD if row['role'] == 'user' else GREEN}")
            chat.screen.print_line(message[1])

    last = max((row["id"] for row in rows), default=0)
    with quiet_keyboard.suppress_echo(), chat.handle_interrupts(stop.set):
        ended = await follow(chat.conversation.store, session_id, last, show, stop)
    if ended is not None:
        chat.screen.print_note(ended)
