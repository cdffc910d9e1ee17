"""The state of one chat, as commands, resets and the mailbox use it: source, conversation, approvals, posting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from hermes import clock, errors
from hermes.agent.components import AgentComponents
from hermes.agent.events import Event as TurnEvent
from hermes.agent.prompt.participants import SharedRoom
from hermes.agent.prompt.system_prompt import WHO
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.surface import Surface
from hermes.gateway import incidents
from hermes.gateway.commands.command_context import ChatCommandContext
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound.chat_approvals import Approvals, PendingApproval
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.incidents import Incident
from hermes.gateway.outbound.delivery import OutgoingMessage
from hermes.gateway.outbound.markdown_format import format_code
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.gateway.sessions.reset_scheduler import ChatResets
from hermes.gateway.sessions.session_keys import make_principal, make_room
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.sessions.topics import open_topics

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.db.scoped_store import ScopedStore

REPLACED = "ⓘ The earlier conversation of this chat was moved to the trash. A new one begins here."
_numbers = count(1)
TRASHED = "The conversation before was deleted or moved to the trash, and a new one began."


class Chat:
    """The `CommandChat` of this chat, its conversation, resets and approvals."""

    def __init__(self, context: GatewayContext, lookup: SessionLookup, key: str, source: Source) -> None:
        self.key, self.source, self.is_shared = key, source, lookup.is_shared(source, key)
        self._context, self._lookup = context, lookup
        self._room = SharedRoom() if self.is_shared else None
        store = context.db.scoped(make_room(source) if self.is_shared else make_principal(source))
        surface = Surface(
            # Two chats that continue in one conversation are two holders: one waits for the other.
            name=f"gateway, chat {next(_numbers)}",
            stores_unanswered=True,
            make_session=self._make_session,
        )
        self.conversation = Conversation(store, context.agents, self._make_scope(), surface)
        self.resets = ChatResets(context, self)
        self.approvals = Approvals(context, self)
        self._live: str | None = None
        self._waiting = 0
        self.incidents: Sequence[Incident] = ()
        self.was_trashed = False

    def _make_scope(self) -> AgentScope:
        source, context = self.source, self._context
        about = build_session_context_prompt(
            source,
            shared=self.is_shared,
            platforms=list(context.adapters),
            home_channels={
                name: platform.home_channel
                for name, platform in context.settings.platforms.items()
                if platform.home_channel
            },
            redact_pii=context.settings.redact_pii,
        )
        who = make_room(source) if self.is_shared else make_principal(source)
        machine = not self.is_shared and source.chat_type == "dm" and context.access.is_owner(source)
        can_ask = machine and context.access.can_approve(source)
        return AgentScope(who.owners[0], source.platform, machine, about, self._room, can_ask)

    def note_speaker(self, source: Source) -> None:
        """Note who speaks here, where several do: whoever owns the machine may change all notes of the room."""
        if self._room is not None:
            self._room.note_owner(make_principal(source).user, self._context.access.is_owner(source))

    # ---------------------------------------------------------------- the conversation

    @property
    def store(self) -> ScopedStore:
        return self.conversation.store

    @property
    def session_id(self) -> str | None:
        return self.conversation.session_id if self.conversation.exists else self._live

    @property
    def epoch(self) -> int | None:
        return self.conversation.epoch

    async def begin(self) -> str:
        """The conversation that the chat is in, under its lease: whose it is, and whether the machine is theirs, may
        have changed since the last time."""
        if not self.conversation.exists:
            self.conversation.scope = self._make_scope()
        before = self._live
        self._live = await self._lookup.ensure_session(self.key, self.source)
        try:
            await self.conversation.enter(self._live)
        except errors.UnknownSession:  # deleted since it was looked up
            self._live = await self._lookup.ensure_session(self.key, self.source)
            await self.conversation.enter(self._live)
        await self._notify_if_replaced(before, self._live)
        if self.is_shared:
            await asyncio.to_thread(self._renew_prompt, self._live)
        return self._live

    async def _make_session(self) -> str:
        """The session in which the chat continues when its own was deleted during a turn."""
        self._live = await self._lookup.ensure_session(self.key, self.source)
        self._lookup.pop_replaced(self.key)  # the turn tells it
        await asyncio.to_thread(incidents.add_incident, self._context.db, self.key, TRASHED)
        return self._live

    async def _notify_if_replaced(self, before: str | None, session_id: str) -> None:
        """Say once that the chat continues in a new session because the earlier one was moved to the trash."""
        replaced = self._lookup.pop_replaced(self.key)
        if not replaced and before not in (None, session_id):
            row = await asyncio.to_thread(lambda: self.store.get_session(before, include_trashed=True))
            replaced = row is not None and row["trashed_at"] is not None
        if replaced:
            await self.post(REPLACED, f"replaced:{session_id}")
            await asyncio.to_thread(incidents.add_incident, self._context.db, self.key, TRASHED)

    def _renew_prompt(self, session_id: str) -> None:
        """Have the prompt of a room made anew if it is one for a single person: earlier versions gave it that."""
        session = self.store.get_session(session_id)
        if session is not None and WHO in (session["system_prompt"] or ""):
            self.store.update_system_prompt(session_id, None)

    async def switch_to(self, session_id: str) -> None:
        await self.conversation.enter(session_id)
        self._live = session_id
        await asyncio.to_thread(incidents.note_arrival, self._context.db, self.key)
        await asyncio.to_thread(self._rebind_topic, session_id)

    def _rebind_topic(self, session_id: str) -> None:
        """A topic of Telegram's that is linked to what was left is linked to what it goes on in."""
        topics, thread = open_topics(self._context.db, self.source), self.source.thread_id
        if topics is not None and thread and topics.find_binding(thread) is not None:
            with suppress(ValueError):  # it is linked to another topic, and stays so
                topics.bind(thread, self.key, session_id)

    async def save(self) -> None:
        await self.conversation.save()

    def compress(self, focus: str | None) -> AsyncIterator[TurnEvent]:
        return self.conversation.compress(focus)

    def get_components(self) -> AgentComponents:
        return self.conversation.parts

    @property
    def working_since(self) -> float | None:
        return self.conversation.working_since

    def stop(self) -> bool:
        return self.conversation.stop()

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        return self.approvals.waiting

    @property
    def subagents(self) -> Subagents:
        return self._context.agents.subagents

    def answer_approval(self, context: ChatCommandContext, *, allowed: bool) -> str:
        return self.approvals.answer(context, allowed=allowed)

    # ---------------------------------------------------------------- beside the work

    async def refresh(self, is_working: bool) -> None:
        """Find out where the chat is, for a command that is answered beside the work."""
        inbox = self._context.db.inbox
        self._live = await asyncio.to_thread(self.store.find_live_session, self.key)
        self.was_trashed = self._live is None and await asyncio.to_thread(
            self._context.db.routing.was_trashed, self.key
        )
        self.incidents = [
            *await asyncio.to_thread(incidents.list_incidents, self._context.db, self.key),
            *(
                Incident(
                    clock.now(),
                    f"I wait for your approval ({format_code(approval.name)}); nothing was done yet.",
                )
                for approval in self.approvals.waiting
            ),
        ]
        self._waiting = len(await asyncio.to_thread(inbox.list_waiting, self.key)) - is_working

    @property
    def waiting(self) -> int:
        return max(0, self._waiting)

    # ---------------------------------------------------------------- who asks, and what is answered

    def make_command_context(
        self, source: Source, words: str, event: Event | None = None
    ) -> ChatCommandContext:
        """`event` is the message, if it is answered at once."""
        context = self._context
        return ChatCommandContext(
            source,
            words,
            context.db.scoped(make_principal(source)),
            self,
            context.settings,
            context.adapters,
            context.store_setting,
            open_topics(context.db, source),
            self.resets.next_reset_at,
            context.access.is_owner(source),
            context.access.can_approve(source),
            None if event is None else event.sent_at,
            None if event is None else event.message_id,
        )

    def prepare_post(
        self,
        text: str,
        idempotency_key: str,
        *,
        edits: str | None = None,
        reply: bool = False,
        silent: bool = False,
    ) -> Callable[[], Awaitable[bool]]:
        """A call that posts a message. It can be repeated if the store refused it."""
        message = OutgoingMessage(self.source, text, self.reply_to if reply else None, silent, edits)
        return partial(self._context.delivery.post, self.key, message, idempotency_key, self.session_id)

    async def post(self, text: str, idempotency_key: str, *, silent: bool = False) -> None:
        await self.prepare_post(text, idempotency_key, silent=silent)()

    @property
    def reply_to(self) -> str | None:
        """Where others talk, too, an answer says to whom."""
        return None if self.source.chat_type == "dm" else self.source.message_id
