"""Retry a store write with backoff until it succeeds. Used for results that exist nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hermes import errors

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


async def until_stored(
    write: Callable[[], Awaitable[object]], *, trouble: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Write until it is written; `trouble` is called once if it cannot be done at once.

    A lease that is lost is lost: then somebody else does what was to be done.
    """
    pause = FIRST_PAUSE_S
    while True:
        try:
            await write()
            return
        except (errors.LeaseHeld, errors.LeaseLost):
            raise
        except errors.StoreError as problem:
            log.warning("the store cannot be written now: %s", problem)
            if trouble is not None:
                await trouble()
                trouble = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
