"""The state of one chat, shared by commands, resets and the mailbox: source, conversation, resets and
approvals. Also posts messages to the chat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, overload

from hermes import clock, errors
from hermes.agent.prompt.participants import SharedRoom
from hermes.agent.prompt.system_prompt import WHO
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.surface import ChatRoute, Surface
from hermes.db.store_queue import call_store_early
from hermes.gateway import incidents
from hermes.gateway.commands.command_context import ChatCommandContext, RememberedLists
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound.chat_approvals import Approvals, PendingApproval
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.incidents import Incident
from hermes.gateway.outbound.delivery import OutgoingMessage
from hermes.gateway.outbound.markdown_format import format_code
from hermes.gateway.sessions.daily_limit import Budget, find_limit
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.gateway.sessions.reset_scheduler import ChatResets
from hermes.gateway.sessions.session_keys import make_principal, make_room
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.sessions.topics import open_topics

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.db.scoped_store import ScopedStore
    from hermes.store.chats.inbox import InboxEntry

REPLACED = "ⓘ The earlier conversation of this chat was moved to the trash. A new one begins here."
_numbers = count(1)
TRASHED = "The previous conversation was deleted or moved to the trash, and a new one began."


class Chat:
    """A chat with its conversation, resets and approvals. Implements `CommandChat`."""

    def __init__(self, context: GatewayContext, lookup: SessionLookup, key: str, source: Source) -> None:
        self.key, self.source, self.is_shared = key, source, lookup.is_shared(source, key)
        self._context, self._lookup = context, lookup
        self._opening = asyncio.Lock()
        """Held while the session of the chat is looked up or created."""
        self._room = SharedRoom() if self.is_shared else None
        store = context.db.scoped(make_room(source) if self.is_shared else make_principal(source))
        surface = Surface(
            # Two chats in the same conversation are different lease holders, so that one waits for the other.
            name=f"gateway, chat {next(_numbers)}",
            stores_unanswered=True,
            make_session=self._make_session,
            route=ChatRoute(key, self.begin, self._handle_move),
        )
        self.conversation = Conversation(store, context.agents, self._make_scope(), surface)
        self.resets = ChatResets(context, self)
        self.approvals = Approvals(context, self)
        self.lists = RememberedLists()
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
        is_owner = not self.is_shared and context.access.is_owner(source)
        machine = is_owner and source.chat_type == "dm"
        can_ask = machine and context.access.can_approve(source)
        return AgentScope(
            who.owners[0],
            source.platform,
            machine,
            about,
            self._room,
            can_ask,
            is_owner=is_owner,
            limit=find_limit(context.settings, is_owner=is_owner, is_shared=self.is_shared),
        )

    def note_speaker(self, source: Source) -> None:
        """In a shared chat, record whether the sender in `source` owns the machine. An owner may change all notes
        in the memory of the room."""
        if self._room is not None:
            self._room.note_owner(make_principal(source).user, self._context.access.is_owner(source))

    # ---------------------------------------------------------------- the conversation

    @property
    def store(self) -> ScopedStore:
        return self.conversation.store

    @property
    def session_id(self) -> str | None:
        return self.conversation.known_id

    @property
    def epoch(self) -> int | None:
        return self.conversation.epoch

    @overload
    async def begin(self) -> str: ...
    @overload
    async def begin(self, *, create: bool) -> str | None: ...
    async def begin(self, *, create: bool = True) -> str | None:
        """Enter the chat's conversation, take its lease, and return the id of its live session. If the chat has no
        live session, create one. With `create=False`, return None instead. If this process does not hold the lease
        yet, determine the owner of the conversation and the permissions of the agent again, because they may have
        changed."""
        if self.epoch is None:
            self.conversation.scope = self._make_scope()
        before = self.session_id
        live = await self._find_session(create)
        if live is not None:
            try:
                await self.conversation.enter(live)
            except errors.UnknownSession:  # deleted since it was looked up
                live = await self._find_session(create)
                if live is not None:
                    await self.conversation.enter(live)
        if live is None:
            return None
        await self._handle_entry(before, live)
        return live

    async def begin_and_claim(self) -> InboxEntry | None:
        """Enter the chat's conversation as `begin` does, and claim the next message of the chat in the inbox.
        Return None if no message is waiting."""
        if self.epoch is None:
            self.conversation.scope = self._make_scope()
        before, claim = self.session_id, self._context.db.inbox.claim
        try:
            async with self._opening:
                entered = await self.conversation.enter_and_call(
                    lambda: self._lookup.open_session(self.key, self.source),
                    lambda session_id, epoch: claim(self.key, epoch, session_id),
                )
        except errors.UnknownSession:  # deleted since it was looked up
            entered = None
        if entered is None:
            await self.begin()
            return await self.claim()
        session_id, entry = entered
        await self._handle_entry(before, session_id)
        return entry

    async def claim(self, *, alongside: bool = False) -> InboxEntry | None:
        """Claim the next message of the chat, as `Inbox.claim` does."""
        claim = self._context.db.inbox.claim
        return await call_store_early(
            lambda: claim(self.key, self.epoch, self.conversation.session_id, alongside=alongside)
        )

    async def _handle_entry(self, before: str | None, session_id: str) -> None:
        """Do the work that is due after the chat has entered the session `session_id`: post a notice if it is a new
        one, and check the stored prompt of a shared chat. `before` is the id of the session in which the chat was
        before, or None."""
        await self._notify_if_replaced(before, session_id)
        if self.is_shared:
            await call_store_early(self._renew_prompt, session_id)

    async def _find_session(self, create: bool) -> str | None:
        if create:
            return await self._open_session()
        return await call_store_early(self.store.find_live_session, self.key)

    async def _open_session(self) -> str:
        async with self._opening:
            return await call_store_early(self._lookup.open_session, self.key, self.source)

    async def _make_session(self) -> str:
        """Return the id of a session for the chat after its session was deleted during a turn. Record the
        replacement for `/why`."""
        live = await self._open_session()
        self._lookup.pop_replaced(self.key)  # the turn reports the replacement
        await call_store_early(incidents.add_incident, self._context.db, self.key, TRASHED)
        return live

    async def _notify_if_replaced(self, before: str | None, session_id: str) -> None:
        """Post a notice if the chat is in a new session because the previous one was moved to the trash."""
        replaced = self._lookup.pop_replaced(self.key)
        if not replaced and before not in (None, session_id):
            row = await call_store_early(lambda: self.store.get_session(before, include_trashed=True))
            replaced = row is not None and row["trashed_at"] is not None
        if replaced:
            await self.post(REPLACED, f"replaced:{session_id}")
            await call_store_early(incidents.add_incident, self._context.db, self.key, TRASHED)

    def _renew_prompt(self, session_id: str) -> None:
        """Discard the stored prompt of a shared room if it describes a single person. Earlier versions stored
        such prompts."""
        session = self.store.get_session(session_id)
        if session is not None and WHO in (session["system_prompt"] or ""):
            self.store.update_system_prompt(session_id, None)

    async def _handle_move(self, session_id: str) -> None:
        await call_store_early(incidents.note_arrival, self._context.db, self.key)
        await call_store_early(self._rebind_topic, session_id)

    def _rebind_topic(self, session_id: str) -> None:
        """If the chat is a Telegram topic that is bound to a session, bind the topic to the session `session_id`
        instead."""
        topics, thread = open_topics(self._context.db, self.source), self.source.thread_id
        if topics is not None and thread and topics.find_binding(thread) is not None:
            with suppress(ValueError):  # the session stays bound to another topic
                topics.bind(thread, self.key, session_id)

    def read_budget(self) -> Budget | None:
        """Return the daily limits of the conversation's owner and how much of them is used today. Return None if
        the owner has no limit."""
        scope = self._make_scope()
        limit = find_limit(self._context.settings, is_owner=scope.is_owner, is_shared=self.is_shared)
        return None if limit is None else limit.read(self.store, scope.owner)

    @property
    def working_since(self) -> float | None:
        return self.conversation.working_since

    @property
    def waiting_approvals(self) -> Sequence[PendingApproval]:
        return self.approvals.waiting

    @property
    def subagents(self) -> Subagents:
        return self._context.agents.subagents

    def answer_approval(self, context: ChatCommandContext, words: str, *, allowed: bool) -> str:
        return self.approvals.answer(context, words, allowed=allowed)

    # ---------------------------------------------------------------- during a turn

    async def refresh(self, is_working: bool) -> None:
        """Read the session, the incidents and the waiting messages of the chat from the store. Called before a
        command that is answered at once. `is_working` says whether a message of the chat is being processed."""
        inbox = self._context.db.inbox
        live = await call_store_early(self.store.find_live_session, self.key)
        self.conversation.observe(live)
        self.was_trashed = live is None and await call_store_early(
            self._context.db.routing.was_trashed, self.key
        )
        self.incidents = [
            *await call_store_early(incidents.list_incidents, self._context.db, self.key),
            *(
                Incident(
                    clock.now(),
                    f"I wait for your approval ({format_code(approval.name)}); nothing was done yet.",
                )
                for approval in self.approvals.waiting
            ),
        ]
        self._waiting = len(await call_store_early(inbox.list_waiting, self.key)) - is_working

    @property
    def waiting(self) -> int:
        return max(0, self._waiting)

    # ---------------------------------------------------------------- command context and replies

    def make_command_context(self, source: Source, event: Event | None = None) -> ChatCommandContext:
        """Return the context of a command. `event` is the message with the command if the command is answered
        at once. It is None for a command that was claimed from the inbox."""
        context = self._context
        return ChatCommandContext(
            source,
            context.db.scoped(make_principal(source)),
            self,
            context.settings,
            context.adapters,
            partial(context.store_setting, by=source),
            open_topics(context.db, source),
            self.resets.next_reset_at,
            context.access.is_owner(source),
            context.access.can_approve(source),
            None if event is None else event.sent_at,
            None if event is None else event.message_id,
            self.resets.list_holds,
            self.read_budget,
        )

    def prepare_post(
        self,
        text: str,
        idempotency_key: str,
        *,
        edits: str | None = None,
        reply: bool = False,
        silent: bool = False,
        doubtful: bool = False,
        then: Callable[[], object] | None = None,
    ) -> Callable[[], Awaitable[bool]]:
        """Return a function that posts `text` to the chat. If the store fails, the function can be called again.
        `reply` makes the text a reply to the person's message. The other parameters are those of `OutgoingMessage`
        and `Delivery.post`. If the person is blocked, the returned function does nothing."""
        if self._context.access.is_blocked(self.source):
            return _post_nothing
        message = OutgoingMessage(self.source, text, self.reply_to if reply else None, silent, edits)
        return partial(
            self._context.delivery.post,
            self.key,
            message,
            idempotency_key,
            self.session_id,
            early=True,
            doubtful=doubtful,
            then=then,
        )

    async def post(self, text: str, idempotency_key: str, *, silent: bool = False) -> None:
        await self.prepare_post(text, idempotency_key, silent=silent)()

    def remove_transcripts(self, session_ids: Sequence[str]) -> None:
        """Remove the transcript files of sessions from which a message was deleted. The gateway writes them
        again from the store."""
        folder = self._context.db.db_path.parent / "sessions"
        for session_id in session_ids:
            if "/" not in session_id:
                (folder / f"{session_id}.jsonl").unlink(missing_ok=True)

    async def resend_unknown(self) -> int:
        return await self._context.delivery.resend_unknown(self.key)

    async def drop_queued(self) -> int:
        return await self._context.delivery.drop_queued(self.key)

    @property
    def reply_to(self) -> str | None:
        """The platform id of the message to which an answer is sent as a reply. In a group, this shows who is
        answered. None in a private chat."""
        return None if self.source.chat_type == "dm" else self.source.message_id


async def _post_nothing() -> bool:
    return False
