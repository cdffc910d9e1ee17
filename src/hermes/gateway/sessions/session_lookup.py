"""Which session a chat is in: found in the routing, recovered from what its sessions remember, or begun.

Once per chat, however many of its messages come at the same moment.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import Keying, chat_of, key_of, owner_of, principal_of, room_of
from hermes.store.chats.origins import Chat
from hermes.store.content import from_json
from hermes.store.people import person_in

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.routing import Route

MOST_KNOWN = 50_000
WAYS = tuple(Keying(group, thread) for group in (True, False) for thread in (True, False))
"""All that can be set about who shares a session."""


def source_of(db: SessionDB, route: Route, keying: Keying) -> Source:
    """Where a chat is, and who is in it, from what is stored: for what nobody's message set off."""
    session = db.get_session(route.session_id) or {}
    chat = Chat._make(route[1:6])
    for told in (from_json(session.get("origin_json") or "", None), route.entry.get("origin")):
        with suppress(ValueError):
            made_for = Source.from_dict(told) if isinstance(told, dict) else None
            if made_for is not None and chat_of(made_for, keying) == chat:
                return made_for
    # Whose a private chat is says its conversation, which may have come from elsewhere.
    whose = person_in(session.get("owner") or "") or session.get("user_id")
    return Source(
        route.platform,
        route.chat_id,
        session.get("display_name"),
        route.chat_type,
        user_id=route.participant or (whose if route.chat_type == "dm" else None),
        thread_id=route.thread_id or None,
    )


class Places:
    def __init__(self, db: SessionDB, keying: Keying) -> None:
        self._db, self._keying = db, keying
        self._keys: OrderedDict[Chat, str] = OrderedDict()
        self._private: OrderedDict[Chat, str] = OrderedDict()
        """Whose each private chat is."""
        self._opening: dict[Chat, asyncio.Future[str]] = {}
        self._replaced: set[str] = set()
        """Keys of chats that got a new session because the earlier one was moved to the trash."""

    def is_shared(self, source: Source, key: str | None = None) -> bool:
        """Whether what is said there belongs to everybody in the room.

        What came in under other settings goes on where it began: its key tells who shares it.
        """
        keying = next(
            (one for one in (self._keying, *WAYS) if key_of(chat_of(source, one)) == key), self._keying
        )
        return owner_of(source, keying) == room_of(source).room

    async def seen(self, source: Source) -> Source:
        """Where they speak. A private chat is one person's: for whoever else speaks in it, it is a group."""
        if source.chat_type != "dm":
            return source
        chat, owner = chat_of(source, self._keying), owner_of(source, self._keying)
        if chat not in self._private:
            known = await asyncio.to_thread(self._owner, chat)
            self._private.setdefault(chat, known or owner)
            if len(self._private) > MOST_KNOWN:
                self._private.popitem(last=False)
        return source if self._private[chat] == owner else source._replace(chat_type="group")

    def forget_owners(self) -> None:
        """A conversation was given to somebody: whose the private chats are is looked up again."""
        self._private.clear()

    async def key(self, source: Source) -> str:
        """The key of a chat, which has a session from now on."""
        chat = chat_of(source, self._keying)
        if chat not in self._keys:
            self._keys[chat] = await self._once(chat, source)
            if len(self._keys) > MOST_KNOWN:
                self._keys.popitem(last=False)
        return self._keys[chat]

    async def known_key(self, source: Source) -> str:
        """The same, and nothing is begun: the key under which the chat is known, or would be."""
        chat = chat_of(source, self._keying)
        if chat in self._keys:
            return self._keys[chat]
        route = await asyncio.to_thread(self._db.routing.find, *chat)
        return self._spelled(chat) if route is None else route.session_key

    async def session(self, key: str, source: Source) -> str:
        """Where the chat goes on now. One whose conversation was thrown away, or given to somebody, begins another."""
        store = self._db.scoped(principal_of(source))
        live = await asyncio.to_thread(store.live_session, key)
        if live is not None:
            return live
        await self._once(chat_of(source, self._keying), source)
        begun = await asyncio.to_thread(store.live_session, key)
        assert begun is not None
        return begun

    def take_replaced(self, key: str) -> bool:
        """Whether the chat of this key got a new session in the place of a trashed one; answered once."""
        if key not in self._replaced:
            return False
        self._replaced.discard(key)
        return True

    async def _once(self, chat: Chat, source: Source) -> str:
        if chat not in self._opening:
            self._opening[chat] = asyncio.ensure_future(asyncio.to_thread(self._open, chat, source))
            self._opening[chat].add_done_callback(lambda _: self._opening.pop(chat, None))
        return await asyncio.shield(self._opening[chat])

    def _open(self, chat: Chat, source: Source) -> str:
        store, alone = self._db.scoped(principal_of(source)), bool(chat.participant)
        route = self._db.routing.find(*chat)
        if route is not None and store.live_session(route.session_key) is not None:
            return route.session_key
        key = self._spelled(chat) if route is None else route.session_key
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

    def _owner(self, chat: Chat) -> str | None:
        route = self._db.routing.find(*chat)
        session = None if route is None else self._db.get_session(route.session_id)
        return None if session is None else session["owner"]

    def _spelled(self, chat: Chat) -> str:
        """A key of its own, which no other chat has."""
        return key_of(chat, self._db.routing.holder)
