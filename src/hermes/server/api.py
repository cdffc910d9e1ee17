"""The platform `api-server` of the gateway: starts the HTTP server of the API and its routes. See docs/api-server.md.

A client waits for its answer in the response. Therefore the API server runs turns itself and uses neither the inbox nor
the outbox of the gateway. The gateway cannot send a message to a client that has no open request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hermes import home, secrets
from hermes.gateway.adapter import Capabilities, Undeliverable
from hermes.gateway.adapter import Receive as ReceiveMessage
from hermes.gateway.context import GatewayContext
from hermes.gateway.http.address_rules import AllowedHosts
from hermes.gateway.http.host import HOLDER, serve
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.key_file import KeyFile
from hermes.gateway.ops.key_usage import KeyUsage
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.platform_options import read_options
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.settings import PlatformSettings
from hermes.server import commands_api, completions, responses, sessions_api
from hermes.server.api_errors import Refused, format_error_body, refuse_with_status, translate_error
from hermes.server.api_keys import PLATFORM, Keys, Person
from hermes.server.conversations.history_index import HistoryIndex
from hermes.server.conversations.request_journal import RequestJournal
from hermes.server.declaration import ApiServerOptions
from hermes.server.key_limits import Limits
from hermes.server.request_handler import SESSION, ClientGone, RequestHandler
from hermes.server.request_metrics import ROUTE, RequestMetrics

log = logging.getLogger(__name__)

LARGEST_BODY = 32 * 1024 * 1024
"""The maximum size of a request body in bytes. Bodies can contain pictures in base64."""
CLIENT_GONE = 499
EVERYBODY = "*"

Work = Callable[[RequestHandler, Request, Person], Awaitable[Response]]


class ApiServer:
    name = PLATFORM
    capabilities = Capabilities(max_length=1_000_000)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        options = read_options(ApiServerOptions, settings)
        self._key_file = KeyFile(gateway_folder())
        self._key_file.hold_seal()
        self._keys = Keys(options.key, options.keys, self._key_file)
        self._usage = KeyUsage(folder)
        self._host = options.host
        self._wanted_port = options.port
        self._origins = options.cors_origins
        self._model = options.model_name
        self._limits = Limits.from_options(options)
        self._picture_hosts = AllowedHosts("platforms.api-server.picture_hosts", options.picture_hosts)
        self._folder = folder
        self._handler: RequestHandler | None = None
        self._known = HistoryIndex(folder / "conversations.jsonl")
        self._journal = RequestJournal(folder / "requests.jsonl")
        self.port: int | None = None
        """The port that the server listens on, or None while it does not listen."""

    def attach(self, context: GatewayContext, _places: SessionLookup) -> None:
        self._handler = RequestHandler(
            context,
            self._known,
            self._journal,
            self._keys,
            self._usage,
            self._model,
            self._limits,
            self._picture_hosts,
        )

    def measure(self, text: str) -> int:
        return len(text)

    async def run(self, _receive: ReceiveMessage, ready: Callable[[], None]) -> None:
        handler = self._handler
        assert handler is not None

        def listening(port: int) -> None:
            self.port = port
            ready()

        home.make_private_folder(self._folder)
        await asyncio.to_thread(self._known.load)
        await asyncio.to_thread(handler.conversations.tidy_after_crash, handler.context.db)
        await asyncio.to_thread(self._usage.load)
        counting = asyncio.create_task(self._usage.keep_written())
        handler.open()
        app = RequestMetrics(
            make_application(handler, self._origins), [f"{method} {path}" for path, method, _ in ROUTES]
        )
        handler.context.metrics.register(app.metrics)
        serving = asyncio.create_task(
            serve(
                app,
                self._host,
                self._wanted_port,
                ready=listening,
                largest_body=LARGEST_BODY,
                shape=format_error_body,
            )
        )
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            await handler.close(handler.context.settings.drain_seconds)
            raise
        finally:
            serving.cancel()
            counting.cancel()
            await asyncio.gather(serving, counting, return_exceptions=True)
            await handler.stop()
            self.port = None

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        _raise_nobody_waits()

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        _raise_nobody_waits()

    async def typing(self, to: Source) -> None:
        """Do nothing: a client that waits for a response needs no typing indicator."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        return None

    async def close(self) -> None:
        """Stop the worker threads of the API server. `run` closes the connections of the clients when it ends."""
        if self._handler is not None:
            self._handler.close_workers()


