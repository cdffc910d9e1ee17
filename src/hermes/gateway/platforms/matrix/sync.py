"""The sync loop, and the maintenance of encryption keys between two syncs.

The adapter stores the sync position, not the library, and only after the gateway has accepted all messages of the
sync. After a long absence, the server omits messages from the sync. The reader then fetches them. A message whose key
is missing waits for the key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nio import (
    AsyncClient,
    BadEvent,
    Event,
    InviteInfo,
    MegolmEvent,
    MessageDirection,
    RedactionEvent,
    RoomInfo,
    RoomMessage,
    SyncResponse,
)
from nio.exceptions import EncryptionError

from hermes.gateway.adapter import AdapterError, Unreachable
from hermes.gateway.platforms.matrix.errors import call_server
from hermes.gateway.platforms.matrix.rooms import is_beginning
from hermes.gateway.platforms.matrix.state import State
from hermes.logs import get_logger

log = get_logger(__name__)

_WAIT_MS = 30_000
_PATIENCE = 60.0
_FIRST_PATIENCE = 300.0
"""Timeout of the first sync in seconds. It is longer, because the first sync includes the state of every
room."""
_AT_ONCE = 20
"""Maximum events of a room in one sync. Further events are fetched in pages."""
_PAGE = 100
_MOST_PAGES = 50
"""Maximum number of pages of missed messages per room. With 100 events per page, this is 5,000 events."""


class SyncResult(NamedTuple):
    since: str
    """The position of the next sync. It is stored after the gateway has accepted all messages."""
    messages: list[tuple[str, RoomMessage | RedactionEvent]]
    """Pairs of room id and message or deletion, in order within each room, without those of the bot."""
    decrypted: list[str]
    """The ids of events that no longer wait for a key."""
    invitations: dict[str, InviteInfo]
    left: list[str]


class SyncReader:
    def __init__(self, client: AsyncClient, state: State) -> None:
        self._client = client
        self._state = state
        self._began = False
        self._since = state.since
        """The position of the next sync. While messages are not accepted yet, it is ahead of the stored position."""
        self._taken: set[str] = set()
        """The ids of waiting events that `read_next` has already returned. They may not be accepted yet."""

    async def read_next(self) -> SyncResult:
        since, begins = self._since, not self._began
        response: SyncResponse = await call_server(
            self._client.sync(
                timeout=0 if begins else _WAIT_MS,
                sync_filter=_make_filter(_AT_ONCE if since else 1),
                since=since,
                full_state=begins or None,
            ),
            "listening",
            within=_FIRST_PATIENCE if begins else _PATIENCE,
        )
        self._began = True
        await self._maintain_keys(response)
        messages, decrypted = self._take_decrypted()
        if since:  # the first sync without a position contains only old messages
            for room_id, info in response.rooms.join.items():
                messages += await self._collect_messages(room_id, info, since)
        rooms, self._since = response.rooms, response.next_batch
        return SyncResult(response.next_batch, messages, decrypted, rooms.invite, list(rooms.leave))

    async def _collect_messages(
        self, room_id: str, info: RoomInfo, since: str
    ) -> list[tuple[str, RoomMessage | RedactionEvent]]:
        events, us = list(info.timeline.events), self._client.user_id
        if info.timeline.limited and not any(is_beginning(event, us) for event in events):
            events = await self._fetch_missed(room_id, info.timeline.prev_batch, since) + events
        first = next((at for at in reversed(range(len(events))) if is_beginning(events[at], us)), -1)
        messages = []
        for event in events[first + 1 :]:
            if (_is_message(event) or isinstance(event, RedactionEvent)) and event.sender != us:
                messages.append((room_id, event))
            elif isinstance(event, MegolmEvent) and event.sender != us:
                await self._wait_for_key(room_id, event)
        return messages

    async def _fetch_missed(self, room_id: str, start: str | None, since: str) -> list[Any]:
        """Fetch the events that the server omitted from the sync, oldest first."""
        missed: list[Any] = []
        for _ in range(_MOST_PAGES):
            if not start:
                break
            page = await call_server(
                self._client.room_messages(room_id, start, since, MessageDirection.back, _PAGE),
                f"reading missed messages in {room_id}",
            )
            missed += page.chunk
            if not page.chunk or any(is_beginning(event, self._client.user_id) for event in page.chunk):
                break
            start = page.end
        else:
            log.warning("matrix: too many missed messages in %s; the oldest are skipped", room_id)
        return missed[::-1]

    async def _wait_for_key(self, room_id: str, event: MegolmEvent) -> None:
        if event.event_id in self._state.waiting:
            return
        if not self._client.olm:
            log.warning("matrix: %s is encrypted, but encryption is turned off", event.event_id)
            return
        log.warning("matrix: %s in %s cannot be decrypted yet; waiting for its key", event.event_id, room_id)
        self._state.wait_for_key(event.event_id, {**event.source, "room_id": room_id})
        if event.session_id not in self._client.outgoing_key_requests:
            event.room_id = room_id
            try:
                await call_server(self._client.request_room_key(event), "requesting a key")
            except Unreachable:
                raise
            except AdapterError as error:
                log.info("%s", error)

    def _take_decrypted(self) -> tuple[list[tuple[str, RoomMessage | RedactionEvent]], list[str]]:
        """Decrypt the waiting messages whose encryption key has arrived. Return two values: the decrypted messages
        with their room ids, and the ids of all events that no longer wait for a key, including those that could not
        be decrypted."""
        messages: list[tuple[str, RoomMessage | RedactionEvent]] = []
        event_ids = []
        self._taken &= self._state.waiting.keys()
        for event_id, source in self._state.waiting.items():
            event = Event.parse_event(source)
            if event_id in self._taken or not isinstance(event, MegolmEvent) or not self._has_key(event):
                continue
            event_ids.append(event_id)
            self._taken.add(event_id)
            try:
                plain = self._client.decrypt_event(event)
            except EncryptionError as error:
                log.warning("matrix: %s cannot be decrypted with its key: %s", event_id, error)
                continue
            if _is_message(plain):
                messages.append((event.room_id, plain))
        return messages, event_ids

    def _has_key(self, event: MegolmEvent) -> bool:
        olm = self._client.olm
        return bool(olm and olm.inbound_group_store.get(event.room_id, event.sender_key, event.session_id))

    async def _maintain_keys(self, response: SyncResponse) -> None:
        """Send, upload, query and claim encryption keys as needed. Called after each sync."""
        client = self._client
        if not client.olm:
            return
        if response.device_key_count.signed_curve25519 == 0:  # nio treats 0 as "not reported"
            client.olm.uploaded_key_count = 0
        try:
            await call_server(client.send_to_device_messages(), "sending keys")
            if client.should_upload_keys:
                await call_server(client.keys_upload(), "publishing our keys")
            if client.should_query_keys:
                await call_server(client.keys_query(), "requesting devices")
            if client.should_claim_keys:
                await call_server(client.keys_claim(client.get_users_for_key_claiming()), "requesting keys")
                await call_server(client.send_to_device_messages(), "sending keys")
        except Unreachable:
            raise
        except AdapterError as error:  # repeated after the next sync
            log.warning("%s", error)


def _is_message(event: object) -> bool:
    """Return whether a Matrix event is a message. Messages that nio regards as malformed are included, because
    `read_content` can still read them."""
    return (
        isinstance(event, RoomMessage | BadEvent)
        and event.source.get("type") == "m.room.message"
        and isinstance(event.source.get("content"), dict)
    )


def _make_filter(most: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {"types": []}
    return {
        "presence": nothing,
        "account_data": nothing,
        "room": {"timeline": {"limit": most}, "ephemeral": nothing, "account_data": nothing},
    }
