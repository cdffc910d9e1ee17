"""Runs gateways that die at their N-th step, and reports how the next gateway continues.

    python -m tests.gateway.crash_worker FOLDER FIRST STRIDE TEXT...
    python -m tests.gateway.crash_worker FOLDER poison

For N = FIRST, FIRST + STRIDE, … until a run has fewer steps: a gateway in a new home receives the texts one
after the other and dies before its N-th step. A step is a call to the store by the gateway, or a delivery. A
second gateway in the same home receives the messages that were not accepted, as platforms deliver them again,
and runs to its end. For each N, a line of JSON reports the messages that a person saw and the stored
messages.

Each gateway runs in a process that is forked from this one after the imports, because the imports take
longest.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

from hermes.agent.models.model import Piece, Request
from hermes.conversation.agents import StandardAgentProvider
from hermes.gateway.app import Gateway
from hermes.gateway.inbound_events import Event, Source
from hermes_state import SessionDB
from tests.gateway.local_gateway import ANN, Brain, Platform, WithBrain, content_text, settings_of

GONE = 9
PARTS = ("inbox", "outbox", "routing", "leases")
BATCHES = ("run_together", "sync")
"""Calls that belong to a batch of steps. Their number varies from run to run."""


class Steps:
    """A countdown of steps. At zero the process dies. Steps are counted only while `count` is set. With -1,
    the process never dies."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.count = False

    def take(self) -> None:
        self._left -= self.count
        if self._left == 0:
            os._exit(GONE)


class Mortal:
    """A wrapper of the store or of a part of it. The process can die at each call."""

    def __init__(self, real: Any, steps: Steps) -> None:
        self._real, self._steps = real, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in BATCHES:
            return found
        if name in PARTS:
            return Mortal(found, self._steps)
        if name == "scoped":
            return lambda who: Mortal(found(who), self._steps)
        return self._mortal(found) if callable(found) else found

    def _mortal(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._steps.take()
            return verb(*given, **named)

        return call


class MortalPlatform(Platform):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def send(self, to: Source, text: str, **how: Any) -> str | None:
        self._steps.take()
        tell(saw=text)
        return await super().send(to, text, **how)


class Poisoned(Brain):
    """A model that ends the process at the word "poison"."""

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        if content_text(request.messages[-1]["content"]) == "poison":
            os._exit(GONE)
        async for piece in super().stream(request):
            yield piece


def tell(**told: Any) -> None:
    os.write(1, f"{json.dumps(told)}\n".encode())


async def live(texts: list[str], heard: list[str], steps: Steps) -> None:
    """Run a gateway from start to end. `heard` lists the texts that an earlier gateway has already
    accepted."""
    db = SessionDB(spool=True)
    platform = MortalPlatform(steps)
    agents = StandardAgentProvider(WithBrain(Poisoned()))
    store = cast(SessionDB, Mortal(db, steps))
    gateway = Gateway(store, settings_of(), {"telegram": platform}, agents)
    await gateway.start()
    while not platform.is_connected:
        await asyncio.sleep(0.001)
    steps.count = True
    for number, text in enumerate(texts):
        if text not in heard:
            edits = "said-0" if text.startswith("edit ") else None
            source = ANN._replace(message_id=f"said-{number}")
            await platform.hear(Event(source, text, 1.8e9 + number, edits=edits))
            tell(accepted=text)
        while db.inbox.list_waiting() or db.outbox.list_waiting():
            await asyncio.sleep(0.002)
    await gateway.close()
    db.close()


def in_child(
    home: Path, texts: list[str], heard: list[str], steps: Steps
) -> tuple[int, list[dict[str, Any]]]:
    """Run a gateway in its own process. Return (exit status, report)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ["HERMES_HOME"] = str(home)
        os.dup2(writing, 1)
        asyncio.run(live(texts, heard, steps))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = [json.loads(line) for line in pipe]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lines


def every_death(folder: Path, first: int, stride: int, texts: list[str]) -> None:
    for number in range(first, 1000, stride):
        home = folder / str(number)
        code, before = in_child(home, texts, [], Steps(number))
        heard = [line["accepted"] for line in before if "accepted" in line]
        ended, then = (0, []) if code == 0 else in_child(home, texts, heard, Steps(-1))
        tell(
            died_at=None if code == 0 else number,
            ended=ended,
            saw=[line["saw"] for line in (*before, *then) if "saw" in line],
            **in_store(home),
        )
        if code == 0:
            return


def poisoned(folder: Path) -> None:
    """Let three gateways die at the same message. A fourth gateway then receives another message."""
    heard: list[str] = []
    for _ in range(3):
        code, result = in_child(folder, ["poison"], heard, Steps(-1))
        heard = ["poison"]
        tell(code=code, told=result)
    code, result = in_child(folder, ["poison", "hello"], heard, Steps(-1))
    tell(code=code, told=result)


def in_store(home: Path) -> dict[str, Any]:
    db = SessionDB(home / "state.db")
    try:
        sessions = db.export_all()
        live = [db.routing.find_live_session(route.session_key) for route in db.routing.list_routes()]
        return {
            "sessions": len(sessions),
            "branches": sum(one["relation"] == "branch" for one in sessions),
            "talk": [content_text(row["content"]) for one in live if one for row in db.get_context(one)],
        }
    finally:
        db.close()


if __name__ == "__main__":
    if sys.argv[2] == "poison":
        poisoned(Path(sys.argv[1]))
    else:
        every_death(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
