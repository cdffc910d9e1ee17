"""A scripted model: a second implementation of the model interface, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from hermes.agent.models.model import CallPiece, Finished, ModelError, Piece, Request, Text, Used

Script = Sequence[Piece | ModelError | asyncio.Event]
"""The pieces of a response, in order. At an error, the model raises it. At an event, the model waits until it
is set."""


def says(text: str, *, used: Used | None = None) -> Script:
    return [*(Text(word) for word in text.split(" ")), *([used] if used else []), Finished("stop")]


def calls(*wanted: tuple[str, str, str]) -> Script:
    """Return a script with these tool calls, each given as (id, name, arguments) and sent in two pieces."""
    pieces: list[Piece] = []
    for position, (call_id, name, arguments) in enumerate(wanted):
        pieces.append(CallPiece(position, call_id, name, arguments[:3]))
        pieces.append(CallPiece(position, arguments=arguments[3:]))
    return [*pieces, Finished("tool_calls")]


class ScriptedModel:
    name, provider, base_url, context_window = "scripted", "test", None, 128_000

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        """Set when the model has received a request."""

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        self.requests.append(request)
        self.asked.set()
        for piece in self.scripts.pop(0):
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, ModelError):
                raise piece
            else:
                await asyncio.sleep(0)
                yield piece

    async def close(self) -> None:
        self.scripts.clear()
