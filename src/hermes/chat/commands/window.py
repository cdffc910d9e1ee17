"""Commands about the terminal window: clear it, leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.chat.commands.table import Command, Leave

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


async def clear_screen(chat: Chat, _: str) -> None:
    if await chat.has_history() and not await chat.confirm("Clear the screen and start a new conversation?"):
        return
    await chat.conversation.begin()
    chat.screen.console.clear()
    chat.greet()


async def leave(_chat: Chat, _: str) -> None:
    raise Leave


COMMANDS = (
    Command("clear", "", "clear the screen and start a new conversation", clear_screen),
    Command("quit", "", "leave; the conversation is kept", leave),
)
