"""The rooms of the account: private chats, the bot's names in rooms, and invitations.

A private chat is a room with exactly one other person. It must always be the same person, because the conversation
belongs to that person. If a third person is invited, or if another person takes the place of the first one, the room
counts as a group.
"""

from __future__ import annotations

from nio import (
    AsyncClient,
    InviteInfo,
    InviteMemberEvent,
    MatrixRoom,
    RoomMemberEvent,
)

from hermes.gateway.adapter import AdapterError, Undeliverable
from hermes.gateway.platforms.matrix.errors import call_server
from hermes.gateway.platforms.matrix.state import State
from hermes.gateway.settings import PlatformSettings
from hermes.logs import get_logger

log = get_logger(__name__)

_SHORTEST_NAME = 3
_JOINING = 30.0
"""Timeout of a join, in seconds. A join on a remote server can be slow. A failed join is repeated later."""


class Rooms:
    def __init__(self, client: AsyncClient, state: State, settings: PlatformSettings) -> None:
        self._client = client
        self._state = state
        self._settings = settings

    async def look_up_direct(self) -> None:
        """Load from the homeserver which rooms the account has marked as direct, and add them to the state with the
        other person of each room."""
        try:
            answer = await call_server(self._client.list_direct_rooms(), "requesting direct rooms")
        except Undeliverable:  # the account has no direct rooms
            return
        for person, rooms in answer.rooms.items():
            for room_id in rooms if isinstance(rooms, list) else ():
                self._state.direct.setdefault(str(room_id), person)

    def is_direct(self, room: MatrixRoom, person: str) -> bool:
        others = room.users.keys() - {self._client.user_id}
        if len(others) > 1:  # invited people can read the room too
            return False
        return self._state.direct.setdefault(room.room_id, person) == person

    def our_names(self, room: MatrixRoom) -> list[str]:
        """Return the names by which people may address the bot in the room: its display name there, if it is long
        enough to be recognised."""
        us = room.users.get(self._client.user_id)
        name = us.display_name if us else None
        return [name] if name and len(name) >= _SHORTEST_NAME else []

    async def accept_invitations(self, invitations: dict[str, InviteInfo]) -> None:
        """Join the rooms that the bot may join. Store the other invitations until their senders have access.
        Anyone may invite the bot to a private chat, because a new person sends the pairing code there. The gateway
        answers no other messages of people without access. Only people with access may invite the bot to a group, so
        that strangers cannot add it to many rooms.
        """
        for room_id, info in invitations.items():
            ours = next(
                (
                    state_event
                    for state_event in info.invite_state
                    if _is_invitation(state_event, self._client.user_id)
                ),
                None,
            )
            if ours is None:
                continue
            self._state.invitations[room_id] = ours.sender
            direct = ours.content.get("is_direct") is True
            if direct:
                self._state.direct.setdefault(room_id, ours.sender)
            if direct or self._is_known(ours.sender):
                await self._join(room_id)
            else:
                log.info(
                    "matrix: ignoring the invitation of unknown user %s to %s for now", ours.sender, room_id
                )

    async def accept_invitations_of(self, person: str | None = None) -> None:
        """Join the rooms to which `person` invited the bot. If `person` is None, accept the invitations of all people
        whom the settings allow."""
        for room_id, inviter in list(self._state.invitations.items()):
            if inviter == person or (person is None and self._is_known(inviter)):
                await self._join(room_id)

    def forget(self, room_id: str) -> None:
        """Forget a room, or an invitation to it, because the bot has left the room or is no longer invited."""
        self._client.rooms.pop(room_id, None)
        self._state.invitations.pop(room_id, None)

    def _is_known(self, person: str) -> bool:
        return self._settings.allow_all or person in self._settings.allowed_users

    async def _join(self, room_id: str) -> None:
        try:
            await call_server(self._client.join(room_id), f"joining {room_id}", within=_JOINING)
        except Undeliverable as error:  # the invitation was withdrawn, or we are banned
            log.warning("%s", error)
            self._state.invitations.pop(room_id, None)
        except AdapterError as error:
            # The server of the room cannot be reached. The other rooms must not wait for it.
            log.warning("%s", error)
        else:
            self._state.invitations.pop(room_id, None)


def is_beginning(event: object, user_id: str) -> bool:
    """Return whether the event is the bot's invitation to a room, or its join without an invitation. Messages before
    such an event are not for the bot."""
    if not isinstance(event, RoomMemberEvent) or event.state_key != user_id:
        return False
    return event.membership == "invite" or (
        event.membership == "join" and event.prev_membership not in ("join", "invite")
    )


def _is_invitation(event: object, user_id: str) -> bool:
    return (
        isinstance(event, InviteMemberEvent) and event.state_key == user_id and event.membership == "invite"
    )
