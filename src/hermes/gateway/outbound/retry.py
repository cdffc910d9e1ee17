"""Retries a store write with backoff until it succeeds. Used for results that are stored nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hermes import errors
from hermes.db.store_queue import call_store_early

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


async def until_stored(
    write: Callable[[], Awaitable[T]], *, trouble: Callable[[], Awaitable[object]] | None = None
) -> T:
    """Call `write` until it succeeds, and return its result. Call `trouble` once, after the first failure.
    Only store errors are retried. `LeaseHeld` and `LeaseLost` are not retried, because the conversation is open
    elsewhere.
    """
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await write()
        except (errors.LeaseHeld, errors.LeaseLost):
            raise
        except errors.StoreError as problem:
            if pause == FIRST_PAUSE_S:
                log.warning("cannot write to the store, will retry: %s", problem)
            if trouble is not None:
                await trouble()
                trouble = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


async def finish_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result.

    If the task is cancelled, the cancellation takes effect only after `work` has finished, so that the write
    is complete.
    """
    running = asyncio.ensure_future(call_store_early(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (problem := running.exception()) is not None:
            log.warning("cannot write to the store: %s", problem)
        raise
