"""Matches a request to a conversation: the one it names, the one it exactly extends, or a new one.

A request that names a conversation is refused while somebody else works in it; one that only extends it gets a new one.
A conversation is compared only while it is locked.

Sessions of the API are never reset automatically, whatever the settings for chats say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes import errors
from hermes.db.scoped_store import ScopedStore
from hermes.server.api_errors import Refused, response_not_found
from hermes.server.api_keys import Person
from hermes.server.history_index import HistoryIndex
from hermes.server.locks import ConversationLocks, LockedConversation, make_mark
from hermes.server.message_format import ChatMessage, RequestMessages, messages_from_rows

MOST_NAMESAKES = 1000
"""Sessions of one name that were thrown away, one after the other."""
REPLACED = "The session named {name} is in the trash. This continues in a new session, {session}."
NOTHING = RequestMessages(None, (), ChatMessage("user", ""))


class Conversations:
    def __init__(self, locks: ConversationLocks, index: HistoryIndex) -> None:
        self._locks, self._index = locks, index

    async def open_named(self, person: Person, name: str, request: RequestMessages) -> LockedConversation:
        """The session of this id, or the one that the client calls so. Only the last message is new there."""
        store = self._locks.store(person)
        session_id, is_another = await self._locks.run_in_thread(person, _open_named, store, name)
        make = partial(_make_named, store, name)
        locked = await self._locks.lock(person, session_id, request, make)
        if locked is None:
            raise _refuse_busy()
        try:
            rows = await self._locks.run_in_thread(person, store.follow, session_id)
            messages = messages_from_rows(rows)
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
        """The conversation that the request extends exactly; else a new one that begins with all it says."""
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
        """Go on after the answer to a message: in its conversation if it is the last there, else in a branch."""
        store = self._locks.store(person)
        answered = await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
        locked = None if is_temporary else await self._locks.lock_if_free(person, session_id, request)
        try:
            if locked is not None:  # nobody writes from now on
                answered = await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
                if answered.since and messages_from_rows(answered.since) != (*request.before, request.new):
                    await self._locks.leave(locked)
                    locked = None
            if locked is None:
                branch = await self._locks.run_in_thread(
                    person, partial(store.branch, *answered.end, end_parent=False)
                )
                locked = await self._locks.lock(person, branch, request)
                assert locked is not None
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
        """Take a message and its answer out of the conversation; of its only one, the conversation with it."""
        store = self._locks.store(person)
        await self._locks.run_in_thread(person, find_answer, store, session_id, message_id)
        locked = await self._locks.lock(person, session_id, NOTHING)
        if locked is None:
            raise _refuse_busy()
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

    async def trash(self, person: Person, session_id: str) -> None:
        """The whole conversation, into the trash."""
        store = self._locks.store(person)
        locked = await self._locks.lock(person, session_id, NOTHING)
        if locked is None:
            raise _refuse_busy()
        try:
            await self._locks.run_in_thread(person, store.trash_session, locked.conversation_id)
        finally:
            await self._locks.leave(locked)

    async def _find_standing_at(
        self, person: Person, messages: Sequence[ChatMessage], request: RequestMessages
    ) -> LockedConversation | None:
        store = self._locks.store(person)
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
            await self._locks.leave(locked)  # it notes where the conversation really stands
        return None

    async def begin_new(
        self, person: Person, request: RequestMessages, *, is_temporary: bool = False
    ) -> LockedConversation:
        """A new one."""
        store = self._locks.store(person)
        origin = person.source.to_dict()
        session_id = await self._locks.run_in_thread(person, lambda: store.create_session(origin=origin))
        locked = await self._locks.lock(person, session_id, request)
        assert locked is not None
        locked = locked._replace(is_temporary=is_temporary)
        try:
            await self._locks.store_messages(locked, request.before)
        except BaseException:
            await self._locks.leave(locked)
            raise
        return locked


class AnsweredMessage(NamedTuple):
    """A person's message with what came of it."""

    rows: list[dict[str, Any]]
    """The message, and all up to the next one."""
    since: list[dict[str, Any]]

    @property
    def end(self) -> tuple[str, int]:
        """The session and the id of the last thing that was done for it; a summary may have come behind that."""
        last = [row for row in self.rows if row["role"] in ("assistant", "tool")][-1]
        return last["session_id"], last["id"]


def find_answer(store: ScopedStore, session_id: str, message_id: int) -> AnsweredMessage:
    """What was answered to a message. One that is not there, or no more, was never answered."""
    rows = store.follow(session_id, message_id - 1) if store.get_session(session_id) else []
    if not rows or rows[0]["id"] != message_id:
        raise response_not_found()
    positions = [number for number, row in enumerate(rows) if row["role"] == "user" and number]
    end = positions[0] if positions else len(rows)
    if not any(row["role"] == "assistant" for row in rows[:end]):
        raise response_not_found()
    return AnsweredMessage(rows[:end], rows[end:])


def _matches(rows: Sequence[dict[str, Any]], messages: Sequence[ChatMessage]) -> bool:
    return messages_from_rows(rows) == tuple(messages)


def _mark_repeated(locked: LockedConversation, rows: Sequence[dict[str, Any]]) -> LockedConversation:
    """What is to be said was said, and is not answered: it is not said twice."""
    message_ids = [row["id"] for row in rows if row["role"] == "user"]
    return locked._replace(content=None, repeated_message_id=message_ids[-1])


def _refuse_busy() -> Refused:
    return Refused(
        409,
        "another request is working in this conversation",
        code="session_busy",
        headers={"Retry-After": "1"},
    )


def _make_named(store: ScopedStore, name: str) -> str:
    return _open_named(store, name)[0]


def _open_named(store: ScopedStore, name: str) -> tuple[str, bool]:
    """The session that the client calls so, and whether it takes the place of one in the trash."""
    if store.get_session(name) is not None:
        return name, False
    is_trashed = store.get_session(name, include_trashed=True) is not None
    for number in range(1, MOST_NAMESAKES):  # one that was thrown away does not come back by being named
        try:
            return store.create_session(name if number == 1 else f"{name}.{number}"), is_trashed or number > 1
        except errors.SessionInTrash:
            continue
    raise Refused(409, "too many sessions of this name are in the trash", code="session_in_trash")
