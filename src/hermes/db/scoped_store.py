"""The store as one person can use it. Chats and web pages receive only this handle.

It has the applicable methods of `SessionDB`, with the same arguments and results. For all of them, a session
of another owner does not exist: results, errors and lookups are the same as for an unknown id.

Methods that affect the sessions of all owners (prune, thin, scrub, maintenance) are left out. The inbox and
the outbox are left out, because they contain messages whose owner is not known yet. Permanent deletion is
left out too: a person moves conversations to the trash, which is emptied later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hermes import errors
from hermes.db.conversation_verbs import ConversationVerbs
from hermes.db.curation_verbs import CurationVerbs
from hermes.db.documented_verbs import DocumentedVerbs
from hermes.db.handle import Row
from hermes.store.chats.leases import Lease, Leases
from hermes.store.chats.routing import Route, Routing
from hermes.store.content import json_or_none
from hermes.store.engine import Access, Engine, Scoped
from hermes.store.people import Principal
from hermes.store.sessions.families import Child
from hermes.store.sessions.messages import Messages, NewMessage
from hermes.store.sessions.sessions import NewSession, Sessions, check_new_id, new_session_id

if TYPE_CHECKING:
    from hermes.store.spool.spool_writer import SpoolWriter


class ScopedStore(DocumentedVerbs, ConversationVerbs, CurationVerbs):
    def __init__(self, engine: Engine, principal: Principal, spooling: SpoolWriter | None = None) -> None:
        if not principal.owners:
            raise errors.make_error(errors.InvalidArgument, "the principal has neither a person nor a room")
        self.principal = principal
        self._whole = engine
        self._scope = engine.scoped(principal.owners)
        self._spooling = spooling

    def _read_access(self) -> Access:
        return self._scope

    def _write_access(self, *session_ids: str) -> Access:
        return self._scope.owning(*session_ids)

    def _get_append(self, session_id: str) -> Callable[[NewMessage], int]:
        if self._spooling is not None:
            return partial(self._spooling.append_for, self.principal.owners)
        return Messages(self._scope.owning(session_id)).append

    def _make_child(self, **fields: Any) -> Child:
        """Return the column values of a new child session. The caller cannot choose its id, because refusing an id
        would reveal that it exists."""
        if "session_id" in fields:
            raise errors.make_error(errors.InvalidArgument, "session_id cannot be set in a scoped store")
        return Child.of(**fields)

    def create_session(
        self,
        session_id: str | None = None,
        *,
        shared: bool = False,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        parent_session_id: str | None = None,
        session_key: str | None = None,
        display_name: str | None = None,
        origin: dict[str, Any] | None = None,
        started_at: float | None = None,
    ) -> str:
        """Create a session of this person or, with `shared`, of their room. Return its id.

        A requested id is combined with a hash of the owner, so that a caller cannot find out which ids others
        use. A second call with the same id changes nothing, as in `SessionDB`.
        """
        principal = self.principal
        owner = principal.room if shared else principal.person
        if not owner:
            raise errors.make_error(
                errors.InvalidArgument,
                f"the principal has no {'room' if shared else 'person'}, which must own the session",
            )
        columns = {
            "model": model,
            "model_config": model_config,
            "system_prompt": system_prompt,
            "user_id": principal.user,
            "owner": owner,
            "session_key": session_key,
            "chat_id": principal.chat,
            "chat_type": principal.chat_type,
            "thread_id": principal.thread,
            "display_name": display_name,
            "origin_json": json_or_none(origin),
        }
        name = new_session_id() if session_id is None else make_own_id(session_id, owner)
        session = NewSession(name, principal.platform, columns, parent_session_id, started_at)
        if parent_session_id is not None:
            same = self._whole.scoped((owner,))  # a family has one owner
            return Sessions(same.owning(parent_session_id)).create(session)
        return (self._spooling or Sessions(self._whole)).create(session)

    # ---------------------------------------------------------------- leases and routing

    @property
    def leases(self) -> ScopedLeases:
        """Leases, which record which process works in a conversation."""
        return ScopedLeases(self._scope)

    def follow(self, session_id: str, after_message_id: int = 0) -> list[Row]:
        return Leases(self._scope).follow(session_id, after_message_id)

    def route(
        self, session_key: str, session_id: str, *, alone: bool = False, entry: Row | None = None
    ) -> Route:
        """Assign this person's chat to a session. With `alone`, assign only their own part of a shared chat.

        A chat shared by several people can be assigned only to a session that they share.
        """
        principal = self.principal
        return Routing(
            self._scope_to_owner(session_id, shared=not alone and principal.chat_type != "dm")
        ).route(
            session_key,
            principal.platform,
            principal.chat_type,
            principal.chat,
            principal.thread,
            principal.user if alone else "",
            session_id,
            entry,
        )

    def get_route(self, session_key: str) -> Route | None:
        return Routing(self._scope).get(session_key)

    def find_live_session(self, session_key: str) -> str | None:
        """Return the id of the current session of the chat with this key, or None if the chat has no route.
        If the route is out of date, correct it."""
        route = self.get_route(session_key)
        if route is None:
            return None
        return Routing(self._scope.owning(route.session_id)).find_live_session(session_key)

    def switch_session(
        self, session_key: str, session_id: str, *, lease_epoch: int | None = None
    ) -> Route | None:
        """Switch the chat with this key to another session and return its new route. Return None if the chat
        has no route."""
        route = self.get_route(session_key)
        if route is None:
            return None
        shared = not route.participant and route.chat_type != "dm"
        routing = Routing(self._scope_to_owner(session_id, route.session_id, shared=shared))
        return routing.switch(session_key, session_id, lease_epoch=lease_epoch)

    def recover_session(self, session_key: str | None = None, *, alone: bool = False) -> str | None:
        """Find the session of this person's chat after the route of the chat was lost. Return its id, or None
        if there is none. With `alone`, find the session of the person's own part of a shared chat."""
        principal = self.principal
        return Routing(self._scope).recover(
            principal.platform,
            principal.chat_type,
            principal.chat,
            principal.thread,
            principal.user if alone else "",
            session_key=session_key,
        )

    def _scope_to_owner(self, *session_ids: str, shared: bool) -> Access:
        owner = self.principal.room if shared else self.principal.person or self.principal.room
        return self._whole.scoped((owner,) if owner else ()).owning(*session_ids)


class ScopedLeases:
    """Leases of the sessions that one person can see."""

    def __init__(self, scope: Scoped) -> None:
        self._scope = scope

    def acquire(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(session_id)).acquire(session_id, surface, seconds)

    def take_over(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(session_id)).take_over(session_id, surface, seconds)

    def renew(self, lease: Lease, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(lease.session_id)).renew(lease, seconds)

    def release(self, lease: Lease) -> bool:
        leases = Leases(self._scope.owning(lease.session_id))
        try:
            return leases.release(lease)
        except errors.UnknownSession:
            return False

    def find_holder(self, session_id: str) -> Lease | None:
        return Leases(self._scope).find_holder(session_id)


def make_own_id(session_id: str, owner: str) -> str:
    """Return the id under which the store keeps the session that an owner named `session_id`. It differs from
    the ids of other owners who chose the same name."""
    return f"{check_new_id(session_id)}_{sha256(owner.encode()).hexdigest()[:12]}"
