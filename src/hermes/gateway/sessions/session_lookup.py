"""The session of a chat. It is found in the routing, recovered from stored sessions, or created."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import errors
from hermes.db.store_queue import call_store_early
from hermes.gateway.inbound_events import Event, Source
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

MOST_KNOWN = 50_000
WAYS = tuple(Keying(group, thread) for group in (True, False) for thread in (True, False))
"""All possible combinations of the settings for session sharing."""


def restore_source(db: SessionDB, route: Route, keying: Keying) -> Source:
    """Return the source of the chat with this route, built from the route and its session. Used when there is no
    received message from which to take the source."""
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
        self._keys: OrderedDict[Chat, tuple[str, str]] = OrderedDict()
        """The key and the owner of each chat that was looked up."""
        self._chats: dict[str, Chat] = {}
        """The same chats, by their keys."""
        self._new: set[Chat] = set()
        """Those of them whose session is not created yet."""
        self._generation = 0
        """The number of calls of `forget_chats`."""
        self._replaced: set[str] = set()
        """Keys of chats that got a new session because the earlier one was moved to the trash."""

    def change_keying(self, keying: Keying) -> None:
        """Change the setting that says in which chats people share a session. A chat that already has a route stays
        as it is."""
        self._keying = keying
        self.forget_chats()

    def is_shared(self, source: Source, key: str | None = None) -> bool:
        """Return whether everybody in the chat of `source` shares one session.

        `key` is the session key of the chat. It shows which sharing setting was in force when the chat got the key,
        and that setting still applies to the chat. Without `key`, the current setting applies.
        """
        keying = next(
            (keying for keying in (self._keying, *WAYS) if make_chat_key(make_chat(source, keying)) == key),
            self._keying,
        )
        return find_owner(source, keying) == make_room(source).room

    async def resolve_private_source(self, source: Source) -> Source:
        """Return `source`. If it is a private chat whose session belongs to another person than the sender, return
        it with the chat type `group` instead."""
        return (await self.find_chat(source))[0] if source.chat_type == "dm" else source

    async def find_chat(self, source: Source) -> tuple[Source, str]:
        """Return two values: the source as `resolve_private_source` returns it, and the session key of its chat.
        For a new chat, this is the key that the chat will get. Nothing is created. The session of a new chat is
        created when its first message is processed."""
        chat = make_chat(source, self._keying)
        while chat not in self._keys:
            generation = self._generation
            owner, key = await call_store_early(self._locate, chat)
            if generation == self._generation:  # if not, the owner may have changed meanwhile
                self._remember(chat, key, owner or find_owner(source, self._keying), is_new=owner is None)
        key, owner = self._keys[chat]
        if source.chat_type == "dm" and owner != find_owner(source, self._keying):
            return await self.find_chat(source._replace(chat_type="group"))
        return source, key

    async def find_key(self, source: Source) -> str:
        """Return the session key of the chat of `source`. For a new chat, this is the key that the chat will get."""
        return (await self.find_chat(source))[1]

    def _remember(self, chat: Chat, key: str, owner: str, *, is_new: bool) -> None:
        if self._chats.get(key, chat) != chat:  # another new chat got this key in the meantime
            key = make_chat_key(chat, self._chats.get)
        if is_new and chat not in self._keys:
            self._new.add(chat)
        self._keys.setdefault(chat, (key, owner))
        self._chats.setdefault(key, chat)
        if len(self._keys) > MOST_KNOWN:
            self._forget(next(iter(self._keys)))

    def _forget(self, chat: Chat) -> None:
        key, _ = self._keys.pop(chat)
        self._chats.pop(key, None)
        self._new.discard(chat)

    def forget_chats(self) -> None:
        """Drop the cached session keys and owners of chats, so that they are read from the store again. Called
        after a chat got another id or another owner.

        A new chat stays cached, because its owner is not stored before its first turn.
        """
        self._generation += 1
        for chat in [chat for chat in self._keys if chat not in self._new]:
            self._forget(chat)

    def open_session(self, key: str, source: Source) -> str:
        """Return the live session of the chat. If there is none, or if it now has another owner, recover or create
        one.
        The caller must make sure that only one call at a time runs for a chat.
        """
        store = self._db.scoped(make_principal(source))
        return store.find_live_session(key) or self._create(key, source)

    def pop_replaced(self, key: str) -> bool:
        """Return whether the chat `key` got a new session because the previous one was moved to the trash. Each
        replacement is reported once: a second call returns False."""
        if key not in self._replaced:
            return False
        self._replaced.discard(key)
        return True

    def _create(self, key: str, source: Source) -> str:
        chat, store = make_chat(source, self._keying), self._db.scoped(make_principal(source))
        alone = bool(chat.participant)
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
        route = store.route(key, session, alone=alone)
        self._new.discard(chat)
        return route.session_id

    def _locate(self, chat: Chat) -> tuple[str | None, str]:
        """Return the owner of the conversations in `chat`, and the session key of the chat. The owner is None if
        the chat is new: it has neither a session nor a waiting message."""
        route = self._db.routing.find(*chat)
        if route is None:
            key = make_chat_key(chat, self._find_chat_of)
            source = self.find_waiting_source(key)
            return None if source is None else find_owner(source, self._keying), key
        session = self._db.get_session(route.session_id)
        return None if session is None else session["owner"], route.session_key

    def _find_chat_of(self, key: str) -> Chat | None:
        """Return the chat that has the session key `key`, or None. If the chat has no route yet, it is found by its
        messages in the inbox."""
        chat = self._chats.get(key) or self._db.routing.find_chat(key)
        source = None if chat is not None else self.find_waiting_source(key)
        return chat if source is None else make_chat(source, self._keying)

    def find_waiting_source(self, key: str) -> Source | None:
        """Return the source of the oldest inbox message of a chat, or None if there is no valid message."""
        for entry in self._db.inbox.list_waiting(key):
            with suppress(errors.InvalidArgument):
                return Event.from_dict(entry.event).source
        return None
