"""Runs resets. When a reset is due and no turn runs, the agent saves its memory and the chat starts a new
session.

A reset that was missed is done before the next message is processed. The send time of that message decides
whether the reset is due, so the result does not depend on whether the gateway was running. A reset is announced
by one silent message and can be undone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from time import monotonic
from typing import TYPE_CHECKING

from hermes import clock, errors
from hermes.db.store_queue import call_store_early
from hermes.gateway import incidents, registry
from hermes.gateway.context import GatewayContext
from hermes.gateway.outbound.markdown_format import escape_line
from hermes.gateway.sessions import reset_policy
from hermes.insights.number_format import format_duration, format_plural
from hermes.store.processes import identify_process

if TYPE_CHECKING:
    from hermes.gateway.inbound.chat_state import Chat
    from hermes.gateway.inbound.router import Router
    from hermes.gateway.settings import ResetPolicy

log = logging.getLogger(__name__)

LOOK_EVERY_S = 20.0


class ChatResets:
    """Decides when one chat must be reset automatically, and resets it."""

    def __init__(self, context: GatewayContext, chat: Chat) -> None:
        self._context, self._chat = context, chat

    @property
    def policy(self) -> ResetPolicy:
        source = self._chat.source
        return self._context.settings.find_policy(source.platform, source.chat_type, source.thread_id)

    async def reset_if_due(self, at: float | None = None) -> None:
        """Reset the chat if a reset is due. `at` is the time for which this is decided: the send time of the
        message that is processed next, or None for the current time."""
        if self.policy.mode == "none":
            return
        session_id = self._chat.session_id
        assert session_id is not None
        due = await call_store_early(self._find_due, session_id, clock.now() if at is None else at)
        if due is not None:
            await self._reset(session_id, due.reason)

    def _find_due(self, session_id: str, at: float) -> reset_policy.DueReset | None:
        return reset_policy.find_due(
            self.policy, self._last_spoken_at(session_id), at, self._list_running(session_id)
        )

    def _last_spoken_at(self, session_id: str) -> float | None:
        """Return when a person last wrote in the conversation or switched to it. Return None if nobody ever
        wrote."""
        session = self._chat.store.get_session(session_id)
        spoke: float | None = None if session is None else session["last_person_at"]
        return None if spoke is None else max(spoke, incidents.last_arrival(self._context.db, self._chat.key))

    def next_reset_at(self) -> float | None:
        """Return the time at which the chat will be reset if nobody writes. Return None if it will not be reset."""
        session_id = self._chat.session_id
        if session_id is None:
            return None
        return reset_policy.find_next_due(
            self.policy, self._last_spoken_at(session_id), self._list_running(session_id)
        )

    def list_holds(self) -> list[str]:
        """Return what an automatic reset of the chat must wait for, as noun phrases for `/status`. A reset waits
        while any program works in the conversation. It also waits for background processes, as long as the reset
        policy allows."""
        chat, now, session_id = self._chat, clock.now(), self._chat.session_id
        holds: list[str] = []
        if self.policy.mode == "none" or session_id is None:
            return holds
        if chat.working_since is not None:
            holds.append("the answer in progress")
        if chat.waiting_approvals:
            holds.append(format_plural(len(chat.waiting_approvals), "pending approval"))
        if chat.waiting:
            holds.append(f"{format_plural(chat.waiting, 'message')} waiting for an answer")
        running = self._list_running(session_id)
        if running and now <= (until := reset_policy.find_hold_end(self.policy, running)):
            limit = "" if math.isinf(until) else f", at most for another {format_duration(until - now)}"
            what = "a background process" if len(running) == 1 else f"{len(running)} background processes"
            holds.append(f"{what}{limit}")
        holder = chat.store.leases.find_holder(session_id)
        if holder is not None and holder.holder[:3] != identify_process():
            holds.append("another program that works in this conversation")
        return holds

    def _list_running(self, session_id: str) -> list[float]:
        """Return the start times of the conversation's running background processes."""
        from hermes.agent.tool import find_conversation_root

        processes = self._context.agents.processes.list_for(
            find_conversation_root(self._chat.store, session_id)
        )
        age = clock.now() - monotonic()
        return [process.running.began + age for process in processes if not process.running.over]

    async def _reset(self, session_id: str, reason: str) -> None:
        chat = self._chat
        await self._save(session_id)
        title = await call_store_early(chat.store.get_session_title, session_id)
        new = await chat.conversation.start_afresh(reason)
        self._context.metrics.resets.add(reason)
        log.info("%s was reset (%s)", chat.key, reason)
        if self.policy.notify and _has_reset_notices(chat.source.platform):
            source, settings = chat.source, self._context.settings
            alone = source.chat_type == "dm" or chat.is_shared or not source.user_name
            text = reset_policy.format_notice(
                self.policy,
                reason,
                title or session_id,
                settings.find_policy_name(source.platform, source.chat_type, source.thread_id),
                None if alone else escape_line(str(source.user_name)),
            )
            await chat.post(text, f"reset:{new}", silent=True)

    async def _save(self, session_id: str) -> None:
        """Run a turn in which the agent saves its memory before the session `session_id` is reset. If the reset is
        retried, the turn does not run again. If nothing could be saved, the reset takes place all the same. The old
        conversation is kept and can be resumed."""
        db, chat = self._context.db, self._chat
        spoke = await call_store_early(self._last_spoken_at, session_id)
        if await call_store_early(incidents.is_saved, db, chat.key, session_id, spoke):
            return
        if await chat.conversation.save(least=1):
            await call_store_early(incidents.mark_saved, db, chat.key, session_id, spoke)


async def watch_resets(context: GatewayContext, router: Router) -> None:
    """Wake the chats whose reset seems due, in an endless loop. A woken chat checks whether a reset is really due,
    when no turn is running."""
    while True:
        try:
            for key in await asyncio.to_thread(_find_due_chats, context):
                await router.wake(key)
        except errors.StoreError as problem:
            log.warning("resets are delayed, the store is not available: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)


def _find_due_chats(context: GatewayContext) -> list[str]:
    """Return the keys of the chats whose reset seems due. This is one store query for all chats, which ignores
    background processes and switches between conversations."""
    settings = context.settings
    policies = (settings.reset, *settings.reset_by_type.values(), *settings.reset_by_platform.values())
    if all(policy.mode == "none" for policy in policies):
        return []
    now = clock.now()
    clocks = ((chat, settings.find_policy(*chat[1:4])) for chat in context.db.routing.list_clocks())
    return [
        chat.session_key for chat, policy in clocks if reset_policy.find_due(policy, chat.last_person_at, now)
    ]


def _has_reset_notices(platform: str) -> bool:
    return platform not in registry.PLATFORMS or registry.PLATFORMS[platform].announces_resets
