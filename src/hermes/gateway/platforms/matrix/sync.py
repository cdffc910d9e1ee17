"""The sync loop, and the upkeep of encryption keys between two syncs.

The adapter, not the library, stores the position, after everything in a sync was handed in. Messages that the server
left out after a long absence are fetched. A message without its key waits until the key comes.
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
"""The first sync brings the state of every room."""
_AT_ONCE = 20
"""Events of a room in one sync. More are fetched, a page at a time."""
_PAGE = 100
_MOST_PAGES = 50
"""How far back a silence is fetched: five thousand events of one room."""


class SyncResult(NamedTuple):
    since: str
    """Where to go on when all of this was handed in."""
    messages: list[tuple[str, RoomMessage]]
    """Room id and message, in the order of each room; not our own."""
    decrypted: list[str]
    """Those of them that need not wait for their key any more."""
    invitations: dict[str, InviteInfo]
    left: list[str]


class SyncReader:
    def __init__(self, client: AsyncClient, state: State) -> None:
        self._client = client
        self._state = state
        self._began = False

    async def read_next(self) -> SyncResult:
        since, begins = self._state.since, not self._began
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
        if since:  # without it there is only what was said before we ever came
            for room_id, info in response.rooms.join.items():
                messages += await self._collect_messages(room_id, info, since)
        rooms = response.rooms
        return SyncResult(response.next_batch, messages, decrypted, rooms.invite, list(rooms.leave))

    async def _collect_messages(
        self, room_id: str, info: RoomInfo, since: str
    ) -> list[tuple[str, RoomMessage]]:
        events, us = list(info.timeline.events), self._client.user_id
        if info.timeline.limited and not any(is_beginning(event, us) for event in events):
            events = await self._fetch_missed(room_id, info.timeline.prev_batch, since) + events
        first = next((at for at in reversed(range(len(events))) if is_beginning(events[at], us)), -1)
        messages = []
        for event in events[first + 1 :]:
            if _is_message(event) and event.sender != us:
                messages.append((room_id, event))
            elif isinstance(event, MegolmEvent) and event.sender != us:
                await self._wait_for_key(room_id, event)
        return messages

    async def _fetch_missed(self, room_id: str, start: str | None, since: str) -> list[Any]:
        """What the server left out of its answer because it was so much, oldest first."""
        missed: list[Any] = []
        for _ in range(_MOST_PAGES):
            if not start:
                break
            page = await call_server(
                self._client.room_messages(room_id, start, since, MessageDirection.back, _PAGE),
                f"reading what was missed in {room_id}",
            )
            missed += page.chunk
            if not page.chunk or any(is_beginning(event, self._client.user_id) for event in page.chunk):
                break
            start = page.end
        else:
            log.warning(
                "matrix: so much was said in %s meanwhile that the oldest of it is passed over", room_id
            )
        return missed[::-1]

    async def _wait_for_key(self, room_id: str, event: MegolmEvent) -> None:
        if event.event_id in self._state.waiting:
            return
        if not self._client.olm:
            log.warning("matrix: %s is encrypted, and encryption is turned off", event.event_id)
            return
        log.warning("matrix: %s in %s cannot be decrypted yet; it waits for its key", event.event_id, room_id)
        self._state.wait_for_key(event.event_id, {**event.source, "room_id": room_id})
        if event.session_id not in self._client.outgoing_key_requests:
            event.room_id = room_id
            try:
                await call_server(self._client.request_room_key(event), "asking for a key")
            except Unreachable:
                raise
            except AdapterError as error:
                log.info("%s", error)

    def _take_decrypted(self) -> tuple[list[tuple[str, RoomMessage]], list[str]]:
        """Messages whose key has come, and the ids of all that are not waited for any more."""
        messages, event_ids = [], []
        for event_id, source in self._state.waiting.items():
            event = Event.parse_event(source)
            if not isinstance(event, MegolmEvent) or not self._has_key(event):
                continue
            event_ids.append(event_id)
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
        """What has to be done between two syncs so that people can write to us, and we to them."""
        client = self._client
        if not client.olm:
            return
        if response.device_key_count.signed_curve25519 == 0:  # which nio takes for "not told"
            client.olm.uploaded_key_count = 0
        try:
            await call_server(client.send_to_device_messages(), "sending keys")
            if client.should_upload_keys:
                await call_server(client.keys_upload(), "publishing our keys")
            if client.should_query_keys:
                await call_server(client.keys_query(), "asking for devices")
            if client.should_claim_keys:
                await call_server(client.keys_claim(client.get_users_for_key_claiming()), "asking for keys")
                await call_server(client.send_to_device_messages(), "sending keys")
        except Unreachable:
            raise
        except AdapterError as error:  # it is due again after the next sync
            log.warning("%s", error)


def _is_message(event: object) -> bool:
    """Also one that nio calls bad because something in it is unusual: we read only what we understand."""
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
