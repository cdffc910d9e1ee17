"""`/handoff`: continue the conversation in the home channel of a platform, and leave the terminal.

The gateway performs the handoff and stores its state in the session row. The conversation stays in the
terminal until the handoff is completed. If the handoff fails, the person is told and nothing changes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes import clock
from hermes.chat.commands.table import Leave, TerminalCommand
from hermes.conversation.commands.command_types import Command
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

LOOK_EVERY_S, PATIENCE_S = 0.5, 60.0
NO_GATEWAY = "No gateway runs for this home; `hermes gateway` starts it."
TOO_LATE = "the gateway did not accept the handoff within a minute"
GIVEN_UP = "cancelled at the terminal"


async def hand_off(chat: Chat, argument: str) -> None:
    conversation, platform = chat.conversation, argument.strip().lower()
    if not conversation.exists:
        chat.screen.print_note("There is nothing to hand over: no message is stored yet.")
        return
    reach = conversation.parts.platforms
    connected = None if reach is None else await asyncio.to_thread(reach)
    if connected is None:
        chat.screen.print_problem(NO_GATEWAY)
    elif platform not in connected:
        names = ", ".join(connected) or "none"
        chat.screen.print_problem(f"Usage: /handoff <platform>. Connected platforms: {names}")
    else:
        await _wait(chat, platform)


async def _wait(chat: Chat, platform: str) -> None:
    conversation, stop = chat.conversation, asyncio.Event()
    session_id = conversation.session_id
    # The handler is installed before the request, so that an immediate Ctrl-C cancels the handoff.
    with chat.handle_interrupts(stop.set, asyncio.current_task()):
        await conversation.step_aside()
        if not await asyncio.to_thread(conversation.store.request_handoff, session_id, platform):
            chat.screen.print_problem("A handoff of this conversation is already in progress.")
            await conversation.step_back()
            return
        chat.screen.print_note(f"Handing over to {make_printable(platform)} … (Ctrl-C cancels)")
        why = await _poll_outcome(chat, session_id, stop)
    if why is None:
        chat.screen.print_line(
            f"The conversation continues on {make_printable(platform)}. `hermes -r {session_id}` resumes it here."
        )
        conversation.forget()
        raise Leave
    chat.screen.print_problem(f"Not handed over: {make_printable(why)}")
    await conversation.step_back()


async def _poll_outcome(chat: Chat, session_id: str, stop: asyncio.Event) -> str | None:
    """Wait until the gateway has completed or failed the handoff of the session. Return None if the handoff
    succeeded, otherwise the reason for the failure. If `stop` is set or the gateway takes too long, mark the
    handoff as failed."""
    db, until = chat.conversation.store, clock.now() + PATIENCE_S
    while True:
        state = await asyncio.to_thread(db.get_handoff_state, session_id) or {}
        if state.get("state") == "completed":
            return None
        if state.get("state") == "failed":
            return str(state.get("error") or "the gateway did not say why")
        why = GIVEN_UP if stop.is_set() else TOO_LATE if clock.now() > until else None
        # Do not cancel a handoff that the gateway is running, unless the gateway no longer responds.
        begun = state.get("state") == "running" and clock.now() < until + PATIENCE_S
        if why is not None and not begun:
            # The handoff may complete before this call; the next poll reads the result.
            await asyncio.to_thread(db.fail_handoff, session_id, why)
        await asyncio.sleep(LOOK_EVERY_S)


COMMANDS: tuple[TerminalCommand, ...] = (
    Command("handoff", hand_off, "<platform>", "continue this conversation on a chat platform"),
)
