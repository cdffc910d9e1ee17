"""A chat that is driven by what a person types, key by key, on a terminal that nobody sees."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from hermes.agent.parts import Parts
from hermes.chat.chat import Chat
from hermes.chat.commands import commands
from hermes.chat.completing import ChatCompleter
from hermes.chat.prompting import Prompting
from hermes.chat.rendering import Screen
from hermes.chat.session import Talk
from hermes_state import SessionDB
from tests.chat.echo import PARTS

ENTER, NEW_LINE, LEAVE, INTERRUPT, DOWN = "\r", "\x1b\r", "\x04", "\x03", "\x1b[B"

Typing = Callable[..., Awaitable[str]]


@pytest.fixture
def typing(db: SessionDB, tmp_path: Path) -> Typing:
    """`await typing("hello", "/title x")`: sends each line, then leaves; what the screen showed."""

    async def drive(
        *lines: str,
        resuming: str | None = None,
        parts: Parts = PARTS,
        keys: str = "",
        incognito: bool = False,
        store: SessionDB = db,
    ) -> str:
        shown = io.StringIO()
        screen = Screen(Console(file=shown, width=100))
        with create_pipe_input() as pipe:
            talk = Talk(store, parts, can_ask=True, cwd=tmp_path, incognito=incognito)
            chat = Chat(talk, screen)
            completer = ChatCompleter(store, commands().values(), lambda: tmp_path)
            chat.prompting = Prompting(
                completer, chat.toolbar, incognito=incognito, given=pipe, shown=DummyOutput()
            )
            text = "".join(f"{line}{ENTER}" for line in lines) + keys + LEAVE
            sending = asyncio.create_task(
                asyncio.to_thread(pipe.send_text, text)
            )  # a pipe holds only so much
            await asyncio.wait_for(chat.run(resuming), 20)
            await sending
        return shown.getvalue()

    return drive
