"""Commands about what was just said: take it back, bring it back, ask again, make room, stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes.chat.commands.table import Command
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.question import Option
from hermes.chat.view.recap import said
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat

Row = dict[str, Any]

OFFERED = 10


async def undo(chat: Chat, argument: str) -> None:
    if not argument.isdecimal() and argument:
        chat.screen.note("Usage: /undo [how many exchanges]")
        return
    asked = await _said(chat)
    many = int(argument or 1)
    if not asked or many < 1:
        chat.screen.note("There is nothing stored to take back.")
        return
    await _back_to(chat, asked[-min(many, len(asked))])


async def rewind(chat: Chat, argument: str) -> None:
    if argument == "undo":
        back = await chat.talk.bring_back() if chat.talk.exists else 0
        told = f"Brought back {back} message{'' if back == 1 else 's'}." if back else "Nothing to bring back."
        chat.screen.line(told)
        return
    asked = list(reversed(await _said(chat)))[:OFFERED]
    if not asked:
        chat.screen.note("There is nothing to go back to.")
    elif not argument:
        options = [Option(row["id"], make_printable(said(row), width_limit=70)) for row in asked]
        chosen = await chat.choose("Go back to before:", options)
        row = next((row for row in asked if row["id"] == chosen), None)
        if row is not None:
            await _back_to(chat, row, ask=False)
    elif argument.isdecimal() and 0 < int(argument) <= len(asked):
        await _back_to(chat, asked[int(argument) - 1])
    else:
        chat.screen.note(f"Usage: /rewind [1 to {len(asked)}, counted from the last message, or undo]")


async def _said(chat: Chat) -> list[Row]:
    """What the person said that can be taken back, in order."""
    if not chat.talk.exists:
        return []
    return [row for row in await chat.talk.rows() if row["role"] == "user" and "id" in row]


async def _back_to(chat: Chat, row: Row, *, ask: bool = True) -> None:
    if ask and not await chat.confirmed(
        f"Take back “{make_printable(said(row), width_limit=50)}” and all after it?"
    ):
        return
    done = await chat.talk.take_back(row["id"])
    chat.prefill = done.said if isinstance(done.said, str) else ""
    chat.screen.line(
        f"Took back {done.messages} message{'' if done.messages == 1 else 's'}; /rewind undo brings them back."
    )


async def retry(chat: Chat, _: str) -> None:
    asked = await _said(chat)
    if not asked:
        chat.screen.note("There is nothing to ask again.")
        return
    rows = await chat.talk.rows()
    if rows[-1]["role"] == "user":  # it was never answered
        await chat.answer(None)
        return
    done = await chat.talk.take_back(asked[-1]["id"])
    await chat.answer(done.said)


async def compress(chat: Chat, argument: str) -> None:
    await chat.talk.agent()
    if chat.talk.compressor is None:
        chat.screen.note("There is no compression here.")
        return
    happening = chat.talk.compressor.compress_by_hand(argument or None)

    async def show() -> None:
        async for event in happening:
            chat.screen.event(event)

    working = asyncio.create_task(show())
    chat.screen.begin()
    try:
        with quiet_keyboard.unseen(), chat.interruptible(working.cancel):
            await asyncio.wait([working])
    finally:
        chat.screen.end()
    if working.cancelled():
        chat.screen.note("Stopped; nothing is lost.")
    else:
        working.result()


async def stop(chat: Chat, _: str) -> None:
    """A turn is stopped with Ctrl-C; this ends what its tools left running."""
    stopping, ended = chat.talk.parts.stop_processes, 0
    if stopping is not None:
        ended = await asyncio.to_thread(stopping, chat.talk.db, chat.talk.session_id)
    told = (
        f"Stopped {ended} background process{'' if ended == 1 else 'es'}." if ended else "Nothing is running."
    )
    chat.screen.line(told)


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
