"""Delivery: puts messages into the outbox and sends them to platforms, in order within each chat.

A message that was certainly not delivered is retried without limit. A message that can never be delivered is
given up. A message that may have been delivered is sent again only if the recipient would not see it twice.
Otherwise its state becomes `unknown` and the person is notified.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    SendsFiles,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.retry import finish_in_thread, until_stored
from hermes.gateway.outbound.splitting import Measure, split_text

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.outbox import OutboxEntry

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
NEXT_START_S = clock.DAY
"""Seconds before a retry on a platform that is not configured. The wait is long, because only a restart can
add the platform."""
UNKNOWN = (
    "◌ I was interrupted while I sent my last message, and cannot tell whether it arrived."
    " If you miss it, `/resend` shows it again."
)
NOTICE = "unknown:"
"""The idempotency keys of the notices about unknown deliveries begin with this."""
NOTED = "I was interrupted while I sent a message. It is unknown whether it arrived."


DeliveryCallback = Callable[[str, str | None], None]
"""Receives the final state of a message (`sent`, `failed` or `unknown`) and its id on the platform."""

DEFAULT_MAX_LENGTH = 4000
"""Maximum length of a part if the platform is not connected and its own limit is therefore unknown."""

MOST_PARTS = 10
"""A text of more parts is sent as its first part and a file, on platforms that take files."""
FILE = "answer.md"
IN_FILE = "\n\nⓘ This is the beginning. The whole text is in the attached file."


class OutgoingMessage(NamedTuple):
    """A message to a platform, as stored in the outbox."""

    to: Source
    text: str
    reply_to: str | None = None
    silent: bool = False
    edits: str | None = None
    """The id of the message that this text replaces."""
    choices: tuple[Choice, ...] = ()
    """Buttons. Ignored on platforms without buttons."""
    file: str | None = None
    """If the text is sent as a file: the name of the file."""

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "to": self.to.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OutgoingMessage:
        choices = tuple(Choice(*choice) for choice in data.get("choices", ()))
        return cls(**{**data, "to": Source.from_dict(data["to"]), "choices": choices})


class Delivery:
    """Puts messages into the outbox and delivers the entries of the outbox."""

    def __init__(self, db: SessionDB, adapters: Mapping[str, Adapter], metrics: GatewayMetrics) -> None:
        self._db, self._adapters, self._metrics = db, adapters, metrics
        self._watchers: dict[str, DeliveryCallback] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._requested: set[str] = set()
        self._retry_now: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """For each platform, an event. Setting it makes the waiting deliveries retry at once."""
        self._in_use: Counter[Adapter] = Counter()
        """The number of running calls to each adapter."""
        self._released = asyncio.Event()
        self._closing = self._closed = False

    async def post(
        self, key: str, message: OutgoingMessage, idempotency_key: str, session_id: str | None = None
    ) -> bool:
        """Put a message into the outbox, split into as many parts as the platform needs.

        A second call with the same idempotency key adds nothing. Return whether a part is waiting to be sent.
        False means that an earlier call posted the message.
        """
        parts = divide_message(message, self._adapters.get(message.to.platform))

        def put() -> set[str]:
            states = set()
            for number, part in enumerate(parts):
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
        """Call `callback` when the delivery of a message has reached its final state.

        The message must consist of one part and must be posted after this call.
        """
        self._watchers[f"{idempotency_key}/0"] = callback

    async def drop_queued(self, key: str) -> int:
        """Give up the messages of a chat that wait to be sent. Return their number."""
        dropped = await asyncio.to_thread(self._db.outbox.drop_queued, key, "stopped in the chat")
        for idempotency_key in dropped:
            self._settle(idempotency_key, "failed")
        return len(dropped)

    async def take_unknown(self, key: str) -> str | None:
        """Return the messages of a chat of which it is unknown whether they arrived, as one text, or None.

        The caller sends the text. The messages are then no longer unknown.
        """
        outbox = self._db.outbox
        entries = [
            entry
            for entry in await asyncio.to_thread(outbox.list_unknown, key)
            if not entry.idempotency_key.startswith(NOTICE)
        ]
        for entry in entries:
            await asyncio.to_thread(outbox.mark_sent, entry.id)
        return "\n\n".join(str(entry.payload["text"]) for entry in entries) or None

    def is_busy(self, key: str) -> bool:
        """Return whether a delivery to the chat is running or waiting for a retry."""
        return key in self._working

    def wake(self, key: str) -> None:
        """Start delivering the chat's outbox entries, unless this is already running."""
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
            log.error("delivery to %s failed: %s", key, secrets.redact(repr(problem)))
        elif key in self._requested:  # requested again while the task ended
            self.wake(key)

    async def recover(self) -> None:
        """Settle the deliveries that were running when the previous process ended, and resume the waiting
        ones."""
        safe = [name for name, adapter in self._adapters.items() if adapter.capabilities.idempotent]
        outbox = self._db.outbox
        doubtful = await asyncio.to_thread(
            outbox.recover_after_crash, safe, lambda message: bool(message.get("edits"))
        )
        for entry in doubtful:
            await self._report_unknown(entry)
        await self.take_up()

    async def take_up(self) -> None:
        """Resume the waiting deliveries of all chats, and retry at once."""
        for entry in await asyncio.to_thread(self._db.outbox.list_waiting):
            self.wake(entry.session_key)
        for platform in list(self._retry_now):
            self.retry_now(platform)

    def retry_now(self, platform: str) -> None:
        """Retry the waiting deliveries of a platform at once. Called when the platform is connected again."""
        self._retry_now[platform].set()
        del self._retry_now[platform]

    async def wait_until_unused(self, adapter: Adapter) -> None:
        """Wait until no delivery uses the adapter any more."""
        while self._in_use[adapter]:
            self._released.clear()
            await self._released.wait()

    async def close(self, seconds: float) -> None:
        """Stop. Running deliveries get `seconds` to finish. Deliveries that wait for a retry stay in the
        outbox."""
        self._closing = True
        for platform in list(self._retry_now):
            self.retry_now(platform)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._working:  # a task that ends may start another one
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
                log.warning("cannot read the outbox, will retry: %s", problem)
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
        """Claim the next outbox entry of a chat.

        If the task is cancelled during the claim, the entry is queued again. This is safe because nothing was
        sent.
        """
        claiming = asyncio.ensure_future(asyncio.to_thread(self._db.outbox.claim, key))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            try:
                entry = await claiming
                if entry is not None:
                    await asyncio.to_thread(self._db.outbox.mark_failed, entry.id, "the gateway ended", True)
            except errors.StoreError as problem:
                log.warning("cannot requeue an outbox entry: %s", problem)
            raise

    async def _deliver(self, entry: OutboxEntry, pause: float) -> float | None:
        """Deliver an entry. Return the seconds to wait before the next attempt, or None to continue with the
        next entry at once."""
        adapter = self._adapters.get(entry.platform)
        try:
            if adapter is None:
                raise Unreachable(f"{entry.platform} is not connected")
            message = OutgoingMessage.from_dict(entry.payload)
            with self._use(adapter):
                if message.edits is not None and await _try_edit(adapter, message):
                    sent: str | None = message.edits
                else:
                    send: Callable[..., Awaitable[str | None]] = partial(adapter.send, text=message.text)
                    if message.file is not None and isinstance(adapter, SendsFiles):
                        content = message.text.encode("utf-8", "replace")
                        send = partial(adapter.send_file, name=message.file, content=content)
                    elif message.choices and isinstance(adapter, OffersChoices):
                        send = partial(adapter.offer, text=message.text, choices=message.choices)
                    sent = await send(
                        message.to,
                        idempotency_key=entry.idempotency_key,
                        reply_to=message.reply_to,
                        silent=message.silent,
                    )
        except asyncio.CancelledError:  # the gateway ends, and the message may have been sent
            await self._handle_unknown(entry, adapter, Unreachable("the gateway ended"), pause)
            raise
        except Exception as problem:  # noqa: BLE001 - each kind has its own consequence
            return await self._handle_failure(entry, adapter, problem, pause)
        self._metrics.deliveries.add(entry.platform, "sent")
        self._settle(entry.idempotency_key, "sent", sent)
        await until_stored(lambda: finish_in_thread(lambda: self._db.outbox.mark_sent(entry.id, sent)))
        return None

    @contextmanager
    def _use(self, adapter: Adapter) -> Iterator[None]:
        """Count a running call to the adapter."""
        self._in_use[adapter] += 1
        try:
            yield
        finally:
            self._in_use[adapter] -= 1
            if not self._in_use[adapter]:
                del self._in_use[adapter]
            self._released.set()

    async def _handle_failure(
        self, entry: OutboxEntry, adapter: Adapter | None, problem: Exception, pause: float
    ) -> float | None:
        """Record a failed delivery. Return the seconds to wait or None, as `_deliver` does."""
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
                log.warning(
                    "a message to %s cannot be delivered and will not be retried: %s",
                    entry.platform,
                    _describe_error(problem),
                )
                await self._record_failure(entry, problem, again=False)
                self._settle(entry.idempotency_key, "failed")
                return None
            case _:  # a bug in an adapter: the message may have been sent or not
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
        # Notify before the state is stored. After a crash in between, recovery finds the entry, and the
        # notice is not repeated because its idempotency key is the same.
        await self._report_unknown(entry)
        await until_stored(lambda: finish_in_thread(lambda: self._db.outbox.mark_doubtful(entry.id)))
        self._settle(entry.idempotency_key, "unknown")
        return None

    async def _report_unknown(self, entry: OutboxEntry) -> None:
        """Post a notice, once per entry, that it is unknown whether the entry was delivered.

        If the delivery of such a notice is itself unknown, that is not reported.
        """
        if entry.idempotency_key.startswith(NOTICE):
            return
        log.warning("unknown whether message %s to %s arrived", entry.id, entry.platform)
        key = entry.session_key
        message = OutgoingMessage(OutgoingMessage.from_dict(entry.payload).to, UNKNOWN)
        await until_stored(lambda: asyncio.to_thread(incidents.add_incident, self._db, key, NOTED))
        await until_stored(lambda: self.post(key, message, f"{NOTICE}{entry.id}", entry.session_id))

    def _settle(self, idempotency_key: str, state: str, message_id: str | None = None) -> None:
        """Report the final state of a delivery to its watcher."""
        callback = self._watchers.pop(idempotency_key, None)
        if callback is not None:
            callback(state, message_id)


