"""The Matrix adapter: rooms, private chats and threads, encrypted or not, through matrix-nio.

Devices of other people are trusted without verification, because a gateway cannot verify devices interactively. The
adapter relies on the homeserver for the identity of a sender.

In a group the adapter handles only messages for the bot. These are messages that mention the bot, replies to the bot,
messages in a thread in which the bot has written, and commands. With `respond: all` it handles every message.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from nio import AsyncClient, MatrixRoom, RedactionEvent, RoomMessage

from hermes.gateway.adapter import AdapterError, Capabilities, Receive, Undeliverable, Unreachable
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.platforms.chat_queues import ChatQueues
from hermes.gateway.platforms.matrix import formatting
from hermes.gateway.platforms.matrix import room_events as events
from hermes.gateway.platforms.matrix.errors import SignedOut, call_server
from hermes.gateway.platforms.matrix.login import close_client, read_account_settings, sign_in
from hermes.gateway.platforms.matrix.media import fetch_file, offer_file, upload_file
from hermes.gateway.platforms.matrix.rooms import Rooms
from hermes.gateway.platforms.matrix.state import MOST_THREADS, State, StateFiles, forget_oldest
from hermes.gateway.platforms.matrix.sync import SyncReader, SyncResult
from hermes.gateway.settings import PlatformSettings
from hermes.logs import get_logger

log = get_logger(__name__)

_TYPING_MS = 15_000
_LONGEST_QUOTE = 4000
_BRIEF = 0.2
"""How long to wait for the messages of a sync to be accepted before the next sync, in seconds."""
_MOST_AHEAD, _PATIENCE = 20, 60.0
"""If more than `_MOST_AHEAD` syncs have messages that are not accepted yet, the next sync waits up to `_PATIENCE`
seconds."""
_KNOWN = ("accepted", "duplicate", "answered")
"""Receipt states that show that the sender has access."""


class _ReferredMessage(NamedTuple):
    """A message to which a received event refers: the message that it replies to or deletes, or the first message
    of its thread."""

    sender: str
    content: dict[str, Any]
    ours: bool
    """Whether the bot sent the message, or took part in the thread that begins with it."""


class Matrix:
    name = "matrix"
    # Servers allow a burst and then a few messages a minute. An edit counts as a message.
    capabilities = Capabilities(max_length=formatting.LONGEST, edits=True, idempotent=True, edit_every=3.0)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        self._settings = settings
        self._state_files = StateFiles(folder)
        self._everything = settings.more.get("respond") == "all"
        self._client: AsyncClient | None = None
        """The client while the adapter is connected."""
        self._open: AsyncClient | None = None
        """The client from login until the client is closed."""
        self._state = State("")
        self._elsewhere: dict[str, str] = {}
        """Threads in which the bot has not written: the id of the first message to the room id. If the bot writes in
        such a thread later, `State.threads` contains it."""
        self._sending: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def measure(self, text: str) -> int:
        return formatting.measure(text)

    # --- receiving -------------------------------------------------------------------------------

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Run as the `Adapter` protocol specifies. After a cancellation, messages can still be sent."""
        await self.close()
        self._open = client = await sign_in(read_account_settings(self._settings), self._state_files)
        try:
            await self._listen(client, receive, ready)
        except SignedOut as error:
            await self.close()
            raise self._allow_renewal(error) from error
        except Exception:
            await self.close()
            raise

    async def close(self) -> None:
        client, self._open, self._client = self._open, None, None
        if client is not None:
            await close_client(client)

    async def _listen(self, client: AsyncClient, receive: Receive, ready: Callable[[], None]) -> None:
        state = self._state = self._state_files.state(client.user_id)
        rooms, reader = Rooms(client, state, self._settings), SyncReader(client, state)
        result = await reader.read_next()
        self._client = client
        ready()
        await rooms.look_up_direct()
        await rooms.accept_invitations_of()
        queues, unsaved = ChatQueues(), deque[tuple[int, SyncResult]]()
        try:
            for number in count():
                self._hand_in(number, result, rooms, receive, queues)
                unsaved.append((number, result))
                await queues.settle(_PATIENCE if len(unsaved) > _MOST_AHEAD else _BRIEF)
                await self._save_state(unsaved, queues.oldest)
                result = await reader.read_next()
        finally:
            await queues.close()

    async def _save_state(self, unsaved: deque[tuple[int, SyncResult]], oldest: int | None) -> None:
        """Save the sync position up to which the gateway has accepted all messages. `unsaved` holds the syncs that
        are not saved yet, oldest first; the saved ones are removed from it. `oldest` is the number of the oldest
        sync with a message that is not accepted yet, or None."""
        since = self._state.since
        changed = False
        while unsaved and (oldest is None or unsaved[0][0] < oldest):
            _, result = unsaved.popleft()
            for event_id in result.decrypted:
                self._state.waiting.pop(event_id, None)
            changed = changed or bool(result.decrypted)
            self._state.since = result.since
        if changed or self._state.since != since:
            await self._state_files.save_state(self._state)

    def _hand_in(
        self, number: int, result: SyncResult, rooms: Rooms, receive: Receive, queues: ChatQueues
    ) -> None:
        """Add the messages, invitations and left rooms of a sync to `queues`. `number` is the number of the sync.
        Each room has its own queue, so that a slow room does not delay the others."""

        async def forget(room_id: str) -> None:
            rooms.forget(room_id)

        async def hand_over(room_id: str, message: RoomMessage | RedactionEvent) -> None:
            room = self._require_client().rooms.get(room_id)
            if isinstance(message, RedactionEvent):
                await self._hand_over_redaction(room_id, message, receive)
            elif room is not None:
                await self._hand_over(room, message, rooms, receive)

        for room_id in result.left:
            queues.add(room_id, (number,), partial(forget, room_id))
        for room_id, invitation in result.invitations.items():
            queues.add(room_id, (number,), partial(rooms.accept_invitations, {room_id: invitation}))
        for room_id, message in result.messages:
            queues.add(room_id, (number,), partial(hand_over, room_id, message))

    async def _hand_over(
        self, room: MatrixRoom, message: RoomMessage, rooms: Rooms, receive: Receive
    ) -> None:
        content = events.read_content(message.source["content"])
        if content is None or not (content.text.strip() or content.file):
            return
        if content.edits:
            before = await self._look_up(room.room_id, content.edits)
            if before is None or before.sender != message.sender:  # only the author can edit a message
                return
            thread, replies_to = events.find_thread(before.content)
            content = content._replace(thread=thread, replies_to=replies_to)
        replied = await self._look_up(room.room_id, content.replies_to) if content.replies_to else None
        direct, text, names = rooms.is_direct(room, message.sender), content.text, rooms.our_names(room)
        if not direct:
            if not self._everything and not await self._is_meant(room.room_id, content, replied, names):
                return
            text = events.strip_address(text, self._require_client().user_id, names)
        quoted = events.read_content(replied.content) if replied else None
        source = Source(
            self.name,
            room.room_id,
            room.display_name,
            "dm" if direct else "group",
            message.sender,
            room.user_name(message.sender),
            content.thread,
            room.topic,
            message_id=content.edits or message.event_id,
        )
        event = Event(
            source,
            text,
            message.server_timestamp / 1000,
            reply_to=((quoted.text if quoted else content.quoted) or "")[:_LONGEST_QUOTE] or None,
            edits=content.edits,
        )
        files = [offer_file(self._require_client(), content.file)] if content.file else []
        receipt = await receive(event, files)
        if receipt.state in _KNOWN:
            await rooms.accept_invitations_of(message.sender)

    async def _hand_over_redaction(self, room_id: str, redaction: RedactionEvent, receive: Receive) -> None:
        """Report to the gateway that a person's message was deleted, by its author or by a moderator of the room."""
        deleted = redaction.redacts
        before = await self._look_up(room_id, deleted)
        if before is None or before.content or before.sender == self._require_client().user_id:
            return  # the homeserver did not accept the deletion, or the message is ours
        self._state.waiting.pop(deleted, None)
        source = Source(self.name, room_id, chat_type="group", user_id=before.sender, message_id=deleted)
        at = redaction.server_timestamp / 1000
        await receive(Event(source, "", at, edits=deleted, removes=True), ())

    async def _is_meant(
        self, room_id: str, content: events.RoomText, replied: _ReferredMessage | None, names: list[str]
    ) -> bool:
        us = self._require_client().user_id
        if events.is_addressed(content, us, names) or (replied and replied.sender == us):
            return True
        if content.thread is None:
            return False
        if content.thread not in self._state.threads and content.thread not in self._elsewhere:
            root = await self._look_up(room_id, content.thread)
            if root and root.ours:
                self._state.add_thread(room_id, content.thread)
            else:
                self._elsewhere[content.thread] = room_id
                forget_oldest(self._elsewhere, MOST_THREADS)
        return content.thread in self._state.threads

    async def _look_up(self, room_id: str, event_id: str) -> _ReferredMessage | None:
        client = self._require_client()
        try:
            answer = await call_server(client.room_get_event(room_id, event_id), "looking up a message")
        except Undeliverable:  # removed, or not visible to us
            return None
        raw = await answer.transport_response.json()  # includes fields that nio drops when it decrypts
        thread = raw.get("unsigned", {}).get("m.relations", {}).get("m.thread", {})
        ours = raw["sender"] == client.user_id or thread.get("current_user_participated") is True
        return _ReferredMessage(raw["sender"], answer.event.source["content"], ours)

    async def fetch(self, reference: Mapping[str, Any]) -> bytes:
        return await fetch_file(self._require_client(), events.File(**reference))

    # --- delivering ------------------------------------------------------------------------------

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        calls = (to.user_id,) if reply_to and to.user_id and not silent and to.chat_type != "dm" else ()
        relation = formatting.make_relation(to.thread_id, reply_to, to.message_id)
        content = formatting.make_message(text, silent=silent, relation=relation, mentions=calls)
        return await self._send_content(to, content, idempotency_key)

    async def send_file(
        self,
        to: Source,
        name: str,
        content: bytes,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        room = self._require_client().rooms.get(to.chat_id)
        uploaded = await upload_file(
            self._require_client(), name, content, encrypt=bool(room and room.encrypted)
        )
        relation = formatting.make_relation(to.thread_id, reply_to, to.message_id)
        message = uploaded | {"m.mentions": {}} | ({"m.relates_to": relation} if relation else {})
        return await self._send_content(to, message, idempotency_key)

    async def _send_content(self, to: Source, content: dict[str, Any], idempotency_key: str) -> str:
        # The server ignores a second message with the same transaction id.
        sent = await self._put(to.chat_id, content, hashlib.sha256(idempotency_key.encode()).hexdigest())
        if to.thread_id and to.thread_id not in self._state.threads:
            self._state.add_thread(to.chat_id, to.thread_id)
            try:
                await self._state_files.save_state(self._state)
            except OSError as error:  # the message was sent
                log.warning("matrix: %s", error)
        return sent

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        await self._put(to.chat_id, formatting.make_edit(message_id, text), None)

    async def typing(self, to: Source) -> None:
        await call_server(self._require_client().room_typing(to.chat_id, timeout=_TYPING_MS), "typing")

    async def open_thread(self, to: Source, name: str) -> str | None:
        """Open a thread by sending `name` as its first message."""
        return await self._put(to.chat_id, formatting.make_message(name), None)

    async def _put(self, room_id: str, content: dict[str, Any], transaction: str | None) -> str:
        client = self._require_client()
        room = client.rooms.get(room_id)
        if room is None:  # not a member, or joined just now
            await call_server(client.joined_members(room_id), f"sending to {room_id}")
            raise Unreachable(f"matrix: {room_id} is not known yet")
        if room.encrypted and not client.olm:
            raise Undeliverable(f"matrix: {room_id} is encrypted, but encryption is turned off")
        async with self._sending[room_id]:
            try:
                answer = await call_server(
                    client.room_send(
                        room_id, "m.room.message", content, transaction, ignore_unverified_devices=True
                    ),
                    f"sending to {room_id}",
                )
            except AdapterError as error:
                _begin_new_session(client, room_id)
                raise self._allow_renewal(error) from error
        return str(answer.event_id)

    def _allow_renewal(self, error: AdapterError) -> AdapterError:
        """Return the error that the adapter must raise instead of `error`. If `error` says that the login was lost,
        and the adapter can log in again with the password, return `Unreachable`, which makes the gateway connect
        again. Otherwise return `error`."""
        signs_in_again = isinstance(error, SignedOut) and not self._settings.more.get("access_token")
        return Unreachable(str(error)) if signs_in_again else error

    def _require_client(self) -> AsyncClient:
        if self._client is None:
            raise Unreachable("matrix: not connected")
        return self._client


def _begin_new_session(client: AsyncClient, room_id: str) -> None:
    """Make nio start a new encryption session for the room. Called after a failed send.
    After a failure it is unknown which devices have received the key of the old session, but nio assumes that all have.
    """
    if client.olm:
        client.sharing_session.pop(room_id, None)
        client.invalidate_outbound_session(room_id)
