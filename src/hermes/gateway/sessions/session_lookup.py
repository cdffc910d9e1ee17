"""The session of a chat. It is found in the routing, recovered from stored sessions, or created.

Concurrent messages of a chat share one lookup.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from hermes.db.store_queue import call_store_early
from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import (
    find_owner,
    make_chat,
    make_chat_key,
    make_principal,
    make_room,
)
from hermes.gateway.settings import Keying
from hermes.store.chats.origins import Chat
from hermes.store.content import from_json
from hermes.store.people import find_person

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.routing import Route

T = TypeVar("T")

MOST_KNOWN = 50_000
WAYS = tuple(Keying(group, thread) for group in (True, False) for thread in (True, False))
"""All possible combinations of the settings for session sharing."""


def restore_source(db: SessionDB, route: Route, keying: Keying) -> Source:
    """Build the source of a chat from stored data. Used for work that was not started by a message."""
    session = db.get_session(route.session_id) or {}
    chat = Chat._make(route[1:6])
    for origin in (from_json(session.get("origin_json") or "", None), route.entry.get("origin")):
        with suppress(ValueError):
            made_for = Source.from_dict(origin) if isinstance(origin, dict) else None
            if made_for is not None and make_chat(made_for, keying) == chat:
                return made_for
    # The person of a private chat is the owner of its conversation, which may have come from another chat.
    person = find_person(session.get("owner") or "") or session.get("user_id")
    return Source(
        route.platform,
        route.chat_id,
        session.get("display_name"),
        route.chat_type,
        user_id=route.participant or (person if route.chat_type == "dm" else None),
        thread_id=route.thread_id or None,
    )


class SessionLookup:
    def __init__(self, db: SessionDB, keying: Keying) -> None:
        self._db, self._keying = db, keying
        self._keys: OrderedDict[Chat, str] = OrderedDict()
        self._private: OrderedDict[Chat, str] = OrderedDict()
        """The owner of each private chat."""
        self._opening: dict[Chat, asyncio.Future[str]] = {}
        self._opening_own: dict[Chat, asyncio.Future[tuple[str, str | None]]] = {}
        self._replaced: set[str] = set()
        """Keys of chats that got a new session because the earlier one was moved to the trash."""

    def change_keying(self, keying: Keying) -> None:
        """Share sessions in another way from now on. Existing chats keep theirs."""
        self._keying = keying
        self._keys.clear()
        self._private.clear()

    def is_shared(self, source: Source, key: str | None = None) -> bool:
        """Return whether everybody in the room shares the session.

        If the settings were changed after the chat was created, the chat keeps its old way of sharing. `key`,
        the chat's key, shows which way that is.
        """
        keying = next(
            (keying for keying in (self._keying, *WAYS) if make_chat_key(make_chat(source, keying)) == key),
            self._keying,
        )
        return find_owner(source, keying) == make_room(source).room

    async def resolve_private_source(self, source: Source) -> Source:
        """Return the source. If it is a private chat and the sender is not the owner of the chat, the
        returned source has the type `group`."""
        if source.chat_type != "dm":
            return source
        chat, owner = make_chat(source, self._keying), find_owner(source, self._keying)
        if chat not in self._private:
            stored_owner = await call_store_early(self._find_owner, chat)
            self._remember_owner(chat, stored_owner or owner)
        return source if self._private[chat] == owner else source._replace(chat_type="group")

    def _remember_owner(self, chat: Chat, owner: str) -> None:
        self._private.setdefault(chat, owner)
        if len(self._private) > MOST_KNOWN:
            self._private.popitem(last=False)

    async def ensure_chat(self, source: Source) -> tuple[Source, str]:
        """Return the source as `resolve_private_source` does, and the key of its chat as `ensure_key` does.

        For a new private chat, both are one store call.
        """
        chat = make_chat(source, self._keying)
        if source.chat_type == "dm" and chat not in self._private and chat not in self._keys:
            owner = find_owner(source, self._keying)
            stored_owner, key = await self._share(
                self._opening_own, chat, lambda: self._open_own(chat, source, owner)
            )
            self._remember_owner(chat, stored_owner)
            if key is not None:
                self._remember_key(chat, key)
        source = await self.resolve_private_source(source)
        return source, await self.ensure_key(source)

    def _open_own(self, chat: Chat, source: Source, owner: str) -> tuple[str, str | None]:
        """Return the owner of a private chat and, if the sender is the owner, its key."""
        stored_owner = self._find_owner(chat) or owner
        return stored_owner, self._open(chat, source) if stored_owner == owner else None

    def forget_owners(self) -> None:
        """Forget the owners of private chats. Called after a conversation changed its owner."""
        self._private.clear()

    def forget_chats(self) -> None:
        """Forget the keys of chats. Called after a chat got another id."""
        self._keys.clear()
        self._private.clear()

    async def ensure_key(self, source: Source) -> str:
        """Return the key of a chat. Create its session if there is none."""
        chat = make_chat(source, self._keying)
        if chat not in self._keys:
            self._remember_key(chat, await self._open_once(chat, source))
        return self._keys[chat]

    def _remember_key(self, chat: Chat, key: str) -> None:
        self._keys[chat] = key
        if len(self._keys) > MOST_KNOWN:
            self._keys.popitem(last=False)

    async def find_key(self, source: Source) -> str:
        """Return the key that the chat has or would get, without creating anything."""
        chat = make_chat(source, self._keying)
        if chat in self._keys:
            return self._keys[chat]
        route = await call_store_early(self._db.routing.find, *chat)
        return self._make_key(chat) if route is None else route.session_key

    def find_session(self, key: str, source: Source) -> str | None:
        """Return the live session of the chat, or None if there is none."""
        return self._db.scoped(make_principal(source)).find_live_session(key)

    async def ensure_session(self, key: str, source: Source) -> str:
        """Return the live session of the chat. If the last one was deleted or has another owner now, create a
        new one."""
        store = self._db.scoped(make_principal(source))
        live = await call_store_early(store.find_live_session, key)
        if live is not None:
            return live
        await self._open_once(make_chat(source, self._keying), source)
        session = await call_store_early(store.find_live_session, key)
        assert session is not None
        return session

    def pop_replaced(self, key: str) -> bool:
        """Return whether the chat got a new session because the last one was trashed. This is reported once:
        the next call returns False."""
        if key not in self._replaced:
            return False
        self._replaced.discard(key)
        return True

    async def _open_once(self, chat: Chat, source: Source) -> str:
        return await self._share(self._opening, chat, lambda: self._open(chat, source))

    @staticmethod
    async def _share(running: dict[Chat, asyncio.Future[T]], chat: Chat, work: Callable[[], T]) -> T:
        """Run `work` for a chat and return its result. Calls for the same chat at the same time share one run."""
        if chat not in running:
            running[chat] = asyncio.ensure_future(call_store_early(work))
            running[chat].add_done_callback(lambda _: running.pop(chat, None))
        return await asyncio.shield(running[chat])

    def _open(self, chat: Chat, source: Source) -> str:
        store, alone = self._db.scoped(make_principal(source)), bool(chat.participant)
        route = self._db.routing.find(*chat)
        if route is not None and store.find_live_session(route.session_key) is not None:
            return route.session_key
        key = self._make_key(chat) if route is None else route.session_key
        session = store.recover_session(key, alone=alone)
        if session is None:
            if self._db.routing.was_trashed(key):
                self._replaced.add(key)
            session = store.create_session(
                shared=self.is_shared(source),
                session_key=key,
                display_name=source.chat_name,
                origin=source.to_dict(),
            )
        return store.route(key, session, alone=alone).session_key

    def _find_owner(self, chat: Chat) -> str | None:
        route = self._db.routing.find(*chat)
        session = None if route is None else self._db.get_session(route.session_id)
        return None if session is None else session["owner"]

    def _make_key(self, chat: Chat) -> str:
        """Return a key that no other chat has."""
        return make_chat_key(chat, self._db.routing.find_chat)
