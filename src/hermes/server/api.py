"""The API server: the agent behind an OpenAI-compatible interface. See docs/api-server.md.

A client waits for its answer, so the server runs turns itself and does not use the mailboxes. Nothing can be delivered
to it when no request waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
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

from hermes import clock, home, secrets
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.adapter import Capabilities, Undeliverable
from hermes.gateway.adapter import Receive as ReceiveMessage
from hermes.gateway.context import GatewayContext
from hermes.gateway.http.address_rules import AllowedHosts
from hermes.gateway.http.host import HOLD, HOLDER, serve
from hermes.gateway.http.limits import current_guard
from hermes.gateway.inbound_events import Source
from hermes.gateway.platform_options import read_list, read_port
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.settings import PlatformSettings
from hermes.server import completions, responses
from hermes.server.api_errors import (
    Refused,
    error_body,
    refused_by_status,
    session_not_found,
    translate_error,
)
from hermes.server.api_keys import PLATFORM, Keys, Person
from hermes.server.history_index import HistoryIndex
from hermes.server.key_limits import OPERATORS, Limits, check_query
from hermes.server.request_handler import SESSION, ClientGone, RequestHandler

log = logging.getLogger(__name__)

PORT = 8642
MODEL = "hermes"
LARGEST_BODY = 32 * 1024 * 1024
"""Pictures are in the body, a third larger than they are."""
CLIENT_GONE = 499
EVERYBODY = "*"

Work = Callable[[RequestHandler, Request, Person], Awaitable[Response]]
ACTIVE_S = 300.0
"""A session is active that is open and in which something was said within so many seconds."""
MOST = 500
NOT_TOLD = ("system_prompt", "owner", "origin_json", "process", "lease_epoch", "session_key")
"""What is ours and not the client's, of a session's row."""
_TERMS = re.compile(r'"[^"]*"|\S+')


class ApiServer:
    name = PLATFORM
    capabilities = Capabilities(max_length=1_000_000)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        more = settings.more
        self._keys = Keys(more)
        self._host = str(more.get("host") or "127.0.0.1")
        self._wanted_port = read_port("platforms.api-server.port", more.get("port", PORT))
        self._origins = read_list("platforms.api-server.cors_origins", more.get("cors_origins"))
        self._model = str(more.get("model_name") or MODEL)
        self._limits = Limits.read(more)
        hosts = "platforms.api-server.picture_hosts"
        self._picture_hosts = AllowedHosts(hosts, read_list(hosts, more.get("picture_hosts")))
        self._folder = folder
        self._handler: RequestHandler | None = None
        self._known = HistoryIndex(folder / "conversations.jsonl")
        self.port: int | None = None
        """Where it listens, while it does."""

    def attach(self, context: GatewayContext, _places: SessionLookup) -> None:
        self._handler = RequestHandler(
            context, self._known, self._keys, self._model, self._limits, self._picture_hosts
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
        handler.open()
        app = make_application(handler, self._origins)
        serving = asyncio.create_task(
            serve(
                app,
                self._host,
                self._wanted_port,
                ready=listening,
                largest_body=LARGEST_BODY,
                shape=error_body,
            )
        )
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            await handler.close(handler.context.settings.drain_seconds)
            raise
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
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
        """Whoever asks knows that they wait."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        return None

    async def close(self) -> None:
        """Connections are closed when `run` ends."""
        if self._handler is not None:
            self._handler.close_workers()


def make_application(handler: RequestHandler, origins: list[str]) -> Starlette:
    def route(path: str, method: str, work: Work) -> Route:
        return Route(path, _Endpoint(handler, work, origins), methods=[method])

    async def unknown(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        try:
            with handler.admission.admit(handler.person(request).name):
                return refused_by_status(problem.status_code, problem.headers).response()
        except Refused as refused:
            return refused.response()

    async def broken(_: Request, _problem: Exception) -> Response:
        return refused_by_status(500, {"Connection": "close"}).response()

    across = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=[SESSION, "Retry-After"],
    )
    return Starlette(
        routes=[
            route("/v1/models", "GET", _list_models),
            route("/v1/models/{id}", "GET", _get_model),
            route("/v1/chat/completions", "POST", completions.complete),
            route("/v1/responses", "POST", responses.create_response),
            route("/v1/responses/{id}", "GET", responses.get_response),
            route("/v1/responses/{id}", "DELETE", responses.delete_response),
            route("/api/sessions", "GET", _list_sessions),
            route("/api/sessions/search", "GET", _search_sessions),
            route("/api/sessions/{id}", "GET", _get_session),
            route("/api/sessions/{id}", "DELETE", _delete_session),
            route("/api/sessions/{id}/messages", "GET", _list_messages),
            route("/api/sessions/{id}/latest-descendant", "GET", _get_latest_descendant),
        ],
        middleware=[across] if origins else [],
        exception_handlers={HTTPException: unknown, Exception: broken},
    )


