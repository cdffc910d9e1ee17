"""A process that compresses a conversation.

    python compression_worker.py STATE.DB SESSION calls N        exits abruptly at its N-th call to the store
    python compression_worker.py STATE.DB SESSION statements N   the same at the N-th statement inside a transaction
    python compression_worker.py STATE.DB SESSION wait           prints `ready` after the summary, waits for a line

At the end, the process prints the id of the session that continues the conversation.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

from hermes.agent.models.model import Piece, Request
from hermes.agent.transcript import StoredRecord
from hermes.db.session_db import SessionDB
from hermes.store.chats.leases import Leases
from tests.agent.long_talk import Summarizer, compressor, done

DIED = 9


def one_step(left: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        os._exit(DIED)


class Dying:
    """A wrapper that ends the process at the call that a counter selects: before the call, or with `after`
    between the call and the use of its result."""

    def __init__(self, real: Any, left: list[int], *, after: bool = False) -> None:
        self._real, self._left, self._after = real, left, after

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._real, verb)
        if isinstance(found, Leases):
            return Dying(found, self._left, after=self._after)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            if not self._after:
                one_step(self._left)
            gave = found(*given, **named)
            if self._after:
                one_step(self._left)
            return gave

        return call


class DyingInside:
    """An engine that ends the process at a selected statement inside a transaction."""

    def __init__(self, engine: Any, left: list[int]) -> None:
        self._engine, self._left = engine, left

    def write(self, work: Callable[[Any], Any], **how: Any) -> Any:
        return self._engine.write(lambda writer: work(Dying(writer, self._left)), **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Waiting(Summarizer):
    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        async for piece in super().stream(request):
            yield piece
        os.write(1, b"ready\n")
        await asyncio.to_thread(sys.stdin.readline)


async def main(path: str, session_id: str, mode: str, number: str = "0") -> None:
    db = SessionDB(Path(path))
    store = cast(SessionDB, Dying(db, [int(number)])) if mode == "calls" else db
    if mode == "statements":
        db._engine = cast(Any, DyingInside(db._engine, [int(number)]))
    record = StoredRecord(store, session_id)
    await record.system_prompt()
    await done(compressor(record, Waiting() if mode == "wait" else Summarizer()).compress(overflow=False))
    db.close()
    os.write(1, f"{record.session_id}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
