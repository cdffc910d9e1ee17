"""The rooms of the account: which are private chats, our names in them, and which invitations to accept.

A private chat is a room with exactly one other person, and always the same one: its conversation is theirs and must not
pass to whoever comes next. So a direct room into which a third person was invited is a group, and so is one whose other
person was replaced.
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
"""Seconds that a room on a distant server may take; it is tried again another time."""


class Rooms:
    def __init__(self, client: AsyncClient, state: State, settings: PlatformSettings) -> None:
        self._client = client
        self._state = state
        self._settings = settings

    async def look_up_direct(self) -> None:
        """Which rooms our account calls direct, and with whom."""
        try:
            answer = await call_server(self._client.list_direct_rooms(), "asking for direct rooms")
        except Undeliverable:  # none was ever called so
            return
        for person, rooms in answer.rooms.items():
            for room_id in rooms if isinstance(rooms, list) else ():
                self._state.direct.setdefault(str(room_id), person)

    def is_direct(self, room: MatrixRoom, person: str) -> bool:
        others = room.users.keys() - {self._client.user_id}
        if len(others) > 1:  # somebody who is invited will read along
            return False
        return self._state.direct.setdefault(room.room_id, person) == person

    def our_names(self, room: MatrixRoom) -> list[str]:
        """How people there call us, beside our id."""
        us = room.users.get(self._client.user_id)
        name = us.display_name if us else None
        return [name] if name and len(name) >= _SHORTEST_NAME else []

    async def accept_invitations(self, invitations: dict[str, InviteInfo]) -> None:
        """Go where we may; remember the other invitations, for when we know who sent them.

        Anybody may ask us into a private chat: that is where a stranger shows the code that makes them known, and the
        gateway answers nobody else. A group only those may who are known by name, so that nobody can fill our rooms.
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
                log.info("matrix: %s invites us to %s; left until they are known", ours.sender, room_id)

    async def accept_invitations_of(self, person: str | None = None) -> None:
        """Go where this person invited us; without one, where those did who are known by now."""
        for room_id, inviter in list(self._state.invitations.items()):
            if inviter == person or (person is None and self._is_known(inviter)):
                await self._join(room_id)

    def forget(self, room_id: str) -> None:
        """We are not there any more, or not asked any more."""
        self._client.rooms.pop(room_id, None)
        self._state.invitations.pop(room_id, None)

    def _is_known(self, person: str) -> bool:
        return self._settings.allow_all or person in self._settings.allowed_users

    async def _join(self, room_id: str) -> None:
        try:
            await call_server(self._client.join(room_id), f"joining {room_id}", within=_JOINING)
        except Undeliverable as error:  # withdrawn, or we are banned
            log.warning("%s", error)
            self._state.invitations.pop(room_id, None)
        except AdapterError as error:
            # The room's own server is away: that must not keep us from everybody else.
            log.warning("%s", error)
        else:
            self._state.invitations.pop(room_id, None)


def is_beginning(event: object, user_id: str) -> bool:
    """Whether what was said in a room before this was not said to us: we were invited, or came uninvited."""
    if not isinstance(event, RoomMemberEvent) or event.state_key != user_id:
        return False
    return event.membership == "invite" or (
        event.membership == "join" and event.prev_membership not in ("join", "invite")
    )


def _is_invitation(event: object, user_id: str) -> bool:
    return (
        isinstance(event, InviteMemberEvent) and event.state_key == user_id and event.membership == "invite"
    )
