"""The route of one chat: stores which session the chat is in when its conversation goes to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes import errors

if TYPE_CHECKING:
    from hermes.db.scoped_store import ScopedStore


class ChatRoute:
    def __init__(
        self, store: ScopedStore, session_key: str, arrive: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        """`arrive` is called when the conversation works in the session that the chat was routed to."""
        self._store, self._session_key, self.arrive = store, session_key, arrive

    async def reset(self, session_id: str, epoch: int | None, title: str | None) -> str:
        return await asyncio.to_thread(
            lambda: self._store.reset(
                session_id, lease_epoch=epoch, session_key=self._session_key, title=title
            )
        )

    async def branch(self, session_id: str, epoch: int | None, title: str | None) -> str:
        return await asyncio.to_thread(
            lambda: self._store.branch(
                session_id, lease_epoch=epoch, session_key=self._session_key, title=title
            )
        )

    async def switch(self, session_id: str, epoch: int | None) -> str:
        route = await asyncio.to_thread(
            lambda: self._store.switch_session(self._session_key, session_id, lease_epoch=epoch)
        )
        if route is None:
            raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id}")
        return route.session_id