def make_application(handler: RequestHandler, origins: Sequence[str]) -> Starlette:
    async def unknown(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        try:
            person = handler.find_person(request)
            with handler.admission.admit(person.name, person.limits):
                return refuse_with_status(problem.status_code, problem.headers).response()
        except Refused as refused:
            return refused.response()

    async def broken(_: Request, _problem: Exception) -> Response:
        return refuse_with_status(500, {"Connection": "close"}).response()

    across = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=[SESSION, "Retry-After"],
    )
    return Starlette(
        routes=[
            Route(path, _Endpoint(handler, f"{method} {path}", work, origins), methods=[method])
            for path, method, work in ROUTES
        ],
        middleware=[across] if origins else [],
        exception_handlers={HTTPException: unknown, Exception: broken},
    )


class _Endpoint:
    """The ASGI application of one route of the API. A request counts against the limits of its API key until the whole
    answer is sent, even if the answer is streamed."""

    def __init__(self, handler: RequestHandler, route: str, work: Work, origins: Sequence[str]) -> None:
        self._handler, self._route, self._work, self._origins = handler, route, work, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = self._route
        request = Request(scope, receive, send)
        with ExitStack() as admitted:
            try:
                person = self._admit(request)
                admitted.enter_context(self._handler.admission.admit(person.name, person.limits))
            except Refused as refused:
                answer = refused.response()
            else:
                scope[HOLDER] = f"key {person.name}"
                answer = await _answer_request(self._handler, request, self._work, person)
            await answer(scope, receive, send)

    def _admit(self, request: Request) -> Person:
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins and EVERYBODY not in self._origins:
            raise Refused(
                403, "web pages of this origin may not send requests (cors_origins)", code="origin_refused"
            )
        return self._handler.find_person(request)


async def _answer_request(handler: RequestHandler, request: Request, work: Work, person: Person) -> Response:
    try:
        return await work(handler, request, person)
    except HTTPException as problem:
        return refuse_with_status(problem.status_code, problem.headers).response()
    except (ClientGone, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    except Exception as problem:
        refused = translate_error(problem)
        if refused.status == 500:
            log.error("a request failed: %s", secrets.redact(repr(problem)), exc_info=True)
        return refused.response()


async def _list_models(handler: RequestHandler, _request: Request, person: Person) -> Response:
    models = dict.fromkeys((handler.model, *person.limits.models))
    return JSONResponse({"object": "list", "data": [_describe_model(model) for model in models]})


async def _get_model(handler: RequestHandler, request: Request, person: Person) -> Response:
    model = request.path_params["id"]
    handler.check_model(person, {"model": model})
    return JSONResponse(_describe_model(model))


def _describe_model(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "hermes"}


def _raise_nobody_waits() -> NoReturn:
    raise Undeliverable("the API server cannot deliver messages: it only answers requests")


ROUTES: Sequence[tuple[str, str, Work]] = (
    ("/v1/models", "GET", _list_models),
    ("/v1/models/{id}", "GET", _get_model),
    ("/v1/chat/completions", "POST", completions.complete),
    ("/v1/responses", "POST", responses.create_response),
    ("/v1/responses/{id}", "GET", responses.get_response),
    ("/v1/responses/{id}", "DELETE", responses.delete_response),
    ("/api/sessions", "GET", sessions_api.list_sessions),
    ("/api/sessions/search", "GET", sessions_api.search_sessions),
    ("/api/sessions/{id}", "GET", sessions_api.get_session),
    ("/api/sessions/{id}", "DELETE", sessions_api.delete_session),
    ("/api/sessions/{id}/messages", "GET", sessions_api.list_messages),
    ("/api/sessions/{id}/export", "GET", sessions_api.export_session),
    ("/api/sessions/{id}/latest-descendant", "GET", sessions_api.get_latest_descendant),
    ("/api/sessions/{id}/commands", "POST", commands_api.run_command),
    ("/api/commands", "GET", commands_api.list_commands),
)
