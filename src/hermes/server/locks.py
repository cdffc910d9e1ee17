"""Locks a conversation while a request works in it, so that nobody writes between the comparison and the answer.

Requests of this process lock by the first session of the conversation, processes by its lease: to the store, all
requests of one process are the same holder. Unlocking updates the history index.
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
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.logs import get_logger
from hermes.server.api_keys import Person
from hermes.server.history_index import HistoryIndex
from hermes.server.message_format import ChatMessage, RequestMessages, encode_canonically, messages_from_rows
from hermes.server.workers import Workers

T = TypeVar("T")
P = ParamSpec("P")
_numbers = count(1)

log = get_logger(__name__)

INSTRUCTED = (
    "The program through which the person talks with you gives these instructions for the conversation:"
)
INSTRUCTED_SO_FAR = "(These were the instructions of the program.)"


class LockedConversation(NamedTuple):
    """A conversation that a request holds."""

    person: Person
    conversation: Conversation[ScopedStore]
    conversation_id: str
    """Its first session: the id that stays."""
    content: Any
    """What is to be said; None if it was said before and has got no answer yet."""
    repeated_message_id: int | None = None
    """The message, in that case."""
    is_temporary: bool = False
    """Whether it is thrown away when it is left."""
    note: str | None = None
    """What the client should know about the conversation."""

    @property
    def current(self) -> str:
        """The first session of the conversation as it goes on: another one if this was deleted meanwhile."""
        return self.conversation.replaced_by or self.conversation_id


class ConversationLocks:
    def __init__(self, context: GatewayContext, index: HistoryIndex, workers: Workers) -> None:
        self._context, self._index, self._workers = context, index, workers
        self._held: set[str] = set()

    def store(self, person: Person) -> ScopedStore:
        return self._context.db.scoped(person.principal)

    async def run_in_thread(
        self, person: Person, work: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """In a thread, of which each key has few."""
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
    ) -> LockedConversation | None:
        """Hold the conversation of a session; None if another request does, `LeaseHeld` if another process.

        `make_session` makes the one in which it continues should it be deleted meanwhile.
        """
        store = self.store(person)
        root = await self.run_in_thread(person, store.get_conversation_root, session_id) or session_id
        if root in self._held:
            return None
        self._held.add(root)

        async def replace_session() -> str:
            make = make_session or (lambda: store.create_session(origin=person.source.to_dict()))
            return await self.run_in_thread(person, make)

        scope = self._make_scope(person, request.instructions)
        surface = Surface(
            name=f"gateway, request {next(_numbers)}", stores_unanswered=True, make_session=replace_session
        )
        conversation = Conversation(store, self._context.agents, scope, surface)
        try:
            live = await self.run_in_thread(person, store.get_compression_tip, session_id)
            await conversation.enter(live)
            if await self.run_in_thread(person, store.get_compression_tip, session_id) != live:
                raise errors.LeaseHeld("somebody else has just compressed this conversation")
        except BaseException:
            self._held.discard(root)
            await conversation.leave()
            raise
        return LockedConversation(person, conversation, root, request.new.content)

    async def leave(self, locked: LockedConversation) -> None:
        """Let others work in it, and remember where it stands."""
        try:
            if locked.is_temporary:
                await self.run_in_thread(
                    locked.person, locked.conversation.store.trash_session, locked.current
                )
            else:
                await self.run_in_thread(locked.person, self._update_index, locked)
        except errors.StoreError as problem:
            if locked.is_temporary:
                log.error("a conversation that was not to be stored could not be thrown away: %s", problem)
            # The other is not found by what was said, then.
        finally:
            await locked.conversation.leave()
            self._held.discard(locked.conversation_id)

    def _update_index(self, locked: LockedConversation) -> None:
        store = locked.conversation.store
        first = store.get_session(locked.current)
        if first is None or first["parent_session_id"] is not None:
            return  # a branch does not hold all that its client knows
        messages = messages_from_rows(store.follow(locked.current))
        self._index.put(locked.current, make_mark(locked.person, messages) if messages else None)

    async def store_messages(self, locked: LockedConversation, messages: Sequence[ChatMessage]) -> None:
        """Store what was said before, elsewhere."""
        store, session_id, epoch = (
            locked.conversation.store,
            locked.conversation.session_id,
            locked.conversation.epoch,
        )
        if not messages:
            return

        def keep() -> None:
            if not store.get_context(session_id):  # all of it, or nothing
                rows = [{"role": message.role, "content": message.content} for message in messages]
                store.replace_messages(session_id, rows, lease_epoch=epoch)
                return
            for message in messages:
                store.append_message(session_id, message.role, message.content, lease_epoch=epoch)

        await self.run_in_thread(locked.person, keep)

    # ---------------------------------------------------------------- what the agent is told

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
        return AgentScope(person.principal.person, source.platform, context.access.is_owner(source), about)

    async def update_instructions(
        self, locked: LockedConversation, instructions: str | None, *, keep: bool = False
    ) -> None:
        """If the instructions are others now, the prompt is made anew. With `keep`, none are those that are there."""
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
