"""Saves the text of an answer while it is streamed, so that it survives the death of the process.

The text is saved about once a second, always to the same message. The whole answer replaces it. If the
streaming fails, the saved text is removed; if the turn is cancelled, the text so far is stored as interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.agent.streamed_answer import StreamedAnswer
    from hermes.agent.transcript import Record

EVERY_S = 1.0
SHARE = 20
"""Saving takes at most one twentieth of the time, however slow the store is."""


@asynccontextmanager
async def save_partials(record: Record, streamed: StreamedAnswer) -> AsyncIterator[None]:
    """Save the text of `streamed` while the body runs."""
    ended = asyncio.Event()
    saving = asyncio.create_task(_save_until(ended, record, streamed))
    try:
        yield
    except asyncio.CancelledError:
        ended.set()
        await saving
        message = streamed.build(stopped=True).to_message()
        if message is not None:
            await record.say("assistant", **message)
        raise
    except BaseException:
        ended.set()
        await saving
        await record.drop_partial()
        raise
    ended.set()
    await saving
    if not streamed.text.strip():  # the text was discarded after it had been saved
        await record.drop_partial()


async def _save_until(ended: asyncio.Event, record: Record, streamed: StreamedAnswer) -> None:
    saved, pause_s = "", EVERY_S
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await ended.wait()
        if ended.is_set():
            return
        text, began = streamed.text, monotonic()
        if text == saved:
            continue
        if not text.strip():
            await record.drop_partial()
        else:
            await record.keep_partial(content=text, reasoning=streamed.thought or None)
        saved, pause_s = text, max(EVERY_S, SHARE * (monotonic() - began))
