"""`/handoff`: the conversation goes on in the home channel of a platform, and the terminal is left.

The gateway does it; the row of the session says how far it is. Until it is completed the conversation is here, and
whatever fails is told, with everything as it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes import clock
from hermes.chat.commands.table import Command, Leave
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

LOOK_EVERY_S, PATIENCE_S = 0.5, 60.0
NO_GATEWAY = "No gateway runs for this home; `hermes gateway` starts it."
TOO_LATE = "the gateway did not take it within a minute"
GIVEN_UP = "given up at the terminal"


async def hand_off(chat: Chat, argument: str) -> None:
    conversation, platform = chat.conversation, argument.strip().lower()
    if not conversation.exists:
        chat.screen.print_note("There is nothing stored yet that could be handed over.")
        return
    reach = conversation.parts.platforms
    connected = None if reach is None else await asyncio.to_thread(reach)
    if connected is None:
        chat.screen.print_problem(NO_GATEWAY)
    elif platform not in connected:
        names = ", ".join(connected) or "none"
        chat.screen.print_problem(f"/handoff <platform>: the gateway is connected to {names}")
    else:
        await _wait(chat, platform)


async def _wait(chat: Chat, platform: str) -> None:
    conversation, stop = chat.conversation, asyncio.Event()
    session_id = conversation.session_id
    # From before it is asked for: whoever gives up at once is heard, too.
    with chat.handle_interrupts(stop.set, asyncio.current_task()):
        await conversation.step_aside()
        if not await asyncio.to_thread(conversation.store.request_handoff, session_id, platform):
            chat.screen.print_problem("A handoff of this conversation is under way already.")
            await conversation.step_back()
            return
        chat.screen.print_note(f"Handing over to {make_printable(platform)} … (Ctrl-C gives up)")
        why = await _poll_outcome(chat, session_id, stop)
    if why is None:
        chat.screen.print_line(
            f"The conversation continues on {make_printable(platform)}. `hermes -r {session_id}` brings it back."
        )
        conversation.forget()
        raise Leave
    chat.screen.print_problem(f"Not handed over: {make_printable(why)}")
    await conversation.step_back()


async def _poll_outcome(chat: Chat, session_id: str, stop: asyncio.Event) -> str | None:
    """Why it failed; None if it is done."""
    db, until = chat.conversation.store, clock.now() + PATIENCE_S
    while True:
        state = await asyncio.to_thread(db.get_handoff_state, session_id) or {}
        if state.get("state") == "completed":
            return None
        if state.get("state") == "failed":
            return str(state.get("error") or "the gateway did not say why")
        why = GIVEN_UP if stop.is_set() else TOO_LATE if clock.now() > until else None
        # What the gateway has begun it also ends, unless it is gone.
        begun = state.get("state") == "running" and clock.now() < until + PATIENCE_S
        if why is not None and not begun:
            # The next look tells, if it was in time.
            await asyncio.to_thread(db.fail_handoff, session_id, why)
        await asyncio.sleep(LOOK_EVERY_S)


COMMANDS = (Command("handoff", "<platform>", "go on with this conversation on a chat platform", hand_off),)
