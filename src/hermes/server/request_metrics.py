"""Metrics of the requests to the API: their number by route and status, and their duration."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.gateway.ops.metrics import OTHER, QUICK, SLOW, Counter, Gauge, Histogram, Metric

ROUTE = "hermes.route"
"""Key in the ASGI scope. The value is the route of the request. A request without this key is counted as `other`."""
NO_RESPONSE = "none"
STATUSES = (*(str(status.value) for status in HTTPStatus), "499", NO_RESPONSE)
BOUNDS = sorted({*QUICK, *SLOW})


class RequestMetrics:
    """Wraps the application and observes each request until its response is sent."""

    def __init__(self, app: ASGIApp, routes: Sequence[str]) -> None:
        self._app = app
        self._requests = Counter(
            "hermes_api_requests_total",
            "Requests to the API, by route and status.",
            route=routes,
            status=STATUSES,
        )
        self._seconds = Histogram(
            "hermes_api_request_seconds",
            "Seconds from the headers of a request to the API to the end of its response.",
            BOUNDS,
            route=routes,
        )
        self._open = Gauge("hermes_api_requests_open", "Requests to the API that are being answered.")
        self._open_count = 0
        self._open.set(0)

    @property
    def metrics(self) -> list[Metric]:
        return [self._requests, self._seconds, self._open]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = monotonic(), NO_RESPONSE

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self._change_open(1)
        try:
            await self._app(scope, receive, observe)
        finally:
            self._change_open(-1)
            route = scope.get(ROUTE, OTHER)
            self._requests.add(route, status)
            self._seconds.observe(monotonic() - began, route)

    def _change_open(self, by: int) -> None:
        self._open_count += by
        self._open.set(self._open_count)
