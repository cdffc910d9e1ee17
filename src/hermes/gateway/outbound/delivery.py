"""Delivery: puts messages into the outbox and sends them to platforms, in order within each chat.

If a message was certainly not delivered, it is retried without limit. If it can never be delivered, it is given
up. If it may have been delivered, it is sent again only if the recipient would not see it twice. Otherwise its
state becomes `unknown` and the person is notified.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from hermes import clock, errors, secrets
from hermes.agent.models.call_limit import Slots
from hermes.db.store_queue import call_store, call_store_early
from hermes.gateway import incidents
from hermes.gateway.adapter import (
    Adapter,
    DeliveryUnknown,
    OffersChoices,
    RateLimited,
    SendsFiles,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.outgoing_message import OutgoingMessage as OutgoingMessage
from hermes.gateway.outbound.outgoing_message import divide_message
from hermes.gateway.outbound.retry import finish_in_thread, until_stored

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.outbox import OutboxEntry

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MOST_FAILURES = 16
"""After this many failures in a row, all deliveries to a platform pause."""
FINISH_S = 2.0
"""How long new deliveries are still started during shutdown, in seconds."""
MOST_RESUMED = 500
"""Maximum number of chats of a platform whose deliveries are resumed at the same time after a restart."""
NEXT_START_S = clock.DAY
"""Seconds before a retry on a platform that is not configured. The wait is long, because only a restart can
add the platform."""
UNKNOWN = (
    "◌ I was interrupted while I sent my last message, and cannot tell whether it arrived."
    " If you miss it, `/resend` shows it again."
)
NOTICE = "unknown:"
"""The prefix of the idempotency keys of notices about unknown deliveries."""
NOTED = "I was interrupted while I sent a message. It is unknown whether it arrived."


DeliveryCallback = Callable[[str, str | None], None]
"""Receives the final state of a message (`sent`, `failed` or `unknown`) and its id on the platform."""


class Delivery:
    """Puts messages into the outbox and delivers the entries of the outbox."""

    def __init__(
        self,
        db: SessionDB,
        adapters: Mapping[str, Adapter],
        metrics: GatewayMetrics,
        slots: Callable[[str], Slots],
    ) -> None:
        """Create the delivery. `slots` returns, for the name of a platform, the slots that limit concurrent
        deliveries to it."""
        self._db, self._adapters, self._metrics, self._slots = db, adapters, metrics, slots
        self._watchers: dict[str, DeliveryCallback] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._requested: set[str] = set()
        self._failures: Counter[str] = Counter()
        """By platform: the number of failed attempts since the last success."""
        self._has_recovered = True
        self._retry_now: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By platform: the event for which deliveries wait before a retry. Setting it ends their wait early."""
        self._in_use: Counter[Adapter] = Counter()
        """The number of running calls to each adapter."""
        self._released = asyncio.Event()
        self._resting_until: dict[str, float] = {}
        """By platform: the time before which no delivery is tried, because many deliveries in a row failed."""
        self._closing = self._ending = self._closed = False

    async def post(
        self,
        key: str,
        message: OutgoingMessage,
        idempotency_key: str,
        session_id: str | None = None,
        *,
        early: bool = False,
        doubtful: bool = False,
        then: Callable[[], object] | None = None,
    ) -> bool:
        """Put a message into the outbox, split into as many parts as the platform needs.

        A second call with the same idempotency key adds nothing. Return whether a part waits to be sent. If
        not, an earlier call posted the message, or the message is doubtful.

        - `early`: the entry may not be on disk yet when this function returns. It is on disk before it is sent.
        - `doubtful`: the message may have arrived already. It is not sent, and the person is notified.
        - `then`: another store call. It is made directly after the entries are stored.
        """
        parts = divide_message(message, self._adapters.get(message.to.platform))

        def put() -> list[OutboxEntry]:
            entries = []
            for number, part in enumerate(parts):
                entry = self._db.outbox.enqueue(
                    key,
                    message.to.platform,
                    part.to_dict(),
                    f"{idempotency_key}/{number}",
                    session_id=session_id,
                    doubtful=doubtful,
                )
                entries.append(entry)
            if then is not None:
                then()
            return entries

        try:
            entries = await (call_store_early if early else call_store)(put)
        except errors.LeaseLost:  # raised by `then`: the message is in the outbox
            self.wake(key, message.to.platform)
            raise
        states = {entry.state for entry in entries}
        if doubtful and "unknown" in states:
            self._metrics.deliveries.add(message.to.platform, "unknown")
            await self._report_unknown(entries[0])
        self.wake(key, message.to.platform)
        return "queued" in states

    def watch(self, idempotency_key: str, callback: DeliveryCallback) -> None:
        """Call `callback` when the delivery of the message with this idempotency key has reached its final state.

        The message must consist of one part, and it must be posted after this call.
        """
        self._watchers[f"{idempotency_key}/0"] = callback

    async def drop_queued(self, key: str) -> int:
        """Give up the messages of a chat that wait to be sent. Return their number."""
        dropped = await asyncio.to_thread(self._db.outbox.drop_queued, key, "stopped in the chat")
        for idempotency_key in dropped:
            self._settle(idempotency_key, "failed")
        return len(dropped)

    async def resend_unknown(self, key: str) -> int:
        """Put the messages to a chat whose delivery is unknown back into the queue, and return their number. The
        caller must wake the delivery afterwards, for example by posting a reply."""

        def requeue() -> int:
            outbox = self._db.outbox
            return sum(
                outbox.requeue(entry.id)
                for entry in outbox.list_unknown(key)
                if not entry.idempotency_key.startswith(NOTICE)
            )

        return await asyncio.to_thread(requeue)

    def is_busy(self, key: str) -> bool:
        """Return whether a delivery to the chat is running or waiting for a retry."""
        return key in self._working or not self._has_recovered

    def wake(self, key: str, platform: str) -> None:
        """Make sure that a task delivers the outbox entries of the chat `key`. If such a task is already running,
        it also delivers the new entries."""
        self._requested.add(key)
        if not self._closed and key not in self._working:
            task = asyncio.create_task(self._work(key, platform), name=f"delivery {key}")
            self._working[key] = task
            task.add_done_callback(lambda done: self._on_done(key, platform, done))

    def _on_done(self, key: str, platform: str, task: asyncio.Task[None]) -> None:
        del self._working[key]
        if task.cancelled():
            return
        if (problem := task.exception()) is not None:
            log.error("delivery to %s failed: %s", key, secrets.redact(repr(problem)))
        elif key in self._requested:  # requested again while the task ended
            self.wake(key, platform)

    async def settle_interrupted(self) -> None:
        """Handle the outbox entries that the previous process was sending when it ended. An entry is sent again if
        the recipient would not see its message twice. Otherwise the state of the entry becomes `unknown`, and the
        person is notified."""
        self._has_recovered = False
        safe = [name for name, adapter in self._adapters.items() if adapter.capabilities.idempotent]
        outbox = self._db.outbox
        doubtful = await call_store(
            outbox.recover_after_crash, safe, lambda message: bool(message.get("edits"))
        )
        for entry in doubtful:
            await self._report_unknown(entry)

    async def take_up(self) -> None:
        """Deliver the waiting outbox entries of all chats, a limited number of chats at a time. Entries that wait
        for a retry are tried at once."""
        for platform in list(self._retry_now):
            self.retry_now(platform)
        await asyncio.gather(*(self._resume(platform) for platform in list(self._adapters)))
        self._has_recovered = True

    async def _resume(self, platform: str) -> None:
        """Deliver the outbox entries for `platform` that an earlier process left. At most `MOST_RESUMED` chats are
        handled at a time, because each of them needs memory while it waits for its platform."""
        after, resuming = 0, Slots(MOST_RESUMED)
        while waiting := await call_store_early(self._db.outbox.list_waiting_chats, platform, after):
            for chat in waiting:
                await resuming.acquire()
                if self._closing:
                    return
                self.wake(chat.session_key, platform)
                self._working[chat.session_key].add_done_callback(lambda _: resuming.release())
                after = chat.oldest

    def retry_now(self, platform: str) -> None:
        """Retry the waiting deliveries of a platform at once. Called when the platform is connected again."""
        self._resting_until.pop(platform, None)
        self._retry_now[platform].set()
        del self._retry_now[platform]

    async def wait_until_unused(self, adapter: Adapter) -> None:
        """Wait until no delivery uses `adapter`. Called before the adapter is closed."""
        while self._in_use[adapter]:
            self._released.clear()
            await self._released.wait()

    async def close(self, seconds: float) -> None:
        """Shut down. Wait up to `seconds` for running deliveries. A delivery that waits for a retry, or that has
        not begun within `FINISH_S`, stays in the outbox."""
        self._closing = True
        for platform in list(self._retry_now):
            self.retry_now(platform)
        await self._wait_until_done(min(seconds, FINISH_S))
        self._ending = True
        await self._wait_until_done(max(0.0, seconds - FINISH_S))
        self._closed = True
        late = list(self._working.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _wait_until_done(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._working:  # a task that ends may start another one
                    await asyncio.wait(list(self._working.values()))

    # ---------------------------------------------------------------- one chat

    async def _work(self, key: str, platform: str) -> None:
        pause = FIRST_PAUSE_S
        while True:
            self._requested.discard(key)
            await self._wait_for_platform(platform)
            # The claim marks an entry as being sent. It is made only when a slot is free, because after a crash
            # it is unknown whether a claimed entry arrived.
            async with self._slots(platform):
                if self._ending:
                    return
                try:
                    entry = await self._claim(key)
                except errors.StoreError as problem:
                    if pause == FIRST_PAUSE_S:
                        log.warning("cannot read the outbox, will retry: %s", problem)
                    wait: float | None = pause
                else:
                    if entry is None:
                        return
                    wait = await self._deliver(entry, pause)
            if wait is None:
                pause = FIRST_PAUSE_S
                if key not in self._requested:
                    return
            elif self._closing:
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._retry_now[platform].wait()
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _wait_for_platform(self, platform: str) -> None:
        """If deliveries to the platform are paused after many failures, wait until the pause ends."""
        while not self._closing and (wait := self._resting_until.get(platform, 0.0) - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._retry_now[platform].wait()

    async def _claim(self, key: str) -> OutboxEntry | None:
        """Claim the next outbox entry of a chat, or return None.
        If the task is cancelled during the claim, the entry is queued again. Nothing was sent at that point.
        """
        claiming = asyncio.ensure_future(call_store(self._db.outbox.claim, key))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            try:
                entry = await claiming
                if entry is not None:
                    await call_store_early(self._db.outbox.mark_failed, entry.id, "the gateway ended", True)
            except errors.StoreError as problem:
                log.warning("cannot requeue an outbox entry: %s", problem)
            raise

    async def _deliver(self, entry: OutboxEntry, pause: float) -> float | None:
        """Try to deliver an outbox entry. `pause` is the normal number of seconds to wait after a failed attempt.
        Return how many seconds to wait before the next attempt of this entry, or None to continue with the next
        entry at once."""
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
        except Exception as problem:  # noqa: BLE001 - `_handle_failure` handles each kind of error
            self._requested.add(entry.session_key)  # the next entry, or this one again
            return await self._handle_failure(entry, adapter, problem, pause)
        self._metrics.deliveries.add(entry.platform, "sent")
        self._resting_until.pop(entry.platform, None)
        if (failures := self._failures.pop(entry.platform, 0)) > 0:
            log.info("deliveries to %s work again, after %d failed attempt(s)", entry.platform, failures)
        self._settle(entry.idempotency_key, "sent", sent)
        if await until_stored(
            lambda: finish_in_thread(lambda: self._db.outbox.finish_delivery(entry.id, sent))
        ):
            self._requested.add(entry.session_key)
        return None

    @contextmanager
    def _use(self, adapter: Adapter) -> Iterator[None]:
        """Register that a delivery uses `adapter` while the `with` block runs. `wait_until_unused` waits for the
        end of all such blocks."""
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
        """Record that an attempt to deliver an outbox entry has failed. Return how many seconds to wait before the
        next attempt, or None, as `_deliver` does."""
        deliveries = self._metrics.deliveries
        match problem:
            case RateLimited():
                deliveries.add(entry.platform, "limited")
                await self._record_failure(entry, problem, again=True)
                return problem.seconds
            case Unreachable():
                deliveries.add(entry.platform, "again")
                self._failures[entry.platform] += 1
                failures = self._failures[entry.platform]
                if failures == 1:  # the first failure only: retries may be many
                    log.warning("not delivered to %s yet: %s", entry.platform, _describe_error(problem))
                elif failures % MOST_FAILURES == 0:
                    longest = FIRST_PAUSE_S * 2 ** min(failures // MOST_FAILURES, 10)
                    self._resting_until[entry.platform] = monotonic() + min(longest, LONGEST_PAUSE_S)
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
        """Tell the person that it is unknown whether the message of an outbox entry has arrived. Do so once per
        entry. If the entry is itself such a notice, do nothing."""
        if entry.idempotency_key.startswith(NOTICE):
            return
        log.warning("unknown whether message %s to %s arrived", entry.id, entry.platform)
        key = entry.session_key
        message = OutgoingMessage(OutgoingMessage.from_dict(entry.payload).to, UNKNOWN)
        await until_stored(lambda: call_store_early(incidents.add_incident, self._db, key, NOTED))
        await until_stored(lambda: self.post(key, message, f"{NOTICE}{entry.id}", entry.session_id))

    def _settle(self, idempotency_key: str, state: str, message_id: str | None = None) -> None:
        """Report the final state of a delivery to the callback that `watch` registered for it, if there is one."""
        callback = self._watchers.pop(idempotency_key, None)
        if callback is not None:
            callback(state, message_id)


def _describe_error(problem: Exception) -> str:
    return secrets.redact(str(problem) or type(problem).__name__)


async def _try_edit(adapter: Adapter, message: OutgoingMessage) -> bool:
    """Replace the text of the platform message that `message` edits. Return False if the platform refuses, for
    example because that platform message was deleted."""
    assert message.edits is not None
    try:
        await adapter.edit(message.to, message.edits, message.text)
    except Undeliverable:
        return False
    return True
