"""A model that says what it is told to say: a second implementation of the seam, for tests of what stands on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from hermes.agent.models.model import CallPiece, Finished, ModelError, Piece, Request, Text, Used

Script = Sequence[Piece | ModelError | asyncio.Event]
"""Pieces in their order. An error is raised; an event is waited for."""


def says(text: str, *, used: Used | None = None) -> Script:
    return [*(Text(word) for word in text.split(" ")), *([used] if used else []), Finished("stop")]


def calls(*wanted: tuple[str, str, str]) -> Script:
    """(id, name, arguments) of each call, in two pieces."""
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
        """Somebody has asked it something."""

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
