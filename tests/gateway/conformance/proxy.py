"""A proxy between the gateway and a real server. It can cut connections and lose responses."""

from __future__ import annotations

import asyncio
from contextlib import suppress

SENDS = b"/send/m.room.message/"
TOO_MANY = b" 429 "


class Proxy:
    def __init__(self, server: int) -> None:
        self._server = server
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.limited = 0
        """How often the server refused a request because of its rate limit."""
        self.swallows = False
        """Whether to forward the next message and drop its response."""

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", self._server)
        lost = asyncio.Event()
        self._open |= {writer, to_there}
        try:
            await asyncio.gather(self._ask(reader, to_there, lost), self._answer(there, writer, lost))
        finally:
            self._open -= {writer, to_there}

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.swallows and data.startswith(b"PUT ") and SENDS in data:
                    self.swallows = False
                    lost.set()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                self.limited += TOO_MANY in data[:20]
                if not lost.is_set():
                    writer.write(data)
                    await writer.drain()
        writer.close()
