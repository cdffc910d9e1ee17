"""Delivery: posts messages to the outbox and sends them to platforms, in order within a chat.

A message that certainly did not arrive is retried without limit. One that can never arrive is given up. One that may
have arrived is sent again only where a second send is not visible; otherwise its state is unknown and the person is
told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock, errors, secrets
from hermes.gateway import incidents
from hermes.gateway.adapter import (
    Adapter,
    Choice,
    DeliveryUnknown,
    OffersChoices,
    RateLimited,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.retry import finish_in_thread, until_stored
from hermes.gateway.outbound.splitting import split_text

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.outbox import OutboxEntry

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
NEXT_START_S = clock.DAY
"""A platform that was not there when we started is there after the next start, and not before."""
UNKNOWN = (
    "◌ I was interrupted while I sent my last message, and cannot tell whether it arrived."
    " If you miss it, `/resend` shows it again."
)
NOTED = "Whether a message of mine arrived is unknown: I was cut off while I sent it."


DeliveryCallback = Callable[[str, str | None], None]
"""Gets what became of a message, `sent`, `failed` or `unknown`, and its id on the platform."""

DEFAULT_MAX_LENGTH = 4000
"""How long a part may be for a platform that is not connected now."""


class OutgoingMessage(NamedTuple):
    """A message to a platform, as the outbox stores it."""

    to: Source
    text: str
    reply_to: str | None = None
    silent: bool = False
    edits: str | None = None
    """The id of a message that this text takes the place of."""
    choices: tuple[Choice, ...] = ()
    """Buttons, where the platform has them."""

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "to": self.to.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OutgoingMessage:
        choices = tuple(Choice(*choice) for choice in data.get("choices", ()))
        return cls(**{**data, "to": Source.from_dict(data["to"]), "choices": choices})


class Delivery:
    """Posts messages to chats, and delivers what is in the outbox."""

    def __init__(self, db: SessionDB, adapters: Mapping[str, Adapter], metrics: GatewayMetrics) -> None:
        self._db, self._adapters, self._metrics = db, adapters, metrics
        self._watchers: dict[str, DeliveryCallback] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._requested: set[str] = set()
        self._retry_now: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By platform: set when what waits for it is to be tried at once."""
        self._closing = self._closed = False

    async def post(
        self, key: str, message: OutgoingMessage, idempotency_key: str, session_id: str | None = None
    ) -> bool:
        """Put a message into the outbox, in as many parts as the platform needs; once, whoever asks twice.

        False if it had been sent before.
        """
        adapter = self._adapters.get(message.to.platform)
        parts = (
            split_text(message.text, DEFAULT_MAX_LENGTH)
            if adapter is None
            else split_text(message.text, adapter.capabilities.max_length, adapter.measure)
        )

        def put() -> set[str]:
            states = set()
            for number, text in enumerate(parts):
                part = message._replace(
                    text=text,
                    edits=message.edits if number == 0 else None,
                    reply_to=message.reply_to if number == 0 else None,
                    choices=message.choices if number == len(parts) - 1 else (),
                )
                entry = self._db.outbox.enqueue(
                    key,
                    message.to.platform,
                    part.to_dict(),
                    f"{idempotency_key}/{number}",
                    session_id=session_id,
                )
                states.add(entry.state)
            return states

        states = await asyncio.to_thread(put)
        self.wake(key)
        return "queued" in states

    def watch(self, idempotency_key: str, callback: DeliveryCallback) -> None:
        """Call `callback` when the delivery of a one-part message, posted after this, is settled."""
        self._watchers[f"{idempotency_key}/0"] = callback

    def is_busy(self, key: str) -> bool:
        """Whether a delivery to a chat is under way or waits for a retry."""
        return key in self._working

    def wake(self, key: str) -> None:
        """Deliver what is in the outbox for this chat."""
        self._requested.add(key)
        if not self._closed and key not in self._working:
            task = asyncio.create_task(self._work(key), name=f"delivery {key}")
            self._working[key] = task
            task.add_done_callback(lambda done: self._on_done(key, done))

    def _on_done(self, key: str, task: asyncio.Task[None]) -> None:
        del self._working[key]
        if task.cancelled():
            return
        if (problem := task.exception()) is not None:
            log.error("delivery to %s broke off: %s", key, secrets.redact(repr(problem)))
        elif key in self._requested:  # asked for in the moment it ended
            self.wake(key)

    async def recover(self) -> None:
        """Settle deliveries that the last process left unfinished, and resume the waiting ones."""
        safe = [name for name, adapter in self._adapters.items() if adapter.capabilities.idempotent]
        outbox = self._db.outbox
        doubtful = await asyncio.to_thread(
            outbox.recover_after_crash, safe, lambda message: bool(message.get("edits"))
        )
        for entry in doubtful:
            await self._report_unknown(entry)
        for key in dict.fromkeys(entry.session_key for entry in await asyncio.to_thread(outbox.list_waiting)):
            self.wake(key)

    def retry_now(self, platform: str) -> None:
        """Retry waiting deliveries of a platform at once: it is connected again."""
        self._retry_now[platform].set()
        del self._retry_now[platform]

    async def close(self, seconds: float) -> None:
        """Send what can be sent; deliveries that wait for a retry are left to the next process."""
        self._closing = True
        for platform in list(self._retry_now):
            self.retry_now(platform)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._working:  # one that ends may find that it was asked for again
                    await asyncio.wait(list(self._working.values()))
        self._closed = True
        late = list(self._working.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # ---------------------------------------------------------------- one chat

    async def _work(self, key: str) -> None:
        pause, platform = FIRST_PAUSE_S, ""
        while True:
            self._requested.discard(key)
            try:
                entry = await self._claim(key)
            except errors.StoreError as problem:
                log.warning("the outbox cannot be used now: %s", problem)
                wait: float | None = pause
            else:
                if entry is None:
                    return
                platform = entry.platform
                wait = await self._deliver(entry, pause)
            if wait is None:
                pause = FIRST_PAUSE_S
            elif self._closing:
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._retry_now[platform].wait()
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _claim(self, key: str) -> OutboxEntry | None:
        """The next entry of a chat. If the gateway ends meanwhile it is queued again: nothing of it was sent."""
        claiming = asyncio.ensure_future(asyncio.to_thread(self._db.outbox.claim, key))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            try:
                entry = await claiming
                if entry is not None:
                    await asyncio.to_thread(self._db.outbox.mark_failed, entry.id, "the gateway ended", True)
            except errors.StoreError as problem:
                log.warning("an entry of the outbox could not be queued again: %s", problem)
            raise

    async def _deliver(self, entry: OutboxEntry, pause: float) -> float | None:
        """Seconds to wait before the next try; None if there is nothing to wait for."""
        adapter = self._adapters.get(entry.platform)
        try:
            if adapter is None:
                raise Unreachable(f"{entry.platform} is not connected")
            message = OutgoingMessage.from_dict(entry.payload)
            if message.edits is not None and await _try_edit(adapter, message):
                sent: str | None = message.edits
            else:
                send: Callable[..., Awaitable[str | None]] = adapter.send
                if message.choices and isinstance(adapter, OffersChoices):
                    send = partial(adapter.offer, choices=message.choices)
                sent = await send(
                    message.to,
                    message.text,
                    idempotency_key=entry.idempotency_key,
                    reply_to=message.reply_to,
                    silent=message.silent,
                )
        except Exception as problem:  # noqa: BLE001 - each kind has its own consequence
            return await self._handle_failure(entry, adapter, problem, pause)
        self._metrics.deliveries.add(entry.platform, "sent")
        self._settle(entry.idempotency_key, "sent", sent)
        await until_stored(lambda: finish_in_thread(lambda: self._db.outbox.mark_sent(entry.id, sent)))
        return None

    async def _handle_failure(
        self, entry: OutboxEntry, adapter: Adapter | None, problem: Exception, pause: float
    ) -> float | None:
        """Record what kept a message from being delivered. As `_deliver`, the seconds to wait."""
        deliveries = self._metrics.deliveries
        match problem:
            case RateLimited():
                deliveries.add(entry.platform, "limited")
                await self._record_failure(entry, problem, again=True)
                return problem.seconds
            case Unreachable():
                deliveries.add(entry.platform, "again")
                log.warning("not delivered to %s yet: %s", entry.platform, _describe_error(problem))
                await self._record_failure(entry, problem, again=True)
                return pause if adapter is not None else NEXT_START_S
            case DeliveryUnknown():
                return await self._handle_unknown(entry, adapter, problem, pause)
            case errors.HermesError():
                deliveries.add(entry.platform, "undeliverable")
                log.warning("given up for %s: %s", entry.platform, _describe_error(problem))
                await self._record_failure(entry, problem, again=False)
                self._settle(entry.idempotency_key, "failed")
                return None
            case _:  # a mistake in an adapter: it may have come before or after the sending
                log.error("%s: %s", entry.platform, secrets.redact(repr(problem)), exc_info=problem)
                return await self._handle_unknown(entry, adapter, problem, pause)

    async def _record_failure(self, entry: OutboxEntry, problem: Exception, *, again: bool) -> None:
        outbox = self._db.outbox
        await until_stored(
            lambda: finish_in_thread(lambda: outbox.mark_failed(entry.id, _describe_error(problem), again))
        )

    async def _handle_unknown(
        self, entry: OutboxEntry, adapter: Adapter | None, problem: Exception, pause: float
    ) -> float | None:
        self._metrics.deliveries.add(entry.platform, "unknown")
        if entry.payload.get("edits") or (adapter is not None and adapter.capabilities.idempotent):
            await self._record_failure(entry, problem, again=True)
            return pause
        # First: if we die before it is called unknown, it is found, and told once.
        await self._report_unknown(entry)
        await until_stored(lambda: finish_in_thread(lambda: self._db.outbox.mark_doubtful(entry.id)))
        self._settle(entry.idempotency_key, "unknown")
        return None

    async def _report_unknown(self, entry: OutboxEntry) -> None:
        """One notice for each thing in doubt; that a notice is in doubt is nobody's concern."""
        if entry.idempotency_key.startswith("unknown:"):
            return
        log.warning("whether message %s to %s arrived is unknown", entry.id, entry.platform)
        key = entry.session_key
        message = OutgoingMessage(OutgoingMessage.from_dict(entry.payload).to, UNKNOWN)
        await until_stored(lambda: asyncio.to_thread(incidents.add_incident, self._db, key, NOTED))
        await until_stored(lambda: self.post(key, message, f"unknown:{entry.id}", entry.session_id))

    def _settle(self, idempotency_key: str, state: str, message_id: str | None = None) -> None:
        """Report the final state of a delivery to its watcher."""
        callback = self._watchers.pop(idempotency_key, None)
        if callback is not None:
            callback(state, message_id)


def _describe_error(problem: Exception) -> str:
    return secrets.redact(str(problem) or type(problem).__name__)


async def _try_edit(adapter: Adapter, message: OutgoingMessage) -> bool:
    """Put a text in the place of a message; False if somebody deleted that message."""
    assert message.edits is not None
    try:
        await adapter.edit(message.to, message.edits, message.text)
    except Undeliverable:
        return False
    return True
