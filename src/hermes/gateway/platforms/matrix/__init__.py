"""Matrix: rooms, private chats and threads, encrypted or not, through matrix-nio.

Devices of other people are trusted when they are first seen, and who somebody is we believe their homeserver: there is
nobody at a gateway who could compare emoji with them. In a group we listen to what is said to us: with our name, in
answer to us, in a thread that we take part in, or as a command (`respond: all` listens to everything).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nio import AsyncClient, MatrixRoom, RoomMessage

from hermes.gateway.adapter import AdapterError, Can, Receive, Undeliverable, Unreachable
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.platforms.matrix import formatting as texts
from hermes.gateway.platforms.matrix import room_events as events
from hermes.gateway.platforms.matrix.errors import SignedOut, answered
from hermes.gateway.platforms.matrix.login import closed, signed_in, wanted
from hermes.gateway.platforms.matrix.media import offered
from hermes.gateway.platforms.matrix.rooms import Rooms
from hermes.gateway.platforms.matrix.state import MOST_THREADS, Kept, State, forget_oldest
from hermes.gateway.platforms.matrix.sync import Heard, Listening
from hermes.gateway.settings import PlatformSettings
from hermes.logs import get_logger

log = get_logger(__name__)

_TYPING_MS = 15_000
_LONGEST_QUOTE = 4000
_KNOWN = ("accepted", "duplicate", "answered")
"""Receipts of people who may talk to us."""


class _Looked(NamedTuple):
    """A message that another one refers to."""

    sender: str
    content: dict[str, Any]
    ours: bool
    """Whether it is ours, or we wrote in the thread that begins there."""


class Matrix:
    name = "matrix"
    # Servers allow a burst of messages and then a few a minute; every edit is one.
    can = Can(longest=texts.LONGEST, edits=True, idempotent=True, edit_every=3.0)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        self._settings = settings
        self._kept = Kept(folder)
        self._everything = settings.more.get("respond") == "all"
        self._client: AsyncClient | None = None
        """While we are connected."""
        self._open: AsyncClient | None = None
        """The same, until it is closed."""
        self._state = State("")
        self._elsewhere: dict[str, str] = {}
        """First message to room: threads that are known to be none of ours, unless we write in them."""
        self._sending: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def measure(self, text: str) -> int:
        return texts.measure(text)

    # --- receiving -------------------------------------------------------------------------------

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """As the protocol says. Cancelled, it hears nothing more, and what is under way can still be sent."""
        await self.close()
        self._open = client = await signed_in(wanted(self._settings.more), self._kept)
        try:
            await self._listen(client, receive, ready)
        except SignedOut as error:
            await self.close()
            raise self._renewable(error) from error
        except Exception:
            await self.close()
            raise

    async def close(self) -> None:
        client, self._open, self._client = self._open, None, None
        if client is not None:
            await closed(client)

    async def _listen(self, client: AsyncClient, receive: Receive, ready: Callable[[], None]) -> None:
        state = self._state = self._kept.state(client.user_id)
        rooms, listening = Rooms(client, state, self._settings), Listening(client, state)
        heard = await listening.hear()
        self._client = client
        ready()
        await rooms.look_up_direct()
        await rooms.known()
        while True:
            await self._hand_in(heard, rooms, receive)
            await self._remember(heard)
            heard = await listening.hear()

    async def _remember(self, heard: Heard) -> None:
        """Only now: what was handed in lasts, so that nobody need tell it again."""
        for event_id in heard.decrypted:
            self._state.waiting.pop(event_id, None)
        if heard.decrypted or self._state.since != heard.since:
            self._state.since = heard.since
            await self._kept.keep_state(self._state)

    async def _hand_in(self, heard: Heard, rooms: Rooms, receive: Receive) -> None:
        for room_id in heard.left:
            rooms.forget(room_id)
        await rooms.invited(heard.invitations)
        for room_id, message in heard.messages:
            room = self._connected().rooms.get(room_id)
            if room is not None:
                await self._hand_over(room, message, rooms, receive)

    async def _hand_over(
        self, room: MatrixRoom, message: RoomMessage, rooms: Rooms, receive: Receive
    ) -> None:
        said = events.read(message.source["content"])
        if said is None or not (said.text.strip() or said.file):
            return
        if said.edits:
            before = await self._look_up(room.room_id, said.edits)
            if before is None or before.sender != message.sender:  # only who said it can say it anew
                return
            thread, replies_to = events.place(before.content)
            said = said._replace(thread=thread, replies_to=replies_to)
        replied = await self._look_up(room.room_id, said.replies_to) if said.replies_to else None
        direct, text, names = rooms.is_direct(room, message.sender), said.text, rooms.our_names(room)
        if not direct:
            if not self._everything and not await self._is_meant(room.room_id, said, replied, names):
                return
            text = events.without_address(text, self._connected().user_id, names)
        quoted = events.read(replied.content) if replied else None
        source = Source(
            self.name,
            room.room_id,
            room.display_name,
            "dm" if direct else "group",
            message.sender,
            room.user_name(message.sender),
            said.thread,
            room.topic,
            message_id=said.edits or message.event_id,
        )
        event = Event(
            source,
            text,
            message.server_timestamp / 1000,
            reply_to=((quoted.text if quoted else said.quoted) or "")[:_LONGEST_QUOTE] or None,
            edits=said.edits,
        )
        files = [offered(self._connected(), said.file)] if said.file else []
        receipt = await receive(event, files)
        if receipt.state in _KNOWN:
            await rooms.known(message.sender)

    async def _is_meant(
        self, room_id: str, said: events.Said, replied: _Looked | None, names: list[str]
    ) -> bool:
        us = self._connected().user_id
        if events.addresses(said, us, names) or (replied and replied.sender == us):
            return True
        if said.thread is None:
            return False
        if said.thread not in self._state.threads and said.thread not in self._elsewhere:
            root = await self._look_up(room_id, said.thread)
            if root and root.ours:
                self._state.take_part(room_id, said.thread)
            else:
                self._elsewhere[said.thread] = room_id
                forget_oldest(self._elsewhere, MOST_THREADS)
        return said.thread in self._state.threads

    async def _look_up(self, room_id: str, event_id: str) -> _Looked | None:
        client = self._connected()
        try:
            answer = await answered(client.room_get_event(room_id, event_id), "looking up a message")
        except Undeliverable:  # it was removed, or we may not see it
            return None
        raw = await answer.transport_response.json()  # with what nio leaves out when it decrypts
        thread = raw.get("unsigned", {}).get("m.relations", {}).get("m.thread", {})
        ours = raw["sender"] == client.user_id or thread.get("current_user_participated") is True
        return _Looked(raw["sender"], answer.event.source["content"], ours)

    # --- delivering ------------------------------------------------------------------------------

    async def send(
        self, to: Source, text: str, *, once: str, reply_to: str | None = None, silent: bool = False
    ) -> str | None:
        calls = (to.user_id,) if reply_to and to.user_id and not silent and to.chat_type != "dm" else ()
        relation = texts.relation(to.thread_id, reply_to, to.message_id)
        content = texts.message(text, silent=silent, relation=relation, mentions=calls)
        # The server shows what comes with a transaction id that it knows only once.
        sent = await self._put(to.chat_id, content, hashlib.sha256(once.encode()).hexdigest())
        if to.thread_id and to.thread_id not in self._state.threads:
            self._state.take_part(to.chat_id, to.thread_id)
            try:
                await self._kept.keep_state(self._state)
            except OSError as error:  # what was sent was sent
                log.warning("matrix: %s", error)
        return sent

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        await self._put(to.chat_id, texts.new_version(message_id, text), None)

    async def typing(self, to: Source) -> None:
        await answered(self._connected().room_typing(to.chat_id, timeout=_TYPING_MS), "typing")

    async def open_thread(self, to: Source, name: str) -> str | None:
        """A thread begins at a message, so one is sent for it to begin at."""
        return await self._put(to.chat_id, texts.message(name), None)

    async def _put(self, room_id: str, content: dict[str, Any], transaction: str | None) -> str:
        client = self._connected()
        room = client.rooms.get(room_id)
        if room is None:  # not ours, or we have come this moment
            await answered(client.joined_members(room_id), f"sending to {room_id}")
            raise Unreachable(f"matrix: {room_id} is not known yet")
        if room.encrypted and not client.olm:
            raise Undeliverable(f"matrix: {room_id} is encrypted, and encryption is turned off")
        async with self._sending[room_id]:
            try:
                answer = await answered(
                    client.room_send(
                        room_id, "m.room.message", content, transaction, ignore_unverified_devices=True
                    ),
                    f"sending to {room_id}",
                )
            except AdapterError as error:
                _begin_new_session(client, room_id)
                raise self._renewable(error) from error
        return str(answer.event_id)

    def _renewable(self, error: AdapterError) -> AdapterError:
        """With a password, being signed out only means to sign in again."""
        signs_in_again = isinstance(error, SignedOut) and not self._settings.more.get("access_token")
        return Unreachable(str(error)) if signs_in_again else error

    def _connected(self) -> AsyncClient:
        if self._client is None:
            raise Unreachable("matrix: not connected")
        return self._client


def _begin_new_session(client: AsyncClient, room_id: str) -> None:
    """After a failure nobody knows who got the key of what comes next. nio believes that all did, or are about to."""
    if client.olm:
        client.sharing_session.pop(room_id, None)
        client.invalidate_outbound_session(room_id)
