"""Serves an app on a free loopback port while a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from starlette.types import ASGIApp

from hermes.gateway.http.host import serve


@asynccontextmanager
async def served(app: ASGIApp, host: str = "127.0.0.1", **limits: Any) -> AsyncIterator[str]:
    """Run the app and return its address without a trailing slash."""
    port: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    running: asyncio.Future[Any] = asyncio.create_task(serve(app, host, 0, ready=port.set_result, **limits))
    await asyncio.wait((running, port), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
    try:
        yield f"http://{host}:{port.result()}"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=20) as client:
        yield client
