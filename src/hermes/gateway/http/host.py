"""The HTTP server for all listeners of the gateway, with limits against abuse.

The server runs in the caller's event loop, installs no signal handlers, prints nothing, and ends when it is
cancelled. The limits on a body are checked while the app reads it. If a limit is exceeded, the read raises an
`HTTPException`, and the app can write the response itself. The status is 413 if the body is too large, 408 if it
arrives too slowly, and 503 if too many body bytes are in memory. The limits that all servers share are in `limits`.
"""

from __future__ import annotations

import asyncio
import errno
import http as status_names
import json
import os
import socket
from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from hermes import secrets
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http.limits import BUSY, IDLE, RECEIVING, SMALL_BODY, Guard, current_guard
from hermes.logs import get_logger

log = get_logger(__name__)

LARGEST_BODY = 1024 * 1024
LARGEST_HEADERS = 16 * 1024
REQUEST_S = 10
"""Maximum seconds for receiving the request headers, on new and on reused connections."""
BODY_S = 30
KEEP_ALIVE_S = 5
GRACE_S = 5
"""How long open requests may continue during shutdown, in seconds."""
SEND_S = 30
"""Maximum seconds during which a client reads nothing while a response is being sent."""
LINGER_S = 5
"""How long a closing connection may take to send its remaining bytes, in seconds."""
ACCEPT_AT_ONCE = 16
"""How many connections the event loop accepts in one step. Each uses a file descriptor before the limits are
checked."""
BACKLOG = 1024
PIECE = 64 * 1024
HOLDER = "hermes.holder"
"""Key in the ASGI scope. The value is the API key or the address on whose account the body bytes are counted. An app
sets it after authentication."""
HOLD = "hermes.hold"
"""Key in the ASGI scope. The value is a function that counts more bytes for the request. It raises `HTTPException`
if the limit is exceeded."""
LAST_PORT = 65535
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

Shape = Callable[[int], bytes]
"""Returns the JSON body of an error response for a status code."""


def plain_error_body(status: int) -> bytes:
    return json.dumps({"error": _phrase(status)}).encode()


