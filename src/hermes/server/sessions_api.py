"""`/api/sessions`: the sessions of one key. Other people's sessions are answered with 404."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hermes import clock
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.http.host import HOLD
from hermes.gateway.http.limits import current_guard
from hermes.server.api_errors import Refused, session_not_found
from hermes.server.api_keys import Person
from hermes.server.key_limits import OPERATORS, check_query
from hermes.server.request_handler import RequestHandler

ACTIVE_S = 300.0
"""A session is active that is open and in which something was said within so many seconds."""
MOST = 500
NOT_TOLD = ("system_prompt", "owner", "origin_json", "process", "lease_epoch", "session_key")
"""What is ours and not the client's, of a session's row."""
_TERMS = re.compile(r'"[^"]*"|\S+')


async def list_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
    limit, offset = _read_number(request, "limit", 20, MOST), _read_number(request, "offset", 0)
    store = handler.store(person)

    def page() -> Response:
        page_of_rows = store.list_conversations(limit=limit, offset=offset)
        body = [_format_session(row) for row in page_of_rows.rows]
        return JSONResponse({"sessions": body, "total": page_of_rows.total, "limit": limit, "offset": offset})

    return await handler.run_in_thread(person, page)


async def search_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
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


async def get_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    _, session = await _find_session(handler, request, person)
    return JSONResponse(_format_session(session))


async def list_messages(handler: RequestHandler, request: Request, person: Person) -> Response:
    store, session = await _find_session(handler, request, person)

    def read() -> Response:
        rows = store.get_messages(session["id"])
        return JSONResponse({"session_id": session["id"], "messages": [_format_message(row) for row in rows]})

    answer = await handler.run_in_thread(person, read)
    # It is in memory until the client has read it. A session of any size can be read, but only one of the largest.
    request.scope[HOLD](min(len(answer.body), current_guard().bodies.share))
    return answer


async def get_latest_descendant(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Where the conversation goes on: after a compression that is another session."""
    store, session = await _find_session(handler, request, person)
    live = await handler.run_in_thread(person, store.get_compression_tip, session["id"])
    body = {"requested_session_id": session["id"], "session_id": live, "changed": live != session["id"]}
    return JSONResponse(body)


async def delete_session(handler: RequestHandler, request: Request, person: Person) -> Response:
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
