"""Resets as they happen: when one is due and nothing runs, the agent saves what matters, and the chat starts afresh.

A reset that nobody was there for is made when the next message comes, as of the moment at which that was sent: whether
the gateway was running makes no difference. It is announced once, without ringing, and can be undone.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from hermes import clock, errors
from hermes.gateway.commands.markdown_format import plain
from hermes.gateway.context import Office
from hermes.gateway.sessions import incidents, reset_policy

if TYPE_CHECKING:
    from hermes.gateway.inbound.router import Router
    from hermes.gateway.sessions.chat_state import Chat
    from hermes.gateway.settings import ResetPolicy

log = logging.getLogger(__name__)

QUIET_PLATFORMS = ("api-server", "webhook")
LOOK_EVERY_S = 20.0


class Resetting:
    """The resets of one chat."""

    def __init__(self, office: Office, chat: Chat) -> None:
        self._office, self._chat = office, chat

    @property
    def policy(self) -> ResetPolicy:
        source = self._chat.source
        return self._office.settings.policy_for(source.platform, source.chat_type, source.thread_id)

    async def if_due(self, at: float | None = None) -> None:
        """Start afresh if it is time, or was when something was said that is worked on now."""
        if self.policy.mode == "none":
            return
        session_id = self._chat.session_id
        assert session_id is not None
        due = await asyncio.to_thread(self._due, session_id, clock.now() if at is None else at)
        if due is not None:
            await self._reset(session_id, due.reason)

    def _due(self, session_id: str, at: float) -> reset_policy.Due | None:
        return reset_policy.due(self.policy, self._last(session_id), at, self._running(session_id))

    def _last(self, session_id: str) -> float | None:
        """When a person last spoke in the conversation, or came back to it; None if nobody ever spoke."""
        session = self._chat.store.get_session(session_id)
        spoke: float | None = None if session is None else session["last_person_at"]
        return None if spoke is None else max(spoke, incidents.came_at(self._office.db, self._chat.key))

    def next_at(self) -> float | None:
        """When the chat would start afresh if nobody spoke."""
        session_id = self._chat.session_id
        if session_id is None:
            return None
        return reset_policy.next_due(self.policy, self._last(session_id), self._running(session_id))

    def _running(self, session_id: str) -> list[float]:
        """When each process was started that this conversation has in the background."""
        from hermes.agent.tools.background_processes import find_conversation

        processes = self._office.minds.processes.of(find_conversation(self._chat.store, session_id))
        age = clock.now() - monotonic()
        return [one.running.began + age for one in processes if not one.running.over]

    async def _reset(self, session_id: str, reason: str) -> None:
        chat = self._chat
        await self._save(session_id)
        title = await asyncio.to_thread(chat.store.get_session_title, session_id)
        new = await asyncio.to_thread(
            partial(chat.store.reset, session_id, reason=reason, lease_epoch=chat.epoch, session_key=chat.key)
        )
        await chat.moved(new)
        self._office.metrics.resets.add(reason)
        log.info("%s was reset (%s)", chat.key, reason)
        if self.policy.notify and chat.source.platform not in QUIET_PLATFORMS:
            source, settings = chat.source, self._office.settings
            alone = source.chat_type == "dm" or chat.shared or not source.user_name
            text = reset_policy.notice(
                self.policy,
                reason,
                title or session_id,
                settings.policy_name(source.platform, source.chat_type, source.thread_id),
                None if alone else plain(str(source.user_name)),
            )
            await chat.post(text, f"reset:{new}", silent=True)

    async def _save(self, session_id: str) -> None:
        """Give the agent its turn to save, once for a reset, however often that is tried.

        The reset does not depend on it: the conversation stays, and can be gone back to.
        """
        db, chat = self._office.db, self._chat
        spoke = await asyncio.to_thread(self._last, session_id)
        if await asyncio.to_thread(incidents.is_saved, db, chat.key, session_id, spoke):
            return
        if await chat.talking.save(least=1):
            await asyncio.to_thread(incidents.saved, db, chat.key, session_id, spoke)


async def watch(office: Office, router: Router) -> None:
    """Wake the chats for which it is time, for ever. Each of them decides by itself, between two answers."""
    while True:
        try:
            for key in await asyncio.to_thread(_candidates, office):
                await router.wake(key)
        except errors.StoreError as problem:
            log.warning("resets wait for the store: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)


def _candidates(office: Office) -> list[str]:
    """Chats whose time has come, going by what the store knows of them in one read."""
    settings = office.settings
    policies = (settings.reset, *settings.reset_by_type.values(), *settings.reset_by_platform.values())
    if all(policy.mode == "none" for policy in policies):
        return []
    now = clock.now()
    clocks = ((chat, settings.policy_for(*chat[1:4])) for chat in office.db.routing.clocks())
    return [chat.session_key for chat, policy in clocks if reset_policy.due(policy, chat.last_person_at, now)]
