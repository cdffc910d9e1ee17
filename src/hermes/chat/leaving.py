"""Leaving the terminal conversation: the question about background processes, and the farewell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.chat.input.question import Option
from hermes.chat.view.recap import format_farewell
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.chat.terminal_loop import Chat


async def may_leave(chat: Chat) -> bool:
    """Return whether the terminal program may end. If background processes are running, ask the person first,
    because they end with the program. If the person has answered twice that they want to stay, return True
    without asking again."""
    commands = _list_processes(chat)
    if not commands or chat.refused_to_leave >= 2:
        return True
    are = "process is" if len(commands) == 1 else "processes are"
    chat.screen.print_line(f"{len(commands)} background {are} running and will end with the chat:")
    for command in commands:
        chat.screen.print_line(f"  {make_printable(command, width_limit=100)}")
    options = [Option(True, "leave and end them", "y"), Option(False, "stay", "n")]
    leaves = await chat.choose("Leave?", options, default=1) or False
    chat.refused_to_leave += not leaves
    return leaves


async def say_goodbye(chat: Chat) -> None:
    """Close the conversation and show how to resume it."""
    conversation, screen = chat.conversation, chat.screen
    rows: list[dict[str, Any]] = []
    with suppress(errors.StoreError):
        rows = [row for row in await conversation.load_rows() if row.get("role") != "system"]
    is_stored, title = conversation.exists, None
    with suppress(errors.StoreError):
        title = await asyncio.to_thread(conversation.get_title)
    processes = len(_list_processes(chat))
    await conversation.close()
    if processes:
        screen.print_line(f"Ended {format_count(processes, 'background process', 'background processes')}.")
    if conversation.incognito:
        kept = f", except what you saved: {', '.join(map(str, chat.saved))}" if chat.saved else ""
        screen.print_line(f"Goodbye. Nothing of this was kept{kept}.")
        return
    seconds = clock.now() - conversation.started_at
    for line in format_farewell(conversation.session_id, title, seconds, rows if is_stored else []):
        screen.print_line(line)


def _list_processes(chat: Chat) -> Sequence[str]:
    list_running = chat.conversation.parts.list_processes
    return () if list_running is None else list_running()
