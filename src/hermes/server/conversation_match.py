"""Finds the conversation that a request continues.

A request continues the conversation that it names. If it names none, it continues the conversation whose
messages it repeats exactly and extends. If there is no such conversation, it starts a new one.

Another request or process may be working in that conversation. A request that names the conversation is then
refused. A request that only extends it starts a new conversation. The messages of a conversation and of a
request are compared only while the conversation is locked.

Sessions of the API are never reset automatically. The reset settings apply only to chats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes import errors
from hermes.conversation.conversation import Conversation
from hermes.db.scoped_store import ScopedStore
from hermes.server.api_errors import Refused, response_not_found
from hermes.server.api_keys import Person
from hermes.server.history_index import HistoryIndex
from hermes.server.locks import ConversationLocks, LockedConversation, make_mark
from hermes.server.message_format import ChatMessage, RequestMessages, convert_rows

MOST_NAMESAKES = 1000
"""If a session in the trash has the requested name, a number is added to the name. The number stays below
this limit."""
REPLACED = "The session named {name} is in the trash. This continues in a new session, {session}."
NOTHING = RequestMessages(None, (), ChatMessage("user", ""))


class Conversations:
    def __init__(self, locks: ConversationLocks, index: HistoryIndex) -> None:
        self._locks, self._index = locks, index

    async def open_named(self, person: Person, name: str, request: RequestMessages) -> LockedConversation:
        """Lock the session whose id or client-chosen name is `name`. Create the session if it does not exist.

        Only the last message of the request is new. The messages before it are stored only if the session is
        empty.
        """
        store = self._locks.get_store(person)
        session_id, is_another = await self._locks.run_in_thread(person, _open_named, store, name)
        make = partial(_make_named, store, name)
        locked = await self._locks.lock(person, session_id, request, make)
        try:
            rows = await self._locks.run_in_thread(person, store.follow, session_id)
            messages = convert_rows(rows)
            if is_another and not rows:
                locked = locked._replace(note=REPLACED.format(name=name, session=locked.conversation_id))
            if messages and messages[-1] == request.new:
                locked = _mark_repeated(locked, rows)
            elif not await self._locks.run_in_thread(
                person, store.get_context, locked.conversation.session_id
            ):
                await self._locks.store_messages(locked, request.before)
            await self._locks.update_instructions(locked, request.instructions, keep=True)
        except BaseException:
            await self._locks.leave(locked)
            raise
        return locked

    async def open_extended(self, person: Person, request: RequestMessages) -> LockedConversation:
        """Lock the conversation that the request exactly extends. If there is none, start a new conversation
        with all messages of the request."""
        again = (*request.before, request.new)
        locked = await self._find_standing_at(person, again, request)
        if locked is None and request.before:
            locked = await self._find_standing_at(person, request.before, request)
        return locked or await self.begin_new(person, request)

    async def continue_after(
        self,
        person: Person,
        session_id: str,
        message_id: int,
        request: RequestMessages,
        *,
        is_temporary: bool = False,
    ) -> LockedConversation:
        """Lock a conversation in which `request` follows the answer to the message `message_id`.

        This is the conversation of the message if the answer is the last one there and nobody else works in
        it. Otherwise it is a new branch that ends with the answer. With `is_temporary`, it is always a new
        branch.
        """
        store = self._locks.get_store(person)
        answered = await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
        locked = None if is_temporary else await self._locks.lock_if_free(person, session_id, request)
        try:
            if locked is not None:  # nobody else writes from here on
                answered = await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
                if answered.since and convert_rows(answered.since) != (*request.before, request.new):
                    await self._locks.leave(locked)
                    locked = None
            if locked is None:
                branch = await self._locks.run_in_thread(
                    person, partial(store.branch, *answered.end, end_parent=False)
                )
                locked = await self._locks.lock(person, branch, request)
                locked = locked._replace(is_temporary=is_temporary)
                await self._locks.store_messages(locked, request.before)
            elif answered.since:
                locked = _mark_repeated(locked, answered.since)
            else:
                await self._locks.store_messages(locked, request.before)
            await self._locks.update_instructions(locked, request.instructions)
        except BaseException:
            if locked is not None:
                await self._locks.leave(locked)
            raise
        return locked

    async def take_back(self, person: Person, session_id: str, message_id: int) -> None:
        """Remove the message `message_id` and its answer. If no message comes before it, move the
        conversation to the trash instead."""
        store = self._locks.get_store(person)
        await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
        locked = await self._locks.lock(person, session_id, NOTHING)
        try:
            answered = await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
            if answered.since:
                raise Refused(409, "later responses build on this one: delete those first")
            before = await self._locks.run_in_thread(
                person, store.get_context, locked.conversation.session_id
            )
            if any(row["id"] < message_id for row in before):
                live, epoch = locked.conversation.session_id, locked.conversation.epoch
                await self._locks.run_in_thread(
                    person, lambda: store.rewind_to_message(live, message_id, lease_epoch=epoch)
                )
            else:
                await self._locks.run_in_thread(person, store.trash_session, locked.conversation_id)
        finally:
            await self._locks.leave(locked)

    async def open_session(self, person: Person, session_id: str) -> LockedConversation:
        """Lock the conversation of a session in order to change it. The caller must release it with `leave`."""
        return await self._locks.lock(person, session_id, NOTHING)

    async def leave(self, locked: LockedConversation) -> None:
        await self._locks.leave(locked)

    async def view(self, person: Person, session_id: str) -> Conversation[ScopedStore]:
        """Return the conversation of a session for reading, without a lock."""
        return await self._locks.view(person, session_id)

    async def trash(self, person: Person, session_id: str) -> None:
        """Move the conversation to the trash."""
        store = self._locks.get_store(person)
        locked = await self._locks.lock(person, session_id, NOTHING)
        try:
            await self._locks.run_in_thread(person, store.trash_session, locked.conversation_id)
        finally:
            await self._locks.leave(locked)

    async def _find_standing_at(
        self, person: Person, messages: Sequence[ChatMessage], request: RequestMessages
    ) -> LockedConversation | None:
        store = self._locks.get_store(person)
        mark = await self._locks.run_in_thread(person, make_mark, person, messages)
        for conversation in self._index.find(mark):
            session = await self._locks.run_in_thread(person, store.get_session, conversation)
            if session is None:
                await self._locks.run_in_thread(person, self._index.put, conversation, None)
                continue
            locked = await self._locks.lock_if_free(person, conversation, request)
            if locked is None:
                continue
            try:
                rows = await self._locks.run_in_thread(person, store.follow, conversation)
                if await self._locks.run_in_thread(person, _matches, rows, messages):
                    if messages[-1] is request.new:
                        locked = _mark_repeated(locked, rows)
                    await self._locks.update_instructions(locked, request.instructions)
                    return locked
            except BaseException:
                await self._locks.leave(locked)
                raise
            await self._locks.leave(locked)  # this updates the mark of the conversation in the index
        return None

    async def begin_new(
        self, person: Person, request: RequestMessages, *, is_temporary: bool = False
    ) -> LockedConversation:
        """Begin a conversation with the messages of a request, and lock it."""
        store = self._locks.get_store(person)
        origin = person.source.to_dict()
        session_id = await self._locks.run_in_thread(person, lambda: store.create_session(origin=origin))
        locked = await self._locks.lock(person, session_id, request)
        locked = locked._replace(is_temporary=is_temporary)
        try:
            await self._locks.store_messages(locked, request.before)
        except BaseException:
            await self._locks.leave(locked)
            raise
        return locked


class AnsweredMessage(NamedTuple):
    """A person's message with its answer, and the messages after the answer."""

    rows: list[dict[str, Any]]
    """The person's message and all rows up to the person's next message."""
    since: list[dict[str, Any]]

    @property
    def end(self) -> tuple[str, int]:
        """Return the session and the id of the last message of the answer. This need not be the last row,
        because a summary may follow."""
        last = [row for row in self.rows if row["role"] in ("assistant", "tool")][-1]
        return last["session_id"], last["id"]


