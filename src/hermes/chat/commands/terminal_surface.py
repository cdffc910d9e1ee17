"""The terminal as the commands that every surface has see it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.chat.conversation_lookup import describe_candidates, find_latest
from hermes.chat.input import question
from hermes.config.redaction import redact_text
from hermes.conversation.commands.command_types import CommandContext, ModelDescription, Option
from hermes.text import make_printable

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from hermes.agent.subagents import Subagents
    from hermes.chat.terminal_loop import Chat


def make_core_context(chat: Chat, patience: TimerHandle | None = None) -> CommandContext:
    """`patience` tells a person who waits what they wait for; it is cancelled when the person is asked something."""
    store = chat.conversation.store

    def find_latest_id() -> str | None:
        row = find_latest(store)
        return None if row is None else row["id"]

    return CommandContext(
        store,
        chat.conversation,
        TerminalSurface(chat, patience),
        listed=chat.listed,
        find_latest=find_latest_id,
    )


class TerminalSurface:
    waiting = 0

    def __init__(self, chat: Chat, patience: TimerHandle | None) -> None:
        self._chat, self._patience = chat, patience

    async def confirm(self, question: str) -> bool:
        self._lose_patience()
        return await self._chat.confirm(make_printable(question))

    async def choose(self, question_text: str, options: Sequence[Option]) -> str | None:
        self._lose_patience()
        texts = [make_printable(option.text, width_limit=70) for option in options]
        rows = [option.row for option in options if option.row is not None]
        if len(rows) == len(options):  # also whose they are
            texts = describe_candidates(rows)
        choices = [question.Option(option.id, text) for option, text in zip(options, texts, strict=True)]
        return await self._chat.choose(make_printable(question_text), choices)

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    async def read_memory(self) -> str:
        read = self._chat.conversation.parts.memory
        return "" if read is None else await asyncio.to_thread(read)

    async def list_skills(self) -> Sequence[tuple[str, str]]:
        read = self._chat.conversation.parts.skills
        return () if read is None else await asyncio.to_thread(read)

    async def describe_model(self) -> ModelDescription | None:
        model = (await self._chat.conversation.prepare()).agent.model
        return ModelDescription(model.name, redact_text(model.base_url or model.provider or "unknown"))

    async def choose_model(self, name: str) -> str | None:
        return (await self._chat.conversation.choose_model(name)).name

    @property
    def subagents(self) -> Subagents | None:
        known = self._chat.conversation.parts.subagents
        return None if known is None else known()

    async def stop_processes(self) -> int:
        conversation = self._chat.conversation
        stop = conversation.parts.stop_processes
        if stop is None:
            return 0
        return await asyncio.to_thread(stop, conversation.store, conversation.session_id)