def error_handlers(shape: Shape = plain_error_body) -> dict[Any, ExceptionHandler]:
    """Return exception handlers for an app. For every error, including errors of the HTTP framework, the response
    body is the result of `shape` for the status."""

    async def answer(_: Request, problem: Exception) -> Response:
        status, headers = 500, {"Connection": "close"}
        if isinstance(problem, HTTPException):
            status, headers = problem.status_code, dict(problem.headers or {})
        return Response(shape(status), status, headers, "application/json")

    return {HTTPException: answer, Exception: answer}


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    ready: Callable[[int], None] | None = None,
    largest_body: int = LARGEST_BODY,
    shape: Shape = plain_error_body,
) -> None:
    """Serve `app` over HTTP until cancelled. Port 0 selects a free port. `ready` is called with the port number as
    soon as the server accepts requests. `shape` builds the bodies of the error responses that the app does not
    write: for invalid HTTP, for too many connections, and for an error in the app."""
    guard = current_guard()
    sockets = await _bind_all(host, port)
    at = sockets[0].getsockname()[1]

    def listening() -> None:
        log.info("listening on %s, port %d", host, at)
        if ready is not None:
            ready(at)

    config = uvicorn.Config(
        _BodyLimit(app, largest_body, guard, shape),
        http=_make_protocol(guard, shape),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # invalid requests would otherwise fill the log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPT_AT_ONCE,
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
        finally:  # even if the wait is cancelled
            server.hang_up()
            for listener in sockets:
                listener.close()


async def _bind_all(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each IP address of `host`, all on the same port."""
    if not 0 <= port <= LAST_PORT:
        raise Misconfigured(f"invalid port {port}: the highest port is {LAST_PORT}")
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise Misconfigured(f"cannot listen on {host!r}: the host cannot be resolved") from problem
    sockets: list[socket.socket] = []
    refused: list[OSError] = []
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        at = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bind_socket(family, kind, protocol, (address[0], at, *address[2:])))
        except OSError as problem:
            refused.append(problem)
    # Ignore an address that this machine does not have, such as ::1 without IPv6, if another one works.
    worst = next((error for error in refused if not sockets or error.errno not in NOT_HERE), None)
    if worst is not None:
        for error in sockets:
            error.close()
        raise Misconfigured(_describe_bind_error(host, port, worst)) from worst
    return sockets


def _bind_socket(
    family: socket.AddressFamily, kind: socket.SocketKind, protocol: int, address: tuple[Any, ...]
) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on other systems the option allows a port that is in use
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        # This fails if another program uses the port. The server sets the real backlog.
        listener.listen(0)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _describe_bind_error(host: str, port: int, problem: OSError) -> str:
    where = f"port {port} of {host}"
    if problem.errno == errno.EADDRINUSE:
        return f"{where} is in use by another program"
    if problem.errno in NOT_HERE:
        return f"cannot listen on {host}: it is not an address of this machine"
    if problem.errno == errno.EACCES:
        return f"{where} needs higher privileges: use a port above 1023"
    return f"cannot listen on {where}: {problem.strerror or problem}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._stop_requested = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals belong to the process

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # the event loop also uses `backlog` as its accept limit
        self._ready()

    async def main_loop(self) -> None:
        """Call `on_tick` once a second, which is often enough to update the Date header. The library's own loop calls
        it ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stop_requested.wait()

    def end(self) -> None:
        self.should_exit = True
        self._stop_requested.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:  # let cancelled tasks send their responses
            await asyncio.wait(self.server_state.tasks, timeout=1)

    def hang_up(self) -> None:
        for listening in getattr(self, "servers", ()):
            listening.close()
        for connection in self.server_state.connections:
            connection.transport.abort()


class _Connection(H11Protocol):
    """A server connection with timeouts that the HTTP library lacks: for slow request headers, and for a client
    that does not read the response. The connection counts towards the limits of the process."""

    _patience: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def __init__(self, guard: Guard, shape: Shape, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard, self._shape = guard, shape
        self.address = ""

    @property
    def state(self) -> int:
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return IDLE
        return RECEIVING if cycle.more_body and not cycle.response_started else BUSY

    def evict(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._guard.connections.admit(self):
            self._wait_for_request()
        else:
            transport.write(_raw_response(503, self._shape))
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._patience, self._sending):
            if timer is not None:
                timer.cancel()
        self._guard.connections.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._guard.connections.touch(self)
        self._wait_for_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending = self.loop.call_later(SEND_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()

    def send_400_response(self, msg: str) -> None:
        # In any other state a response may be in progress, and the client would read this one as a part of it.
        if self.state == IDLE:
            self.transport.write(_raw_response(400, self._shape))
        self._close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close()

    def _wait_for_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        if self.state == IDLE:
            self._close()

    def _close(self) -> None:
        """Close the connection after the written bytes are sent, or after `LINGER_S` seconds if the client does not
        read them."""
        self.transport.close()
        self._patience = self.loop.call_later(LINGER_S, self.transport.abort)


def _make_protocol(guard: Guard, shape: Shape) -> Any:
    return partial(_Connection, guard, shape)


def _raw_response(status: int, shape: Shape) -> bytes:
    body = shape(status)
    again = b"Retry-After: 5\r\n" if status == 503 else b""
    head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n" % (status, _phrase(status).encode())
    return b"%sContent-Length: %d\r\n%sConnection: close\r\n\r\n%s" % (head, len(body), again, body)


def _phrase(status: int) -> str:
    try:
        return status_names.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


class _BodyLimit:
    """ASGI wrapper that limits the size of a request body and the time to receive it. If the app raises an error, the
    wrapper responds with 500."""

    def __init__(self, app: ASGIApp, largest: int, guard: Guard, shape: Shape) -> None:
        self._app, self._largest, self._guard, self._shape = app, largest, guard, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        scope.setdefault(HOLDER, client[0] if client else "")
        body = _LimitedBody(receive, self._largest, scope, self._guard)
        scope[HOLD] = body.hold
        has_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            for piece in _split_body(message):
                await send(piece)

        try:
            await self._app(scope, body, send_and_note)
        except Exception as problem:
            log.error("a request failed: %s", secrets.redact(repr(problem)), exc_info=True)
            if not has_begun:
                answer = Response(
                    self._shape(500), 500, {"Connection": "close"}, media_type="application/json"
                )
                await answer(scope, receive, send)
        finally:
            body.release()


def _split_body(message: Message) -> Iterator[Message]:
    """Split the long body of a response message into pieces. The server can then wait between two pieces until the
    client has read enough."""
    body = memoryview(message.get("body", b""))
    while len(body) > PIECE:
        yield {"type": message["type"], "body": bytes(body[:PIECE]), "more_body": True}
        body = body[PIECE:]
    yield {**message, "body": bytes(body)} if body else message


class _LimitedBody:
    """A request body with a size limit and a deadline.

    If a body is refused, the connection is not closed at once, because a client that is still sending would lose the
    response. The rest of the body is discarded.
    """

    def __init__(self, receive: Receive, largest: int, scope: Scope, guard: Guard) -> None:
        self._receive, self._scope, self._pool = receive, scope, guard.bodies
        self._left = largest
        self._announced = _announced_length(scope)
        self._free = SMALL_BODY
        self._held: list[tuple[str, int]] = []
        self._whole = False
        self._deadline = asyncio.get_running_loop().time() + BODY_S

    async def __call__(self) -> Message:
        if self._whole:  # the body is complete, and the next message is the disconnect
            return await self._receive()
        if self._announced > self._left:
            raise HTTPException(413)
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, headers={"connection": "close"}) from None
        size = len(message.get("body", b""))
        self._left -= size
        self._announced = 0
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413)
        self.hold(size)
        return message

    def hold(self, size: int) -> None:
        counted = max(0, size - self._free)
        self._free = max(0, self._free - size)
        if counted:
            holder = str(self._scope[HOLDER])
            if not self._pool.take(holder, counted):
                raise HTTPException(503, headers={"Retry-After": "5", "connection": "close"})
            self._held.append((holder, counted))

    def release(self) -> None:
        for holder, size in self._held:
            self._pool.give_back(holder, size)
        self._held.clear()


def _announced_length(scope: MutableMapping[str, Any]) -> int:
    length: bytes = dict(scope.get("headers", ())).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0