def divide_message(message: OutgoingMessage, adapter: Adapter | None) -> list[OutgoingMessage]:
    """Divide a message into parts that the platform takes."""
    longest = DEFAULT_MAX_LENGTH if adapter is None else adapter.capabilities.max_length
    measure: Measure = len if adapter is None else adapter.measure
    parts = split_text(message.text, longest, measure)
    following = message._replace(reply_to=None, edits=None)
    takes_files = isinstance(adapter, SendsFiles)
    if len(parts) > MOST_PARTS and takes_files:
        beginning = split_text(message.text, longest - measure(IN_FILE), measure)[0]
        return [
            message._replace(text=f"{beginning}{IN_FILE}"),
            following._replace(choices=(), file=FILE),
        ]
    return [
        (message if number == 0 else following)._replace(
            text=text, choices=message.choices if number == len(parts) - 1 else ()
        )
        for number, text in enumerate(parts)
    ]


def _describe_error(problem: Exception) -> str:
    return secrets.redact(str(problem) or type(problem).__name__)


async def _try_edit(adapter: Adapter, message: OutgoingMessage) -> bool:
    """Replace the text of a message. Return False if the platform refuses, for example because the message
    was deleted."""
    assert message.edits is not None
    try:
        await adapter.edit(message.to, message.edits, message.text)
    except Undeliverable:
        return False
    return True
