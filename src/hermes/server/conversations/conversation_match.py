"""Finds the conversation that a request continues.

A request continues the conversation that it names. If it names none, it continues the conversation whose
messages it repeats exactly and extends. If there is no such conversation, it starts a new one.

If another request or process works in that conversation, a request that names the conversation is refused, and a
request that only extends it starts a new conversation. The messages of a conversation and a request are compared only
while the conversation is locked.

Sessions of the API are never reset automatically. The reset settings apply only to chats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes import clock, errors
from hermes.conversation.conversation import Conversation
from hermes.db.scoped_store import ScopedStore
from hermes.db.session_db import SessionDB
from hermes.logs import get_logger
from hermes.message_content import INTERRUPTED, PARTIAL
from hermes.server.api_errors import Refused, bad_request, response_not_found
from hermes.server.api_keys import Person
from hermes.server.conversations.history_index import HistoryIndex
from hermes.server.conversations.locks import ConversationLocks, LockedConversation, make_mark
from hermes.server.conversations.request_journal import AcceptedRequest, RequestJournal, RequestMark
from hermes.server.conversations.session_names import find_or_make_session, make_replacement
from hermes.server.idempotency import HEADER
from hermes.server.message_format import ChatMessage, RequestMessages, convert_rows

log = get_logger(__name__)

REPLACED = "The session named {name} is in the trash. This continues in a new session, {session}."
NOTHING = RequestMessages(None, (), ChatMessage("user", ""))


class Conversations:
    def __init__(self, locks: ConversationLocks, index: HistoryIndex, journal: RequestJournal) -> None:
        self._locks, self._index, self._journal = locks, index, journal

    async def open_accepted(
        self, person: Person, mark: RequestMark, request: RequestMessages
    ) -> LockedConversation | None:
        """Lock the conversation in which an earlier copy of this request was accepted, and prepare to continue the
        answer there. Return None if no earlier copy was accepted, or if the request must be handled like a new one.

        The earlier copy is unfinished because the process died, the client disconnected or the model failed. If the
        request has an `Idempotency-Key`, the earlier copy may also be finished. In that case its answer is sent again.
        """
        known = self._journal.find(mark.mark)
        if known is None:
            return None
        if known.digest != mark.digest:
            raise bad_request(
                f"this {HEADER} was sent with another request", HEADER, "idempotency_key_reused"
            )
        store = self._locks.get_store(person)
        session = await self._locks.run_in_thread(person, store.get_session, known.session_id)
        if known.is_temporary or session is None:
            return None
        locked = await (self._locks.lock if mark.has_key else self._locks.lock_if_free)(
            person, known.session_id, request
        )
        if locked is None:
            return None
        try:
            resumed = await self._resume(locked, mark, request)
            if resumed is not None:
                await self._locks.update_instructions(resumed, request.instructions)
                return resumed
        except BaseException:
            await self._locks.leave(locked)
            raise
        await self._locks.leave(locked)
        return None

    async def _resume(
        self, locked: LockedConversation, mark: RequestMark, request: RequestMessages
    ) -> LockedConversation | None:
        person, store = locked.person, locked.conversation.store
        rows = await self._locks.run_in_thread(person, store.follow, locked.conversation_id)
        places = [at for at, row in enumerate(rows) if row["platform_message_id"] == mark.mark]
        if not places:  # the process died before it stored the message
            if convert_rows(rows) not in ((), request.before):
                return None
            await self._locks.store_messages(locked, () if rows else request.before)
            return locked._replace(is_new=not rows)
        message, following = rows[places[-1]], rows[places[-1] + 1 :]
        ends = [at for at, row in enumerate(following) if row["role"] == "user"]
        answer, has_more = tuple(following[: ends[0]] if ends else following), bool(ends)
        is_answered = _is_complete(answer)
        if has_more and not (mark.has_key and is_answered):
            return None
        if answer and answer[-1]["finish_reason"] in (INTERRUPTED, PARTIAL):
            live, epoch = locked.conversation.session_id, locked.conversation.epoch
            await self._locks.run_in_thread(
                person, lambda: store.rewind_to_message(live, message["id"], lease_epoch=epoch)
            )
            return locked
        return locked._replace(
            content=None,
            repeated_message_id=message["id"],
            stored_answer=answer,
            is_answered=is_answered,
        )

    async def accept(self, locked: LockedConversation, mark: RequestMark) -> LockedConversation:
        """Write the request of `locked` to the request journal, under `mark`. Call this before the message of the
        request is stored. Return a copy of `locked` that contains the mark."""
        request = AcceptedRequest(
            locked.person.name,
            locked.conversation_id,
            mark.digest,
            clock.now(),
            mark.has_key,
            locked.is_temporary,
        )
        await self._locks.run_in_thread(locked.person, self._journal.put, mark.mark, request)
        return locked._replace(mark=mark.mark)

    def finish(self, locked: LockedConversation) -> None:
        """Note in memory that the request of `locked` is finished. `write_finished` writes this to the request
        journal."""
        if locked.mark is not None:
            self._journal.finish(locked.mark)

    async def write_finished(self, locked: LockedConversation) -> None:
        if locked.mark is not None:
            await self._locks.run_in_thread(
                locked.person, self._journal.write_finished, locked.mark, locked.conversation_id
            )

    def tidy_after_crash(self, db: SessionDB) -> None:
        """Read the request journal, and remove what the unfinished requests of a killed process left in the store:
        sessions without messages, and temporary conversations (`store: false`)."""
        self._journal.load()
        for mark, request in self._journal.list_open():
            try:
                exists = db.get_session(request.session_id) is not None
                if exists and self._locks.discard_if_empty(request.session_id):
                    exists = False
                if exists and request.is_temporary:
                    db.trash_session(request.session_id)
                if not exists or request.is_temporary:
                    self._journal.remove(mark)
            except errors.StoreError as problem:
                log.warning("session %s could not be tidied: %s", request.session_id, problem)

    async def open(self, person: Person, name: str | None, request: RequestMessages) -> LockedConversation:
        """Lock the conversation for a request. If the request names a session, `name`, this is the conversation of that
        session. Otherwise it is the conversation that the request extends, or a new one."""
        if name is None:
            return await self.open_extended(person, request)
        return await self.open_named(person, name, request)

    async def open_named(self, person: Person, name: str, request: RequestMessages) -> LockedConversation:
        """Lock the session that `name` refers to (see `session_names`). Create it if it does not exist.
        Only the last message of the request is new. The messages before it are stored only if the session is empty.
        """
        store = self._locks.get_store(person)
        named = await self._locks.run_in_thread(person, find_or_make_session, store, name)
        make = partial(make_replacement, store, name)
        if named.is_new:
            locked = await self._lock_new(person, named.session_id, request, make)
        else:
            locked = await self._locks.lock(person, named.session_id, request, make)
        try:
            rows = await self._locks.run_in_thread(person, store.follow, named.session_id)
            messages = convert_rows(rows)
            if named.is_replacement and not rows:
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
        """Lock a conversation in which `request` follows the answer to the message `message_id` of the session
        `session_id`.

        If that answer is the last one of its conversation and nobody else works there, the conversation itself is
        locked. Otherwise, and always with `is_temporary`, a new branch that ends with that answer is created and
        locked.
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
                locked = await self._lock_new(person, branch, request)
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
        """Take the message `message_id` of a conversation, and the answer to it, out of the context. If it is the first
        message, move the whole conversation to the trash instead. Raise a 409 error if other messages follow the
        answer."""
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
        """Return the conversation of the session `session_id` for reading only. It is not locked for the caller."""
        return await self._locks.view(person, session_id)

    async def trash(self, person: Person, session_id: str) -> None:
        """Move the conversation of the session `session_id` to the trash."""
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

    async def _lock_new(
        self,
        person: Person,
        session_id: str,
        request: RequestMessages,
        make_session: Callable[[], str] | None = None,
    ) -> LockedConversation:
        """Lock the conversation of `session_id`, a session that was created for this request. If locking fails, delete
        the session."""
        try:
            locked = await self._locks.lock(person, session_id, request, make_session)
        except BaseException:
            await self._locks.run_in_thread(person, self._locks.discard_if_empty, session_id)
            raise
        return locked._replace(is_new=True)

    async def begin_new(
        self, person: Person, request: RequestMessages, *, is_temporary: bool = False
    ) -> LockedConversation:
        """Begin a new conversation for a request, lock it, and store the messages that precede the request's new
        message. With `is_temporary`, the conversation is moved to the trash when it is released."""
        store = self._locks.get_store(person)
        origin = person.source.to_dict()
        session_id = await self._locks.run_in_thread(person, lambda: store.create_session(origin=origin))
        locked = await self._lock_new(person, session_id, request)
        locked = locked._replace(is_temporary=is_temporary)
        try:
            await self._locks.store_messages(locked, request.before)
        except BaseException:
            await self._locks.leave(locked)
            raise
        return locked


