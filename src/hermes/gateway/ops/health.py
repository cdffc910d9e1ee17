"""How the gateway is: `/healthz` for whoever watches over it, `/metrics` for Prometheus.

It asks for everything when it is asked itself, the store once a second at most: anybody who reaches it may ask.
Nothing here tells who talks to us, or what about, or where things are on this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes import __version__, clock
from hermes.errors import HermesError
from hermes.gateway.http.host import error_handlers
from hermes.gateway.ops.metrics import CONTENT_TYPE, GatewayMetrics
from hermes.gateway.platform_connections import UP, PlatformState
from hermes.secrets import redact_line

PATIENCE_S = 5.0
"""How long the store may take to say how it is."""
FRESH_S = 1.0
"""How long that answer is given again."""


class Waiting(NamedTuple):
    """How much there is still to do."""

    inbox: int
    outbox: int


class Watched(NamedTuple):
    """The running gateway, as far as this needs to know it."""

    started_at: float
    platforms: Callable[[], Sequence[PlatformState]]
    write: Callable[[], Awaitable[None]]
    """Write something to the store; raises if that cannot be done."""
    waiting: Callable[[], Awaitable[Waiting]]
    metrics: GatewayMetrics


T = TypeVar("T")


class _Lately(Generic[T]):
    """The answer to a question, asked again only when the last answer is old. All who ask meanwhile get the same."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None
        self._old_at = 0.0

    async def get(self) -> T:
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now >= self._old_at):
            self._asking = asyncio.ensure_future(self._once())
        return await asyncio.shield(self._asking)

    async def _once(self) -> T:
        try:
            return await self._ask()
        finally:
            self._old_at = asyncio.get_running_loop().time() + FRESH_S


def health_app(watched: Watched) -> Starlette:
    store_trouble, store_waiting = _Lately(lambda: _trouble(watched)), _Lately(lambda: _waiting(watched))

    async def healthz(_: Request) -> Response:
        trouble, waiting = await asyncio.gather(store_trouble.get(), store_waiting.get())
        told = _told(watched, trouble, waiting)
        return JSONResponse(told, 200 if trouble is None else 503, headers={"Cache-Control": "no-store"})

    async def metrics(_: Request) -> Response:
        waiting = await store_waiting.get()
        numbers = watched.metrics
        numbers.inbox_waiting.set(waiting.inbox if waiting else None)
        numbers.outbox_waiting.set(waiting.outbox if waiting else None)
        for one in watched.platforms():
            numbers.platform_up.set(int(one.state == UP), one.name)
        return Response(numbers.render(), headers={"Content-Type": CONTENT_TYPE})

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/metrics", metrics)], exception_handlers=error_handlers()
    )


def _told(watched: Watched, trouble: str | None, waiting: Waiting | None) -> dict[str, Any]:
    platforms = watched.platforms()
    well = trouble is None and all(one.state == UP for one in platforms)
    return {
        "status": "ok" if well else "degraded",
        "version": __version__,
        "uptime_seconds": round(max(0.0, clock.now() - watched.started_at), 1),
        "store": {"writable": trouble is None, "error": trouble},
        "waiting": waiting._asdict() if waiting else None,
        "platforms": {
            one.name: {
                "state": one.state,
                "since": clock.format_iso(one.since),
                "error": redact_line(one.error) if one.error else None,
            }
            for one in platforms
        },
    }


async def _trouble(watched: Watched) -> str | None:
    """Why the store cannot be written to, if so."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await watched.write()
    except TimeoutError:
        return f"it did not answer within {PATIENCE_S:g} seconds"
    except (HermesError, OSError) as problem:
        return redact_line(str(problem))
    return None


async def _waiting(watched: Watched) -> Waiting | None:
    """None if the store cannot tell."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await watched.waiting()
    except (HermesError, OSError):
        return None
