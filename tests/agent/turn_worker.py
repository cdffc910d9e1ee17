"""A process that runs a turn: a question, two tools at once, an answer.

    python turn_worker.py STATE.DB before N       exits abruptly before its N-th step
    python turn_worker.py STATE.DB after N        the same after the N-th step, before its result is used
    python turn_worker.py STATE.DB statements N   the same at the N-th statement inside a transaction

A step is a call to the store, a request to the model or the run of a tool. Everything that a person would see
is printed immediately, one line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

from hermes.agent.events import Done, Stored, ToolEnded
from hermes.agent.models.model import Model, Piece, Request
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.db.session_db import SessionDB
from hermes.store.sessions.messages import Messages
from tests.agent.compression_worker import Dying, DyingInside, one_step
from tests.agent.scripted import ScriptedModel, calls, says

QUESTION, ANSWER = "what do they say?", "both!"
NEVER = 10_000


class Says:
    """A tool that returns its own name. A turn calls two of these tools, and the first waits until the second
    has run."""

    description = "Says its name."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self, name: str, waits: asyncio.Event | None, tells: asyncio.Event | None) -> None:
        self.name, self._waits, self._tells = name, waits, tells

    async def run(self, _arguments: dict[str, Any], _context: ToolContext) -> str:
        if self._waits is not None:
            await self._waits.wait()
        if self._tells is not None:
            self._tells.set()
        return f"{self.name}!"


class DyingModel(ScriptedModel):
    left: list[int]

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        one_step(self.left)
        async for piece in super().stream(request):
            yield piece


def turn_of(record: StoredRecord, model: Model, left: list[int], *, after: bool = False) -> Turn:
    async def prompt() -> str:
        return "be kind"

    done = asyncio.Event()
    tools = [
        cast(Any, Dying(tool, left, after=after))
        for tool in (Says("one", done, None), Says("two", None, done))
    ]
    return Turn(
        record,
        model,
        tools,
        lambda approve, stop: ToolContext(record.db, "", Path("/"), approve, stop),
        price=lambda _model, _used: (None, {}),
        prompt=prompt,
    )


def tell(**told: Any) -> None:
    os.write(1, f"{json.dumps(told)}\n".encode())


async def main(path: str, mode: str, number: str) -> None:
    left, nobody = [int(number)], [NEVER]
    inside, after = mode == "statements", mode == "after"
    db = SessionDB(Path(path), spool=not inside)  # opened in the way the chat does
    if inside:
        db._engine = cast(Any, DyingInside(db._engine, left))
        db._append = Messages(db._engine).append
    record = StoredRecord(db if inside else cast(SessionDB, Dying(db, left, after=after)))
    tell(session_id=record.session_id)
    model = DyingModel(calls(("a", "one", "{}"), ("b", "two", "{}")), says(ANSWER))
    model.left = nobody if inside else left
    turn = turn_of(record, model, model.left, after=after)
    async for event in turn.events(QUESTION):
        match event:
            case Stored(message_id, role):
                tell(role=role, id=message_id)
            case ToolEnded(call_id, _, output):
                tell(role="tool", call=call_id, output=output)
            case Done(text):
                tell(done=text)
            case _:
                pass
    await record.close()
    db.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
