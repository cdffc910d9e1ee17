"""How the gateway is: `/healthz` for whoever watches over it, `/metrics` for Prometheus.

It asks for everything when it is asked itself. Nothing here tells who talks to us, or what about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes import __version__, clock
from hermes.errors import HermesError
from hermes.gateway.connections import UP, PlatformState
from hermes.gateway.metrics import CONTENT_TYPE, GatewayMetrics
from hermes.secrets import redact

LONGEST_LINE = 300
PATIENCE_S = 5.0
"""How long the store may take to say how it is."""


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


def health_app(watched: Watched) -> Starlette:
    async def healthz(_: Request) -> Response:
        trouble, waiting = await asyncio.gather(_trouble(watched), _waiting(watched))
        told = _told(watched, trouble, waiting)
        return JSONResponse(told, 200 if trouble is None else 503, headers={"Cache-Control": "no-store"})

    async def metrics(_: Request) -> Response:
        waiting = await _waiting(watched)
        numbers = watched.metrics
        numbers.inbox_waiting.set(waiting.inbox if waiting else None)
        numbers.outbox_waiting.set(waiting.outbox if waiting else None)
        for one in watched.platforms():
            numbers.platform_up.set(int(one.state == UP), one.name)
        return Response(numbers.render(), headers={"Content-Type": CONTENT_TYPE})

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])


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
                "since": clock.iso(one.since),
                "error": _one_line(one.error) if one.error else None,
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
        return _one_line(str(problem))
    return None


async def _waiting(watched: Watched) -> Waiting | None:
    """None if the store cannot tell."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await watched.waiting()
    except (HermesError, OSError):
        return None


def _one_line(text: str) -> str:
    first = next(iter(text.strip().splitlines()), "")
    return redact(first)[:LONGEST_LINE]
