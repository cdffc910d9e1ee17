"""The connection with an editor: one JSON-RPC message per line, on stdin and stdout.

Stdout carries only the protocol. Its file descriptor is replaced by that of stderr, so that all other output goes to
stderr.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acp.core import Connection

from hermes import errors
from hermes.interop.acp.server import AcpServer, AgentSettings
from hermes.secrets import redact
from hermes.text import make_readable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

LARGEST_MESSAGE = 64 * 1024 * 1024
"""The maximum size of a message from the editor, in bytes. Pictures make messages large."""
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class NotAPipe(errors.HermesError):
    """Stdin or stdout is not connected to an editor."""


async def serve(store: SessionDB, settings: AgentSettings) -> bool:
    """Answer the editor until it closes stdin or a signal ends the program. Return whether Ctrl-C ended it."""
    _set_up_logs()
    transport = await _open_stdio()
    server = AcpServer(store, settings)
    connection = Connection(server.handle, transport, listening=False)
    server.connect(connection)
    loop, listening = asyncio.get_running_loop(), asyncio.create_task(connection.main_loop())
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        listening.cancel()

    for number in ENDINGS:
        loop.add_signal_handler(number, end, number)
    try:
        with suppress(asyncio.CancelledError):
            await listening
    finally:
        for number in ENDINGS:
            loop.remove_signal_handler(number)
        await server.close()
        await connection.close()
        if settings.parts.close is not None:
            await settings.parts.close()
    return signal.SIGINT in received


class StdioTransport:
    """Sends and receives messages as lines of JSON. The response to an invalid line is an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        async with self._sending:
            if self._writer.is_closing():
                raise ConnectionError("the editor has closed the connection")
            self._writer.write(line + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
                if not line.strip():
                    return None
            except asyncio.LimitOverrunError:
                await self._refuse(INVALID_REQUEST, f"a message is longer than {LARGEST_MESSAGE:,} bytes")
                return None
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(PARSE_ERROR, "the line is not valid JSON")
                continue
            if isinstance(message, dict):
                return message
            await self._refuse(INVALID_REQUEST, "the message is not a JSON object")

    async def _refuse(self, code: int, text: str) -> None:
        with suppress(ConnectionError):
            await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def _open_stdio() -> StdioTransport:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LARGEST_MESSAGE)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        pipe, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), output
        )
    except ValueError:
        raise NotAPipe(
            "stdin and stdout must be pipes: `hermes acp` is started by an editor, see docs/editors.md"
        ) from None
    return StdioTransport(reader, asyncio.StreamWriter(pipe, protocol, None, loop))


def _set_up_logs() -> None:
    """Log to stderr, one line for each event, with secrets redacted. Editors show stderr in their logs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("hermes: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if os.environ.get("HERMES_TRACEBACK"):
            return make_readable(redact(text))
        return make_readable(redact(" ".join(text.split())))

    def formatException(self, ei: Any) -> str:  # noqa: N802  the name of the standard library
        return super().formatException(ei) if os.environ.get("HERMES_TRACEBACK") else f"({ei[1]!r})"
