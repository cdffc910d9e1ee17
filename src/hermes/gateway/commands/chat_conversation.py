"""A chat as the commands that every surface has see it: its conversation, its surface, and their context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import errors
from hermes.conversation.commands.command_types import CommandContext, ModelDescription, Option
from hermes.gateway.commands.command_context import ChatCommandContext, CommandChat
from hermes.gateway.commands.visible_conversations import ChatVisibility

if TYPE_CHECKING:
    from hermes.agent.events import Event
    from hermes.agent.subagents import Subagents
    from hermes.db.scoped_store import ScopedStore

Row = dict[str, Any]

MOST_HITS = 5
"""On a telephone."""


def make_core_context(context: ChatCommandContext) -> CommandContext:
    return CommandContext(
        context.store,
        ChatConversation(context.chat, context.store),
        ChatSurface(context),
        ChatVisibility(context),
        most_hits=MOST_HITS,
    )


class RewindResult(NamedTuple):
    messages: int
    content: Any


class ChatConversation:
    """The conversation of a chat, changed as the sender of a command may change it."""

    queued_title: str | None = None
    incognito = False
    previous_id: str | None = None

    def __init__(self, chat: CommandChat, store: ScopedStore) -> None:
        self._chat, self._store = chat, store

    @property
    def session_id(self) -> str | None:
        return self._chat.session_id

    @property
    def exists(self) -> bool:
        return self.session_id is not None

    @property
    def epoch(self) -> int | None:
        return self._chat.epoch

    def _require_id(self) -> str:
        assert self.session_id is not None
        return self.session_id

    async def ensure_session(self) -> bool:
        await self._chat.begin()
        return True

    async def load_rows(self) -> list[Row]:
        session_id = self.session_id
        if session_id is None:
            return []
        return await asyncio.to_thread(self._store.get_context, session_id)

    async def take_back(self, message_id: int) -> RewindResult:
        rewind = partial(self._store.rewind_to_message, lease_epoch=self.epoch)
        done = await asyncio.to_thread(rewind, self._require_id(), message_id)
        return RewindResult(done["rewound_count"], done["target_message"]["content"])

    async def bring_back(self) -> int:
        restore = partial(self._store.restore_last_rewind, lease_epoch=self.epoch)
        return await asyncio.to_thread(restore, self._require_id())

    def compress(self, focus: str | None) -> AsyncIterator[Event]:
        return self._chat.compress(focus)

    def stop(self) -> bool:
        return self._chat.stop()

    async def begin(self, title: str | None) -> None:
        await self._chat.save()
        left_id = self._require_id()  # that turn may have compressed the conversation
        reset = partial(self._store.reset, reason="session_reset", title=title, **self._get_fence())
        await self._chat.switch_to(await asyncio.to_thread(reset, left_id))

    def _get_fence(self) -> dict[str, Any]:
        return {"lease_epoch": self.epoch, "session_key": self._chat.key}

    async def check_free(self, session_id: str) -> None:
        lease = await asyncio.to_thread(self._store.leases.find_holder, session_id)
        if lease is not None and lease.epoch != self.epoch:
            raise errors.LeaseHeld(f"session {session_id!r} is in use", lease)

    async def switch_to(self, session_id: str) -> Sequence[str]:
        await self.check_free(session_id)
        if await asyncio.to_thread(self._store.find_live_session, self._chat.key) != session_id:
            await self._chat.begin()
            switch = partial(self._store.switch_session, lease_epoch=self.epoch)
            route = await asyncio.to_thread(switch, self._chat.key, session_id)
            if route is None:
                raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id}")
            session_id = route.session_id
        await self._chat.switch_to(session_id)
        return ()

    async def branch(self, title: str | None) -> str:
        branch = partial(self._store.branch, title=title, **self._get_fence())
        child = await asyncio.to_thread(branch, self._require_id())
        await self._chat.switch_to(child)
        return child


class ChatSurface:
    """A chat platform: nobody is asked back, and all chats have the same model."""

    def __init__(self, context: ChatCommandContext) -> None:
        self._context, self._chat = context, context.chat

    @property
    def waiting(self) -> int:
        return self._chat.waiting

    async def confirm(self, question: str) -> bool:
        return True

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        return None

    async def read_memory(self) -> str:
        read = (await asyncio.to_thread(self._chat.get_components)).memory
        return "" if read is None else await asyncio.to_thread(read)

    async def list_skills(self) -> Sequence[tuple[str, str]]:
        read = (await asyncio.to_thread(self._chat.get_components)).skills
        return () if read is None else await asyncio.to_thread(read)

    async def describe_model(self) -> ModelDescription | None:
        session_id = self._chat.session_id
        row = (
            None
            if session_id is None
            else await asyncio.to_thread(self._context.store.get_session, session_id)
        )
        return None if row is None or not row["model"] else ModelDescription(row["model"], "")

    async def choose_model(self, name: str) -> str | None:
        return None

    @property
    def subagents(self) -> Subagents:
        return self._chat.subagents

    async def stop_processes(self) -> int:
        session_id = self._chat.session_id
        stop = (await asyncio.to_thread(self._chat.get_components)).stop_processes
        if stop is None or session_id is None:
            return 0
        return await asyncio.to_thread(stop, self._context.store, session_id)