class AnsweredMessage(NamedTuple):
    """A person's message with its answer (`rows`), and the messages that follow the answer (`since`)."""

    rows: list[dict[str, Any]]
    """The person's message and all rows up to the person's next message."""
    since: list[dict[str, Any]]

    @property
    def end(self) -> tuple[str, int]:
        """The session id and the message id of the last row of the answer. This need not be the last of `rows`, because
        a summary may follow the answer."""
        last = [row for row in self.rows if row["role"] in ("assistant", "tool")][-1]
        return last["session_id"], last["id"]


def find_answer(store: ScopedStore, session_id: str, message_id: int) -> AnsweredMessage:
    """Return the person's message with the id `message_id` in the conversation of `session_id`, with the answer to it.
    Raise a 404 error if the message is missing, was removed or has no answer."""
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
    """Return a copy of `locked` which says that the new message of the request is already stored: it is the last
    message of a person in `rows`. The turn then answers the stored message and does not store it again."""
    message_ids = [row["id"] for row in rows if row["role"] == "user"]
    return locked._replace(content=None, repeated_message_id=message_ids[-1])


def _is_complete(answer: Sequence[dict[str, Any]]) -> bool:
    """Return whether `answer`, the rows after a person's message, ends with a complete text of the agent. It does not
    if the last row is a tool call, the result of a tool call, or a text that was cut off."""
    last = answer[-1] if answer else None
    return (
        last is not None
        and last["role"] == "assistant"
        and not last["tool_calls"]
        and last["finish_reason"] not in (INTERRUPTED, PARTIAL)
    )
