"""Where everything that listens is served: one small host, with limits against those who mean harm.

It runs in the event loop of whoever calls it, leaves signals to the process, says nothing on the terminal, and ends
when it is cancelled. A body that is too large, or comes too slowly, is refused while it is read, as an answer that the
app can put into its own words: an `HTTPException` with 413 or 408.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from hermes.gateway.adapter import Misconfigured
from hermes.logs import log_of

log = log_of(__name__)

LARGEST_BODY = 1024 * 1024
LARGEST_HEADERS = 16 * 1024
REQUEST_S = 10
"""How long the headers of a request may take, on a new connection and on one that is used again."""
BODY_S = 30
KEEP_ALIVE_S = 5
GRACE_S = 5
"""How long requests that are open may go on when we are to end."""
CONNECTIONS = 1000
LAST_PORT = 65535
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    ready: Callable[[int], None] | None = None,
    largest_body: int = LARGEST_BODY,
) -> None:
    """Serve until cancelled. Port 0 is any that is free; `ready` is told which, once requests are taken."""
    sockets = await _bound(host, port)
    at = sockets[0].getsockname()[1]

    def listening() -> None:
        log.info("listening on %s, port %d", host, at)
        if ready is not None:
            ready(at)

    config = uvicorn.Config(
        _Bounded(app, largest_body),
        http=_Impatient,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
    )
    server = _Server(config, listening)
    running = asyncio.create_task(server.serve(sockets))
    try:
        await asyncio.shield(running)
    finally:
        server.end()
        try:
            await running
        finally:  # also if nobody would wait even for that
            server.hang_up()
            for one in sockets:
                one.close()


async def _bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with the same port."""
    if not 0 <= port <= LAST_PORT:
        raise Misconfigured(f"there is no port {port}: they end with {LAST_PORT}")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Misconfigured(f"cannot listen on {host!r}: there is no such address") from problem
    sockets: list[socket.socket] = []
    refused: list[OSError] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        at = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_listening(family, kind, protocol, (address[0], at, *address[2:])))
        except OSError as problem:
            refused.append(problem)
    # One address of several that this machine does not have (::1 where there is no IPv6) is not missed.
    worst = next((one for one in refused if not sockets or one.errno not in NOT_HERE), None)
    if worst is not None:
        for one in sockets:
            one.close()
        raise Misconfigured(_why(host, port, worst)) from worst
    return sockets


def _listening(
    family: socket.AddressFamily, kind: socket.SocketKind, protocol: int, address: tuple[Any, ...]
) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would take the port away from another program
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(0)  # so that a port that another program has shows now; the number follows with the server
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def _why(host: str, port: int, problem: OSError) -> str:
    where = f"port {port} of {host}"
    if problem.errno == errno.EADDRINUSE:
        return f"{where} is in use by another program"
    if problem.errno in NOT_HERE:
        return f"cannot listen on {host}: it is no address of this machine"
    if problem.errno == errno.EACCES:
        return f"{where} needs more rights than we have: choose one above 1023"
    return f"cannot listen on {where}: {problem.strerror or problem}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._told_to_end = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # they are the process's own

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        """Once a second is enough for the Date of answers; the library would wake ten times."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._told_to_end.wait()

    def end(self) -> None:
        self.should_exit = True
        self._told_to_end.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled just now: what they still say is to be heard
            await asyncio.wait(self.server_state.tasks, timeout=1)

    def hang_up(self) -> None:
        for listening in getattr(self, "servers", ()):
            listening.close()
        for connection in self.server_state.connections:
            connection.transport.abort()


class _Impatient(H11Protocol):
    """Hangs up when no request comes in time; the library waits for ever for headers that trickle in."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the library
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()

    def _wait_for_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        asked: RequestResponseCycle | None = self.cycle
        if asked is None or asked.response_complete:
            self.transport.close()


class _Bounded:
    """Lets no more of a body through than is wanted, nor waits longer for it."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self._app, self._largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, _Body(receive, self._largest, _announced(scope)), send)


class _Body:
    """Refused is not hung up on: the answer would be lost while the other side still sends. The rest is let fall."""

    def __init__(self, receive: Receive, largest: int, announced: int) -> None:
        self._receive = receive
        self._left = largest
        self._announced = announced
        self._whole = False
        self._deadline = asyncio.get_running_loop().time() + BODY_S

    async def __call__(self) -> Message:
        if self._whole:  # what comes now is that the other side has gone
            return await self._receive()
        if self._announced > self._left:
            raise HTTPException(413)
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, headers={"connection": "close"}) from None
        self._left -= len(message.get("body", b""))
        self._announced = 0
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413)
        return message


def _announced(scope: MutableMapping[str, Any]) -> int:
    length: bytes = dict(scope.get("headers", ())).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0