class _Endpoint:
    """One route. A request counts against the limits of its key until its answer is sent, streamed ones too."""

    def __init__(self, handler: RequestHandler, work: Work, origins: list[str]) -> None:
        self._handler, self._work, self._origins = handler, work, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        with ExitStack() as admitted:
            try:
                person = self._admit(request)
                admitted.enter_context(self._handler.admission.admit(person.name))
            except Refused as refused:
                answer = refused.response()
            else:
                scope[HOLDER] = f"key {person.name}"
                answer = await _answer_request(self._handler, request, self._work, person)
            await answer(scope, receive, send)

    def _admit(self, request: Request) -> Person:
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins and EVERYBODY not in self._origins:
            raise Refused(403, "pages of this origin may not ask here (cors_origins)", code="origin_refused")
        return self._handler.person(request)


async def _answer_request(handler: RequestHandler, request: Request, work: Work, person: Person) -> Response:
    try:
        return await work(handler, request, person)
    except HTTPException as problem:
        return refused_by_status(problem.status_code, problem.headers).response()
    except (ClientGone, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    except Exception as problem:
        refused = translate_error(problem)
        if refused.status == 500:
            log.error("a request broke: %s", secrets.redact(repr(problem)), exc_info=True)
        return refused.response()


async def _list_models(handler: RequestHandler, _request: Request, _person: Person) -> Response:
    return JSONResponse({"object": "list", "data": [_describe_model(handler)]})


async def _get_model(handler: RequestHandler, request: Request, _person: Person) -> Response:
    handler.check_model({"model": request.path_params["id"]})
    return JSONResponse(_describe_model(handler))


def _describe_model(handler: RequestHandler) -> dict[str, Any]:
    return {"id": handler.model, "object": "model", "created": 0, "owned_by": "hermes"}


def _raise_nobody_waits() -> NoReturn:
    raise Undeliverable("nothing can be delivered to the API: an answer goes to whoever asks")


# ---------------------------------------------------------------- `/api/sessions`: the sessions of one key


async def _list_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
    limit, offset = _read_number(request, "limit", 20, MOST), _read_number(request, "offset", 0)
    store = handler.store(person)

    def page() -> Response:
        page_of_rows = store.list_conversations(limit=limit, offset=offset)
        body = [_format_session(row) for row in page_of_rows.rows]
        return JSONResponse({"sessions": body, "total": page_of_rows.total, "limit": limit, "offset": offset})

    return await handler.run_in_thread(person, page)


async def _search_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
    """The best message of each session that holds what is looked for."""
    limit = _read_number(request, "limit", 20, MOST)
    query = request.query_params.get("q", "")
    check_query(query, handler.limits)
    query, store = _make_prefixes(query), handler.store(person)

    def find() -> Response:
        best: dict[str, dict[str, Any]] = {}
        for hit in store.search_messages(query, limit=limit, relax=False):
            best.setdefault(hit["session_id"], hit)
        return JSONResponse({"results": [_format_message(hit) for hit in best.values()]})

    return await handler.run_in_thread(person, find)


async def _get_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    _, session = await _find_session(handler, request, person)
    return JSONResponse(_format_session(session))


async def _list_messages(handler: RequestHandler, request: Request, person: Person) -> Response:
    store, session = await _find_session(handler, request, person)

    def read() -> Response:
        rows = store.get_messages(session["id"])
        return JSONResponse({"session_id": session["id"], "messages": [_format_message(row) for row in rows]})

    answer = await handler.run_in_thread(person, read)
    # It is in memory until the client has read it. A session of any size can be read, but only one of the largest.
    request.scope[HOLD](min(len(answer.body), current_guard().bodies.share))
    return answer


async def _get_latest_descendant(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Where the conversation goes on: after a compression that is another session."""
    store, session = await _find_session(handler, request, person)
    live = await handler.run_in_thread(person, store.get_compression_tip, session["id"])
    body = {"requested_session_id": session["id"], "session_id": live, "changed": live != session["id"]}
    return JSONResponse(body)


async def _delete_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    """The conversation goes to the trash."""
    _, session = await _find_session(handler, request, person)
    await handler.conversations.trash(person, session["id"])
    return JSONResponse({"ok": True})


async def _find_session(
    handler: RequestHandler, request: Request, person: Person
) -> tuple[ScopedStore, dict[str, Any]]:
    store = handler.store(person)
    session = await handler.run_in_thread(person, store.get_session, request.path_params["id"])
    if session is None:
        raise session_not_found()
    return store, session


def _format_session(row: Mapping[str, Any]) -> dict[str, Any]:
    active = row.get("last_active") or row["started_at"]
    is_active = row["ended_at"] is None and clock.is_time(active) and clock.now() - active < ACTIVE_S
    body = {name: value for name, value in row.items() if name not in NOT_TOLD}
    return {**_format_message(body), "is_active": is_active}


def _format_message(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, bytes)}


def _read_number(request: Request, name: str, default: int, most: int | None = None) -> int:
    body = request.query_params.get(name)
    if body is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", body) or (most is not None and int(body) > most):
        upto = "" if most is None else f", at most {most}"
        raise Refused(422, f"{name} must be a whole number{upto}", param=name)
    return int(body)


def _make_prefixes(query: str) -> str:
    """Each word that is not in quotes is the beginning of one."""
    if query.count('"') % 2:
        query = query.replace('"', " ")
    terms = _TERMS.findall(query)
    return " ".join(
        term if '"' in term or term in OPERATORS or term.endswith("*") else f"{term}*" for term in terms
    )
