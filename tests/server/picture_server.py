"""A server that serves pictures and files that only look like pictures. It records the requests."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 6000
GIF = b"GIF89a" + b"y" * 100


class PictureServer:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.picture = PNG
        self.elsewhere = ""

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        self.asked.append(path)
        match path:
            case "/page.png":
                return Response("<html>", media_type="image/png")
            case "/packed.png":
                return Response(gzip.compress(self.picture), headers={"Content-Encoding": "gzip"})
            case "/away":
                return RedirectResponse(self.elsewhere)
            case "/moved":
                return RedirectResponse("/x.png", 301)
            case "/round":
                return RedirectResponse("/round")
            case "/missing":
                return Response(self.picture, 404)
        return Response(self.picture, media_type="text/plain")

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer)])


class Listener:
    """A local port that must not receive connections."""

    def __init__(self) -> None:
        self.port, self.came = 0, 0

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made._take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
