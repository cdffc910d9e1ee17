"""Runs the chat in an invisible terminal. Tests press keys and read the output."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import get_app
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from hermes.agent.components import AgentComponents
from hermes.chat.commands.table import load_commands
from hermes.chat.input.completion import ChatCompleter
from hermes.chat.input.prompt_line import PromptLine
from hermes.chat.terminal_loop import Chat
from hermes.chat.view.screen import Screen
from hermes.conversation.local_conversation import open_local_conversation
from hermes_state import SessionDB
from tests.chat.echo import PARTS

ENTER, NEW_LINE, LEAVE, INTERRUPT, DOWN = "\r", "\x1b\r", "\x04", "\x03", "\x1b[B"
SEEN = "\0"
"""Keys after this mark are pressed when the next question is on the screen."""
POSITION = "\x1b[20;3R"
PATIENCE_S = 60

Typing = Callable[..., Awaitable[str]]


class Terminal(DummyOutput):
    """An invisible terminal. It answers cursor-position requests. The keys that answer a question are sent
    when the question is shown."""

    responds_to_cpr = True

    def __init__(self, pipe: PipeInput, answers: list[str]) -> None:
        self._pipe, self._answers = pipe, answers
        self.prompt_line: PromptLine

    def ask_for_cpr(self) -> None:
        is_question = get_app() is not self.prompt_line._session.app
        self._pipe.send_text(POSITION + (self._answers.pop(0) if is_question and self._answers else ""))


@pytest.fixture
def typing(db: SessionDB, tmp_path: Path) -> Typing:
    """Return a function. `await typing("hello", "/title x")` types each line, leaves the chat, and returns
    the output on the screen.

    `question` is the question on the command line of the chat. `keys` are pressed after the lines. Keys after
    a `SEEN` wait for the next question.
    """

    async def drive(
        *lines: str,
        resuming: str | None = None,
        parts: AgentComponents = PARTS,
        keys: str = "",
        incognito: bool = False,
        store: SessionDB = db,
        question: str = "",
    ) -> str:
        shown = io.StringIO()
        screen = Screen(Console(file=shown, width=100))
        with create_pipe_input() as pipe:
            conversation = open_local_conversation(
                store, parts, can_ask=True, cwd=tmp_path, incognito=incognito
            )
            chat = Chat(conversation, screen)
            completer = ChatCompleter(store, load_commands().values(), lambda: tmp_path)
            text, *answers = ("".join(f"{line}{ENTER}" for line in lines) + keys + LEAVE).split(SEEN)
            terminal = Terminal(pipe, answers)
            chat.prompt_line = terminal.prompt_line = PromptLine(
                completer, chat.format_toolbar, incognito=incognito, keyboard=pipe, output=terminal
            )
            # in a thread, because a pipe has a limited capacity
            sending = asyncio.create_task(asyncio.to_thread(pipe.send_text, text))
            running = asyncio.create_task(chat.run(resuming, question=question))
            # `wait_for` would not fail: a cancelled chat ends like a chat that the person leaves.
            ended, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
            if not ended:
                running.cancel()
            await asyncio.gather(running, sending)
            assert ended, f"the chat did not end:\n{shown.getvalue()}"
        return shown.getvalue()

    return drive