def find_answer(store: ScopedStore, session_id: str, message_id: int) -> AnsweredMessage:
    """Return the message `message_id` with its answer. Raise a 404 error if the message is missing, was
    removed or has no answer."""
    rows = store.follow(session_id, message_id - 1) if store.get_session(session_id) else []
    if not rows or rows[0]["id"] != message_id:
        raise response_not_found()
    positions = [number for number, row in enumerate(rows) if row["role"] == "user" and number]
    end = positions[0] if positions else len(rows)
    if not any(row["role"] == "assistant" for row in rows[:end]):
        raise response_not_found()
    return AnsweredMessage(rows[:end], rows[end:])


def _matches(rows: Sequence[dict[str, Any]], messages: Sequence[ChatMessage]) -> bool:
    return convert_rows(rows) == tuple(messages)


def _mark_repeated(locked: LockedConversation, rows: Sequence[dict[str, Any]]) -> LockedConversation:
    """Record in `locked` that the new message is already stored without an answer. It is then answered, but
    not stored again."""
    message_ids = [row["id"] for row in rows if row["role"] == "user"]
    return locked._replace(content=None, repeated_message_id=message_ids[-1])


def _make_named(store: ScopedStore, name: str) -> str:
    return _open_named(store, name)[0]


def _open_named(store: ScopedStore, name: str) -> tuple[str, bool]:
    """Return the session named `name`, and whether it replaces a session in the trash. Create the session if
    it is missing."""
    if store.get_session(name) is not None:
        return name, False
    is_trashed = store.get_session(name, include_trashed=True) is not None
    for number in range(1, MOST_NAMESAKES):  # a session in the trash is not restored by its name
        try:
            return store.create_session(name if number == 1 else f"{name}.{number}"), is_trashed or number > 1
        except errors.SessionInTrash:
            continue
    raise Refused(409, "too many sessions of this name are in the trash", code="session_in_trash")
