"""Scheduled jobs in the gateway: the ticker, and the way of results to the home channels.

Commands use the same sender without a running gateway. The outbox then keeps the result until a gateway delivers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import errors
from hermes.config.settings import read_settings
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter, AdapterError
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.requests import ask_gateway
from hermes.gateway.outbound.outgoing_message import OutgoingMessage, divide_message
from hermes.gateway.platform_setup import make_adapter
from hermes.gateway.sessions.session_keys import make_chat, make_chat_key
from hermes.gateway.settings import GatewaySettings, read_gateway_settings
from hermes.jobs.cron.job import FILE, NOWHERE
from hermes.jobs.cron.ticker import Ticker

if TYPE_CHECKING:
    from hermes.agent.tool import Tool
    from hermes.db.session_db import SessionDB
    from hermes.gateway.context import GatewayContext

Post = Callable[[str, OutgoingMessage, str, str | None], Awaitable[object]]
"""Posts a message: session key, message, idempotency key, session."""


def make_ticker(context: GatewayContext) -> Ticker | None:
    """Return the ticker that starts due jobs in the gateway. Return None if the settings turn it off."""
    settings = read_settings().cron
    if not settings.in_gateway:
        return None

    async def post(key: str, message: OutgoingMessage, idempotency_key: str, session_id: str | None) -> None:
        await context.delivery.post(key, message, idempotency_key, session_id)

    sender = HomeSender(context.db, lambda: context.settings, post)
    return Ticker(context.db, sender, jobs_at_once=settings.jobs_at_once)


def make_job_tools() -> list[Tool]:
    """Return the tools with which an agent that works for an owner of the machine can propose jobs."""
    from hermes.jobs.cron.proposal_tool import ScheduleJob

    return [ScheduleJob(HomeSender(None).check_destination)]


class HomeSender:
    """Sends results of jobs to the home channel of a platform."""

    def __init__(
        self,
        db: SessionDB | None,
        get_settings: Callable[[], GatewaySettings] = read_gateway_settings,
        post: Post | None = None,
    ) -> None:
        """Create a sender. `post` posts a message in a running gateway. Without `post`, the sender writes to the
        outbox itself and asks a running gateway to deliver the message. Without `db`, the sender can only check
        destinations."""
        self._db, self._get_settings, self._post = db, get_settings, post or self._put

    def check(self, platform: str) -> None:
        """Raise `HermesError` if the platform is unknown, not set up, or has no home channel."""
        self._find_home(platform)

    def check_destination(self, deliver: str) -> None:
        """Raise `HermesError` if results of jobs cannot be delivered to `deliver`. This is the name of a platform,
        `file` or `none`. Only a platform must be set up."""
        if deliver not in (FILE, NOWHERE):
            self.check(deliver)

    async def send(self, platform: str, text: str, idempotency_key: str, session_id: str | None) -> None:
        assert self._db is not None
        settings = await asyncio.to_thread(self._get_settings)
        to = self._find_home(platform, settings)
        chat, routing = make_chat(to, settings.keying), self._db.routing
        key = await asyncio.to_thread(make_chat_key, chat, routing.find_chat)
        await self._post(key, OutgoingMessage(to, text), idempotency_key, session_id)

    def _find_home(self, platform: str, settings: GatewaySettings | None = None) -> Source:
        if platform not in registry.PLATFORMS:
            raise errors.HermesError(
                f"there is no platform {platform!r}; use {', '.join(registry.PLATFORMS)}, file or none"
            )
        found = (settings or self._get_settings()).platforms.get(platform)
        if found is None:
            raise errors.HermesError(f"{platform} is not set up; run `hermes gateway setup {platform}`")
        if not found.home_channel:
            raise errors.HermesError(
                f"{platform} has no home channel; send /sethome in the chat that should receive results"
            )
        channel = found.home_channel
        kind = found.home_type or ("group" if channel.startswith("-") else "dm")
        person = (found.home_user or channel) if kind == "dm" else None
        return Source(platform, channel, chat_type=kind, user_id=person, thread_id=found.home_thread)

    async def _put(
        self, key: str, message: OutgoingMessage, idempotency_key: str, session_id: str | None
    ) -> None:
        """Put a message into the outbox from a process that has no connections to platforms, and ask a running
        gateway to deliver it."""

        def put() -> None:
            assert self._db is not None
            platform = message.to.platform
            for number, part in enumerate(divide_message(message, self._make_adapter(platform))):
                entry_key = f"{idempotency_key}/{number}"
                self._db.outbox.enqueue(key, platform, part.to_dict(), entry_key, session_id=session_id)
            with suppress(errors.HermesError):  # without a gateway, the entry waits for the next one
                ask_gateway("outbox")

        await asyncio.to_thread(put)

    def _make_adapter(self, platform: str) -> Adapter | None:
        """Return an adapter of the platform that is not connected, or None if it cannot be created. It is only
        asked how long a message may be."""
        with suppress(AdapterError, ImportError):
            return make_adapter(self._get_settings().platforms[platform])
        return None
