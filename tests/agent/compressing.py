"""Another process that compresses a conversation.

    python compressing.py STATE.DB SESSION die N      the process is gone at its N-th call of the store
    python compressing.py STATE.DB SESSION wait       says `ready` when it has a summary, and waits for a line

At its end it prints the id of the session in which the conversation goes on.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from hermes.agent.model import Piece, Request
from hermes.agent.record import StoredRecord
from hermes.sessiondb import SessionDB
from tests.agent.long_talk import Summarizer, compressor, done

DIED = 9


class Dying:
    """A store whose process is gone at one of its calls, without a word."""

    def __init__(self, db: SessionDB, calls: int) -> None:
        self._db, self._calls = db, calls

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._db, verb)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._calls -= 1
            if self._calls == 0:
                os._exit(DIED)
            return found(*given, **named)

        return call


class Waiting(Summarizer):
    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        async for piece in super().stream(request):
            yield piece
        os.write(1, b"ready\n")
        await asyncio.to_thread(sys.stdin.readline)


async def main(path: str, session_id: str, mode: str, calls: str = "0") -> None:
    db = SessionDB(Path(path))
    store = cast(SessionDB, Dying(db, int(calls))) if mode == "die" else db
    record = StoredRecord(store, session_id)
    await record.system_prompt()
    await done(compressor(record, Waiting() if mode == "wait" else Summarizer()).compress(overflow=False))
    db.close()
    os.write(1, f"{record.session_id}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
