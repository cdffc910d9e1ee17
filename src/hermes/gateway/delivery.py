"""Delivery: what is in the outbox goes to its platform, in order within a chat, and its fate is written down.

What certainly did not arrive is tried again, for as long as it takes; what will never arrive is given up; what may have
arrived is sent again only where that does not show, else it is called unknown, and the person is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes import clock, errors, secrets
from hermes.gateway import happened
from hermes.gateway.adapter import (
    Adapter,
    Doubtful,
    Limited,
    OffersChoices,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.insisting import finish_in_thread, surely
from hermes.gateway.office import Letter, Office

if TYPE_CHECKING:
    from hermes.store.outbox import OutboxEntry

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
NEXT_START_S = clock.DAY
"""A platform that was not there when we started is there after the next start, and not before."""
UNKNOWN = (
    "◌ I was interrupted while I sent my last message, and cannot tell whether it arrived."
    " If you miss it, `/resend` shows it again."
)
NOTED = "Whether a message of mine arrived is unknown: I was cut off while I sent it."


class Delivery:
    def __init__(self, office: Office) -> None:
        self._office = office
        self._working: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        self._hurried: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By platform: set when what waits for it is to be tried at once."""
        self._closing = self._closed = False
        office.deliver, office.is_delivering = self.wake, self._working.__contains__

    def wake(self, key: str) -> None:
        """There is something to deliver to this chat."""
        self._asked.add(key)
        if not self._closed and key not in self._working:
            task = asyncio.create_task(self._work(key), name=f"delivery {key}")
            self._working[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._working[key]
        if task.cancelled():
            return
        if (problem := task.exception()) is not None:
            log.error("delivery to %s broke off: %s", key, secrets.redact(repr(problem)))
        elif key in self._asked:  # asked for in the moment it ended
            self.wake(key)

    async def after_crash(self) -> None:
        """Settle what the last process left half-way, and go on with what waits."""
        safe = [name for name, adapter in self._office.adapters.items() if adapter.can.idempotent]
        outbox = self._office.db.outbox
        doubtful = await asyncio.to_thread(outbox.after_crash, safe, lambda letter: bool(letter.get("edits")))
        for entry in doubtful:
            await self._tell(entry)
        for key in dict.fromkeys(entry.session_key for entry in await asyncio.to_thread(outbox.waiting)):
            self.wake(key)

    def hurry(self, platform: str) -> None:
        """A platform is connected: what waits for another try there is tried at once."""
        self._hurried[platform].set()
        del self._hurried[platform]

    async def close(self, seconds: float) -> None:
        """Send what can be sent; what waits for another try is sent by the next process."""
        self._closing = True
        for platform in list(self._hurried):
            self.hurry(platform)
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
            self._asked.discard(key)
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
                        await self._hurried[platform].wait()
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _claim(self, key: str) -> OutboxEntry | None:
        """The next entry of a chat. If the gateway ends meanwhile it is queued again: nothing of it was sent."""
        claiming = asyncio.ensure_future(asyncio.to_thread(self._office.db.outbox.claim, key))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            try:
                entry = await claiming
                if entry is not None:
                    outbox = self._office.db.outbox
                    await asyncio.to_thread(outbox.failed, entry.id, "the gateway ended", True)
            except errors.StoreError as problem:
                log.warning("an entry of the outbox could not be queued again: %s", problem)
            raise

    async def _deliver(self, entry: OutboxEntry, pause: float) -> float | None:
        """Seconds to wait before the next try; None if there is nothing to wait for."""
        outbox, metrics = self._office.db.outbox, self._office.metrics
        adapter = self._office.adapters.get(entry.platform)
        try:
            if adapter is None:
                raise Unreachable(f"{entry.platform} is not connected")
            sent = await _hand_over(adapter, Letter.from_dict(entry.payload), entry.idempotency_key)
        except Limited as problem:
            metrics.deliveries.add(entry.platform, "limited")
            await self._failed(entry, problem, again=True)
            return problem.seconds
        except Unreachable as problem:
            metrics.deliveries.add(entry.platform, "again")
            log.warning("not delivered to %s yet: %s", entry.platform, _why(problem))
            await self._failed(entry, problem, again=True)
            return pause if adapter is not None else NEXT_START_S
        except Doubtful as problem:
            return await self._doubt(entry, adapter, problem, pause)
        except errors.HermesError as problem:
            metrics.deliveries.add(entry.platform, "undeliverable")
            log.warning("given up for %s: %s", entry.platform, _why(problem))
            await self._failed(entry, problem, again=False)
            self._office.settle_delivery(entry.idempotency_key, "failed")
            return None
        except Exception as problem:  # a mistake in an adapter: it may have come before or after the sending
            log.error("%s: %s", entry.platform, secrets.redact(repr(problem)), exc_info=True)
            return await self._doubt(entry, adapter, problem, pause)
        metrics.deliveries.add(entry.platform, "sent")
        self._office.settle_delivery(entry.idempotency_key, "sent", sent)
        await surely(lambda: finish_in_thread(lambda: outbox.sent(entry.id, sent)))
        return None

    async def _failed(self, entry: OutboxEntry, problem: Exception, *, again: bool) -> None:
        outbox = self._office.db.outbox
        await surely(lambda: finish_in_thread(lambda: outbox.failed(entry.id, _why(problem), again)))

    async def _doubt(
        self, entry: OutboxEntry, adapter: Adapter | None, problem: Exception, pause: float
    ) -> float | None:
        self._office.metrics.deliveries.add(entry.platform, "unknown")
        if entry.payload.get("edits") or (adapter is not None and adapter.can.idempotent):
            await self._failed(entry, problem, again=True)
            return pause
        await self._tell(entry)  # first: if we die before it is called unknown, it is found, and told once
        await surely(lambda: finish_in_thread(lambda: self._office.db.outbox.doubtful(entry.id)))
        self._office.settle_delivery(entry.idempotency_key, "unknown")
        return None

    async def _tell(self, entry: OutboxEntry) -> None:
        """One notice for each thing in doubt; that a notice is in doubt is nobody's concern."""
        if entry.idempotency_key.startswith("unknown:"):
            return
        log.warning("whether message %s to %s arrived is unknown", entry.id, entry.platform)
        office, key = self._office, entry.session_key
        letter = Letter(Letter.from_dict(entry.payload).to, UNKNOWN)
        await surely(lambda: asyncio.to_thread(happened.note, office.db, key, NOTED))
        await surely(lambda: office.post(key, letter, f"unknown:{entry.id}", entry.session_id))


def _why(problem: Exception) -> str:
    return secrets.redact(str(problem) or type(problem).__name__)


async def _hand_over(adapter: Adapter, letter: Letter, once: str) -> str | None:
    if letter.edits is not None:
        try:
            await adapter.edit(letter.to, letter.edits, letter.text)
            return letter.edits
        except Undeliverable:  # somebody deleted the message that was to be changed
            pass
    if letter.choices and isinstance(adapter, OffersChoices):
        return await adapter.offer(
            letter.to,
            letter.text,
            letter.choices,
            once=once,
            reply_to=letter.reply_to,
            silent=letter.silent,
        )
    return await adapter.send(
        letter.to, letter.text, once=once, reply_to=letter.reply_to, silent=letter.silent
    )
