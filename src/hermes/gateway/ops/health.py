"""`/healthz` and `/readyz` for supervisors, and `/metrics` for Prometheus.

`/healthz` responds with 200 as long as the process runs, even if the store or a platform does not work, because a
restart would not repair those. `/readyz` responds with 503 if the store cannot be written, if a platform is not
connected, or if the gateway is shutting down.

Values are collected on request. The store is queried at most once a second, because anyone who reaches the port can
send requests. The responses contain no user names, no message texts and no local paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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
"""Timeout of a store query, in seconds."""
NOT_CACHED = {"Cache-Control": "no-store"}
FRESH_S = 1.0
"""How long a query result is reused, in seconds."""


class QueueSizes(NamedTuple):
    """The number of entries that wait in the inbox and in the outbox."""

    inbox: int
    outbox: int


class HealthSources(NamedTuple):
    """The parts of the running gateway from which the health endpoints get their values."""

    started_at: float
    platforms: Callable[[], Sequence[PlatformState]]
    write: Callable[[], Awaitable[None]]
    """Writes to the store. Raises if the store is not writable."""
    waiting: Callable[[], Awaitable[QueueSizes]]
    metrics: GatewayMetrics
    measure: Callable[[], Awaitable[None]] | None = None
    """Updates the metrics that are read on request, such as the size of the store."""
    is_draining: Callable[[], bool] = lambda: False
    """Returns whether the gateway is shutting down."""


T = TypeVar("T")


class _CachedAnswer(Generic[T]):
    """The cached result of the query `ask`. Concurrent callers share one query, and its result is reused for
    `FRESH_S` seconds."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None
        self._old_at = 0.0

    async def get(self) -> T:
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now >= self._old_at):
            self._asking = asyncio.ensure_future(self._ask_once())
        return await asyncio.shield(self._asking)

    async def _ask_once(self) -> T:
        try:
            return await self._ask()
        finally:
            self._old_at = asyncio.get_running_loop().time() + FRESH_S


def health_app(sources: HealthSources) -> Starlette:
    store_trouble, store_waiting = (
        _CachedAnswer(lambda: _probe_store(sources)),
        _CachedAnswer(lambda: _count_waiting(sources)),
    )
    readings = _CachedAnswer(lambda: _take_readings(sources))

    async def healthz(_: Request) -> Response:
        trouble, waiting = await asyncio.gather(store_trouble.get(), store_waiting.get())
        report = _make_report(sources, trouble, waiting)
        return JSONResponse(report, headers=NOT_CACHED)

    async def readyz(_: Request) -> Response:
        reasons = _list_obstacles(sources, await store_trouble.get())
        report = {"ready": not reasons, "reasons": reasons}
        return JSONResponse(report, 503 if reasons else 200, headers=NOT_CACHED)

    async def metrics(_: Request) -> Response:
        await readings.get()
        waiting = await store_waiting.get()
        numbers = sources.metrics
        numbers.inbox_waiting.set(waiting.inbox if waiting else None)
        numbers.outbox_waiting.set(waiting.outbox if waiting else None)
        for platform in sources.platforms():
            numbers.platform_up.set(int(platform.state == UP), platform.name)
        return Response(numbers.render(), headers={"Content-Type": CONTENT_TYPE})

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)],
        exception_handlers=error_handlers(),
    )


def _make_report(sources: HealthSources, trouble: str | None, waiting: QueueSizes | None) -> dict[str, Any]:
    platforms = sources.platforms()
    well = trouble is None and all(platform.state == UP for platform in platforms)
    return {
        "status": "ok" if well else "degraded",
        "version": __version__,
        "uptime_seconds": round(max(0.0, clock.now() - sources.started_at), 1),
        "store": {"writable": trouble is None, "error": trouble},
        "waiting": waiting._asdict() if waiting else None,
        "platforms": {
            platform.name: {
                "state": platform.state,
                "since": clock.format_iso(platform.since),
                "error": redact_line(platform.error) if platform.error else None,
            }
            for platform in platforms
        },
    }


def _list_obstacles(sources: HealthSources, trouble: str | None) -> list[str]:
    """Return the reasons why the gateway is not ready, one line each. `trouble` says why the store is not writable,
    or is None if it is writable."""
    reasons = ["the gateway is shutting down"] if sources.is_draining() else []
    if trouble is not None:
        reasons.append(f"the store cannot be written: {trouble}")
    for platform in sources.platforms():
        if platform.state != UP:
            error = f" ({redact_line(platform.error)})" if platform.error else ""
            reasons.append(f"{platform.name}: {platform.state}{error}")
    return reasons


async def _probe_store(sources: HealthSources) -> str | None:
    """Return why the store is not writable, or None if it is writable."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await sources.write()
    except TimeoutError:
        return f"the store did not respond within {PATIENCE_S:g} seconds"
    except (HermesError, OSError) as problem:
        return redact_line(str(problem))
    return None


async def _take_readings(sources: HealthSources) -> None:
    """Update the metrics that are computed only when `/metrics` is requested. If the store cannot be read, they
    keep their last values."""
    with suppress(HermesError, OSError):
        async with asyncio.timeout(PATIENCE_S):
            if sources.measure is not None:
                await sources.measure()


async def _count_waiting(sources: HealthSources) -> QueueSizes | None:
    """Return the number of waiting inbox and outbox entries, or None if the store cannot be read."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await sources.waiting()
    except (HermesError, OSError):
        return None
