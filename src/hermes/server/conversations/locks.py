"""Locks on conversations. A request locks its conversation while it is handled, so that nobody else writes to it.
The lock is the lease of the conversation. Each request is a separate lease holder. When the lock is released, the
history index is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, ParamSpec, TypeVar

from hermes import errors
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.surface import Surface
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.context import GatewayContext
from hermes.gateway.sessions.daily_limit import find_limit
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.logs import get_logger
from hermes.server.api_keys import Person
from hermes.server.conversations.history_index import HistoryIndex
from hermes.server.message_format import ChatMessage, RequestMessages, convert_rows, encode_canonically
from hermes.server.workers import Workers

T = TypeVar("T")
P = ParamSpec("P")
_numbers = count(1)

log = get_logger(__name__)

BUSY = "another request is working in this conversation"
INSTRUCTED = (
    "The program through which the person talks with you gives these instructions for the conversation:"
)
INSTRUCTED_SO_FAR = "(These were the instructions of the program.)"


class LockedConversation(NamedTuple):
    """A conversation that a request has locked, together with facts about the request."""

    person: Person
    conversation: Conversation[ScopedStore]
    conversation_id: str
    """The first session of the conversation. Compression does not change it."""
    content: Any
    """The new message, or None if the message is already stored and has no answer yet."""
    repeated_message_id: int | None = None
    """The id of the new message if it is already stored, otherwise None."""
    is_temporary: bool = False
    """Whether the conversation is moved to the trash when it is released."""
    note: str | None = None
    """A note for the client about this conversation."""
    is_new: bool = False
    """Whether this request made the session. The session is deleted if no message is stored in it."""
    mark: str | None = None
    """The mark of the request in the request journal. The new message is stored with it."""
    stored_answer: tuple[dict[str, Any], ...] = ()
    """The rows of the answer that an earlier copy of the request left in the store."""
    is_answered: bool = False
    """Whether `stored_answer` is complete, so that the model is not asked."""

    @property
    def current(self) -> str:
        """The id of the first session of the conversation. If the conversation was deleted while it was locked, this is
        the id of the session that replaces it."""
        return self.conversation.replaced_by or self.conversation_id


class ConversationLocks:
    def __init__(self, context: GatewayContext, index: HistoryIndex, workers: Workers) -> None:
        self._context, self._index, self._workers = context, index, workers
        self._working: dict[str, Conversation[ScopedStore]] = {}
        """The locked conversations, by the id of their first session."""

    def get_store(self, person: Person) -> ScopedStore:
        return self._context.db.scoped(person.principal)

    async def run_in_thread(
        self, person: Person, work: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `work` in a worker thread and return its result. The number of threads per API key is limited."""
        return await self._workers.run(person.name, work, *args, **options)

    async def lock_if_free(
        self, person: Person, session_id: str, request: RequestMessages
    ) -> LockedConversation | None:
        try:
            return await self.lock(person, session_id, request)
        except errors.LeaseHeld:
            return None

    async def lock(
        self,
        person: Person,
        session_id: str,
        request: RequestMessages,
        make_session: Callable[[], str] | None = None,
    ) -> LockedConversation:
        """Lock the conversation of a session for a request. Raise `LeaseHeld` if another request or process works in
        it.

        If the conversation is deleted while it is locked, `make_session` is called to create the session that replaces
        it.
        """
        store = self.get_store(person)
        root = await self._find_root(person, session_id)
        conversation = self._make_conversation(person, request.instructions, make_session)
        if root in self._working:
            raise errors.LeaseHeld(BUSY, self._working[root].record.lease)
        self._working[root] = conversation
        try:
            live = await self.run_in_thread(person, store.get_compression_tip, session_id)
            await conversation.enter(live)
            if await self.run_in_thread(person, store.get_compression_tip, session_id) != live:
                raise errors.LeaseHeld("this conversation was compressed in the meantime; try again")
        except BaseException:
            del self._working[root]
            await conversation.leave()
            raise
        return LockedConversation(person, conversation, root, request.new.content)

    async def view(self, person: Person, session_id: str) -> Conversation[ScopedStore]:
        """Return the conversation of a session for reading. If a request of `person` has locked the conversation at the
        moment, return the `Conversation` object of that request. Otherwise return a new object without a lease."""
        working = self._working.get(await self._find_root(person, session_id))
        if working is not None and working.store.principal == person.principal:
            return working
        conversation = self._make_conversation(person, None, None)
        store = self.get_store(person)
        conversation.observe(await self.run_in_thread(person, store.get_compression_tip, session_id))
        return conversation

    async def _find_root(self, person: Person, session_id: str) -> str:
        root = await self.run_in_thread(person, self.get_store(person).get_conversation_root, session_id)
        return root or session_id

    def _make_conversation(
        self, person: Person, instructions: str | None, make_session: Callable[[], str] | None
    ) -> Conversation[ScopedStore]:
        store = self.get_store(person)

        async def replace_session() -> str:
            make = make_session or (lambda: store.create_session(origin=person.source.to_dict()))
            return await self.run_in_thread(person, make)

        scope = self._make_scope(person, instructions)
        surface = Surface(
            name=f"gateway, request {next(_numbers)}",
            stores_unanswered=True,
            is_per_request=True,
            make_session=replace_session,
        )
        return Conversation(store, self._context.agents, scope, surface)

    async def leave(self, locked: LockedConversation) -> None:
        """Release a locked conversation and update its mark in the history index. If the request created the session
        and nothing was stored in it, delete the session. If the conversation is temporary, move it to the trash."""
        try:
            if locked.is_new and await self.run_in_thread(
                locked.person, self.discard_if_empty, locked.current
            ):
                pass
            elif locked.is_temporary:
                await self.run_in_thread(
                    locked.person, locked.conversation.store.trash_session, locked.current
                )
            else:
                await self.run_in_thread(locked.person, self._update_index, locked)
        except errors.StoreError as problem:
            if locked.is_temporary:
                log.error("a conversation with `store: false` could not be moved to the trash: %s", problem)
            # For other conversations nothing is logged. Without an index entry, the conversation is only not found by
            # its history.
        finally:
            await locked.conversation.leave()
            del self._working[locked.conversation_id]

    def discard_if_empty(self, session_id: str) -> bool:
        """Delete a session that has no messages. Return whether it was deleted. Nobody else may work in it."""
        db = self._context.db
        return not db.message_count(session_id) and db.delete_session(session_id)

    def _update_index(self, locked: LockedConversation) -> None:
        store = locked.conversation.store
        first = store.get_session(locked.current)
        if first is None or first["parent_session_id"] is not None:
            return  # a branch does not contain the whole history that its client sends
        messages = convert_rows(store.follow(locked.current))
        self._index.put(locked.current, make_mark(locked.person, messages) if messages else None)

    async def store_messages(self, locked: LockedConversation, messages: Sequence[ChatMessage]) -> None:
        """Store `messages` in a locked conversation. They are the history that the client sent before its new
        message."""
        store, session_id, epoch = (
            locked.conversation.store,
            locked.conversation.session_id,
            locked.conversation.epoch,
        )
        if not messages:
            return

        def keep() -> None:
            if not store.get_context(session_id):  # one transaction: all messages or none
                rows = [{"role": message.role, "content": message.content} for message in messages]
                store.replace_messages(session_id, rows, lease_epoch=epoch)
                return
            for message in messages:
                store.append_message(session_id, message.role, message.content, lease_epoch=epoch)

        await self.run_in_thread(locked.person, keep)

    # ---------------------------------------------------------------- the prompt

    def _make_scope(self, person: Person, instructions: str | None) -> AgentScope:
        context, source = self._context, person.source
        about = build_session_context_prompt(
            source,
            shared=False,
            platforms=list(context.adapters),
            home_channels={
                name: platform.home_channel
                for name, platform in context.settings.platforms.items()
                if platform.home_channel
            },
        )
        if instructions:
            about = f"{about}\n\n{_format_instructions(instructions)}"
        is_owner = context.access.is_owner(source)
        limit = find_limit(context.settings, is_owner=is_owner)
        return AgentScope(
            person.principal.person,
            source.platform,
            is_owner,
            about,
            is_owner=is_owner,
            limit=limit,
            model=person.only_model,
        )

    async def update_instructions(
        self, locked: LockedConversation, instructions: str | None, *, keep: bool = False
    ) -> None:
        """Clear the stored system prompt of a locked conversation if `instructions`, the instructions in the request,
        differ from those in the prompt. The next turn then builds a new prompt.

        With `keep`, a request without instructions does not change the prompt.
        """
        store, session_id = locked.conversation.store, locked.conversation.session_id
        session = await self.run_in_thread(locked.person, store.get_session, session_id)
        prompt = None if session is None else session["system_prompt"]
        if prompt is None or (keep and instructions is None):
            return
        same = _format_instructions(instructions) in prompt if instructions else INSTRUCTED not in prompt
        if not same:
            await self.run_in_thread(locked.person, store.update_system_prompt, session_id, None)


def _format_instructions(instructions: str) -> str:
    return f"{INSTRUCTED}\n\n{instructions}\n\n{INSTRUCTED_SO_FAR}"


def make_mark(person: Person, messages: Sequence[ChatMessage]) -> str:
    return person.make_mark("conversation", encode_canonically(messages))
