"""Commands about what was just said: take it back, bring it back, ask again, make room, stop."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hermes.chat.commands.table import Command
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.question import Option
from hermes.chat.view.recap import extract_text
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

Row = dict[str, Any]

OFFERED = 10


async def undo(chat: Chat, argument: str) -> None:
    if not argument.isdecimal() and argument:
        chat.screen.print_note("Usage: /undo [how many exchanges]")
        return
    prompts = await _list_prompts(chat)
    many = int(argument or 1)
    if not prompts or many < 1:
        chat.screen.print_note("There is nothing stored to take back.")
        return
    await _rewind_to(chat, prompts[-min(many, len(prompts))])


async def rewind(chat: Chat, argument: str) -> None:
    if argument == "undo":
        back = await chat.conversation.bring_back() if chat.conversation.exists else 0
        summary = (
            f"Brought back {back} message{'' if back == 1 else 's'}." if back else "Nothing to bring back."
        )
        chat.screen.print_line(summary)
        return
    prompts = list(reversed(await _list_prompts(chat)))[:OFFERED]
    if not prompts:
        chat.screen.print_note("There is nothing to go back to.")
    elif not argument:
        options = [Option(row["id"], make_printable(extract_text(row), width_limit=70)) for row in prompts]
        chosen = await chat.choose("Go back to before:", options)
        row = next((row for row in prompts if row["id"] == chosen), None)
        if row is not None:
            await _rewind_to(chat, row, ask=False)
    elif argument.isdecimal() and 0 < int(argument) <= len(prompts):
        await _rewind_to(chat, prompts[int(argument) - 1])
    else:
        chat.screen.print_note(
            f"Usage: /rewind [1 to {len(prompts)}, counted from the last message, or undo]"
        )


async def _list_prompts(chat: Chat) -> list[Row]:
    """What the person said that can be taken back, in order."""
    if not chat.conversation.exists:
        return []
    return [row for row in await chat.conversation.load_rows() if row["role"] == "user" and "id" in row]


async def _rewind_to(chat: Chat, row: Row, *, ask: bool = True) -> None:
    if ask and not await chat.confirm(
        f"Take back “{make_printable(extract_text(row), width_limit=50)}” and all after it?"
    ):
        return
    done = await chat.conversation.take_back(row["id"])
    chat.prefill = done.content if isinstance(done.content, str) else ""
    chat.screen.print_line(
        f"Took back {done.messages} message{'' if done.messages == 1 else 's'}; /rewind undo brings them back."
    )


async def retry(chat: Chat, _: str) -> None:
    prompts = await _list_prompts(chat)
    if not prompts:
        chat.screen.print_note("There is nothing to ask again.")
        return
    rows = await chat.conversation.load_rows()
    if rows[-1]["role"] == "user":  # it was never answered
        await chat.answer(None)
        return
    done = await chat.conversation.take_back(prompts[-1]["id"])
    await chat.answer(done.content)


async def compress(chat: Chat, argument: str) -> None:
    async def show() -> None:
        async with aclosing(chat.conversation.compress(argument or None)) as events:
            async for event in events:
                chat.screen.handle_event(event)

    working = asyncio.create_task(show())
    chat.screen.begin()
    try:
        with quiet_keyboard.suppress_echo(), chat.handle_interrupts(working.cancel):
            await asyncio.wait([working])
    finally:
        chat.screen.end()
    if working.cancelled():
        chat.screen.print_note("Stopped; nothing is lost.")
    else:
        working.result()


async def stop(chat: Chat, _: str) -> None:
    """A turn is stopped with Ctrl-C; this ends what its tools left running."""
    stopping, ended = chat.conversation.parts.stop_processes, 0
    if stopping is not None:
        ended = await asyncio.to_thread(stopping, chat.conversation.store, chat.conversation.session_id)
    summary = (
        f"Stopped {ended} background process{'' if ended == 1 else 'es'}." if ended else "Nothing is running."
    )
    chat.screen.print_line(summary)


COMMANDS = (
    Command("undo", "[n]", "take back the last exchange, or the last n; /rewind undo brings it back", undo),
    Command(
        "rewind",
        "[n]",
        "go back to before a message of yours; /rewind undo brings back what was taken",
        rewind,
    ),
    Command("retry", "", "ask the last question again", retry),
    Command(
        "compress", "[focus]", "make room: go on from a summary, with what matters most in mind", compress
    ),
    Command("stop", "", "end what tools left running in the background (Ctrl-C stops a turn)", stop),
)
