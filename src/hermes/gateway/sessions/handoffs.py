"""Handoffs from a terminal to the home channel of a platform.

First a message is sent to the channel. When it is delivered, one transaction routes the channel to the
conversation and changes the owner of the conversation. If the message cannot be delivered, the conversation stays
at the terminal, and the terminal shows the reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from hermes import clock, errors, secrets
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.retry import until_stored
from hermes.gateway.sessions.session_keys import (
    find_owner,
    is_shared_multi_user_session,
    make_chat,
    make_chat_key,
)
from hermes.gateway.settings import Keying
from hermes.recall.tool.prompt_safety import to_one_line
from hermes.text import format_count

if TYPE_CHECKING:
    from hermes.gateway.inbound.router import Router
    from hermes.gateway.settings import PlatformSettings

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
FREE_S, FREE_NAP_S = 2.0, 0.05
"""How long to wait until the lease of a conversation is free, and the time between two checks, in seconds."""
SYSTEM = "system:handoff"
ARRIVED = (
    "↪ A conversation from the terminal continues here{title}: {messages} so far."
    " Send a message to continue it; `hermes -r {session}` brings it back to the terminal."
)


class HandoffRefused(errors.HermesError):
    """The conversation cannot be handed over. The error message is shown at the terminal."""


async def watch_handoffs(context: GatewayContext, router: Router) -> None:
    """Look for handoffs that a terminal has requested, and process them, in an endless loop."""
    while True:
        try:
            for session in await asyncio.to_thread(context.db.list_pending_handoffs):
                if await asyncio.to_thread(context.db.claim_handoff, session["id"]):
                    await _take_handoff(context, router, session)
        except errors.StoreError as problem:
            log.warning("handoffs are delayed, the store is not available: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)


async def _take_handoff(context: GatewayContext, router: Router, session: dict[str, Any]) -> None:
    platform, session_id = str(session["handoff_platform"]), str(session["id"])
    try:
        key = await _hand_over(context, platform, session)
    except Exception as problem:
        is_expected = isinstance(problem, errors.HermesError)
        why = secrets.redact(str(problem) if is_expected else repr(problem))
        log.warning("the handoff to %s failed: %s", platform, why, exc_info=not is_expected)
        await until_stored(lambda: asyncio.to_thread(context.db.fail_handoff, session_id, why))
        return
    await until_stored(lambda: asyncio.to_thread(context.db.complete_handoff, session_id))
    router.forget(key)
    context.notify_chat_changed()


async def _hand_over(context: GatewayContext, platform: str, session: dict[str, Any]) -> str:
    adapter, settings = context.adapters.get(platform), context.settings.platforms.get(platform)
    if adapter is None or settings is None:
        raise HandoffRefused(f"{platform} is not connected to this gateway")
    if not settings.home_channel:
        raise HandoffRefused(
            f"{platform} has no home channel; send /sethome in the chat that should become its home channel"
        )
    title = session["title"]
    keying = context.settings.keying
    to = await _find_destination(adapter, settings, keying, title or session["id"])
    await _wait_until_free(context, session["id"])
    messages = await asyncio.to_thread(context.db.message_count, session["id"])
    text = ARRIVED.format(
        title=f", “{to_one_line(title)}”" if title else "",
        messages=format_count(messages, "message"),
        session=session["id"],
    )
    await adapter.send(to, text, idempotency_key=f"handoff:{session['id']}:{clock.now():.0f}")
    # The prompt describes the machine and its memory, which is meant for the person at the machine only.
    await asyncio.to_thread(context.db.update_system_prompt, session["id"], None)
    routing, chat = context.db.routing, make_chat(to, keying)
    key = await asyncio.to_thread(make_chat_key, chat, routing.find_chat)
    route = await asyncio.to_thread(routing.hand_over, key, *chat, session["id"], find_owner(to, keying))
    # A session from the terminal has no origin in a chat. Resets and the mirror files need the origin.
    await asyncio.to_thread(
        routing.change_entry, route.session_key, lambda entry: {**entry, "origin": to.to_dict()}
    )
    return route.session_key


async def _wait_until_free(context: GatewayContext, session_id: str) -> None:
    """Wait until the lease of the conversation is free. A turn that has just posted its answer may still hold
    the lease for a moment. Raise `HandoffRefused` after `FREE_S` seconds."""
    until = time.monotonic() + FREE_S
    while await asyncio.to_thread(context.db.leases.find_holder, session_id) is not None:
        if time.monotonic() > until:
            raise HandoffRefused("the conversation is in use by another program")
        await asyncio.sleep(FREE_NAP_S)


async def _find_destination(
    adapter: Adapter, settings: PlatformSettings, keying: Keying, title: str
) -> Source:
    """Return the chat to which a conversation is handed over. If the home channel of the platform is a private
    chat, this is the home channel. In a group, it is a shared thread: the configured thread, or a new one with the
    name `title`."""
    channel = str(settings.home_channel)
    kind = settings.home_type or ("group" if channel.startswith("-") else "dm")
    home = Source(
        settings.name,
        channel,
        chat_type=kind,
        user_id=_find_person(settings, channel) if kind == "dm" else SYSTEM,
        thread_id=settings.home_thread,
    )
    if kind != "dm" and not is_shared_multi_user_session(
        home._replace(thread_id=home.thread_id or "new"), **asdict(keying)
    ):
        raise HandoffRefused(
            f"in the home channel of {settings.name} each person has a separate conversation"
            " (thread_sessions_per_user); send /sethome in a private chat"
        )
    if kind == "dm" or home.thread_id:
        return home
    thread = await adapter.open_thread(home, f"Hermes — {to_one_line(title, 80)}")
    if thread is None:
        raise HandoffRefused(
            f"the home channel of {settings.name} is a group without threads; send /sethome in a private chat"
        )
    return home._replace(thread_id=thread)


def _find_person(settings: PlatformSettings, channel: str) -> str:
    """Return the id of the person in `channel`, a private home channel. This person becomes the owner of the
    conversation that is handed over. Raise `HandoffRefused` if the person is unknown."""
    if settings.home_user:
        return settings.home_user
    platform = registry.PLATFORMS.get(settings.name)
    if platform is not None and platform.is_private_chat_user:
        return channel
    candidates = settings.owners or settings.allowed_users
    if len(candidates) == 1:
        return next(iter(candidates))
    raise HandoffRefused(f"the owner of the home channel of {settings.name} is unknown; send /sethome there")
