"""`/api/sessions`: what one key has talked about. What is not theirs is not there."""

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
from hermes.server.api_errors import Refused, no_such_session
from hermes.server.api_keys import Person
from hermes.server.key_limits import OPERATORS, check_query
from hermes.server.request_handler import Desk

ACTIVE_S = 300.0
"""A session is active that is open and in which something was said within so many seconds."""
MOST = 500
NOT_TOLD = ("system_prompt", "owner", "origin_json", "process", "lease_epoch", "session_key")
"""What is ours and not the client's, of a session's row."""
_TERMS = re.compile(r'"[^"]*"|\S+')


async def listed(desk: Desk, request: Request, person: Person) -> Response:
    limit, offset = _number(request, "limit", 20, MOST), _number(request, "offset", 0)
    store = desk.store(person)

    def page() -> Response:
        found = store.list_conversations(limit=limit, offset=offset)
        told = [_session(row) for row in found.rows]
        return JSONResponse({"sessions": told, "total": found.total, "limit": limit, "offset": offset})

    return await desk.work(person, page)


async def search(desk: Desk, request: Request, person: Person) -> Response:
    """The best message of each session that holds what is looked for."""
    limit = _number(request, "limit", 20, MOST)
    asked = request.query_params.get("q", "")
    check_query(asked, desk.limits)
    query, store = _prefixes(asked), desk.store(person)

    def find() -> Response:
        best: dict[str, dict[str, Any]] = {}
        for hit in store.search_messages(query, limit=limit, relax=False):
            best.setdefault(hit["session_id"], hit)
        return JSONResponse({"results": [_plain(hit) for hit in best.values()]})

    return await desk.work(person, find)


async def one(desk: Desk, request: Request, person: Person) -> Response:
    _, session = await _asked_for(desk, request, person)
    return JSONResponse(_session(session))


async def messages(desk: Desk, request: Request, person: Person) -> Response:
    store, session = await _asked_for(desk, request, person)

    def read() -> Response:
        rows = store.get_messages(session["id"])
        return JSONResponse({"session_id": session["id"], "messages": [_plain(row) for row in rows]})

    answer = await desk.work(person, read)
    # It is in memory until the client has read it. A session of any size can be read, but only one of the largest.
    request.scope[HOLD](min(len(answer.body), current_guard().bodies.share))
    return answer


async def latest_descendant(desk: Desk, request: Request, person: Person) -> Response:
    """Where the conversation goes on: after a compression that is another session."""
    store, session = await _asked_for(desk, request, person)
    live = await desk.work(person, store.get_compression_tip, session["id"])
    told = {"requested_session_id": session["id"], "session_id": live, "changed": live != session["id"]}
    return JSONResponse(told)


async def delete(desk: Desk, request: Request, person: Person) -> Response:
    """The conversation goes to the trash."""
    _, session = await _asked_for(desk, request, person)
    await desk.conversations.throw_away(person, session["id"])
    return JSONResponse({"ok": True})


async def _asked_for(desk: Desk, request: Request, person: Person) -> tuple[ScopedStore, dict[str, Any]]:
    store = desk.store(person)
    session = await desk.work(person, store.get_session, request.path_params["id"])
    if session is None:
        raise no_such_session()
    return store, session


def _session(row: Mapping[str, Any]) -> dict[str, Any]:
    active = row.get("last_active") or row["started_at"]
    is_active = row["ended_at"] is None and clock.is_time(active) and clock.now() - active < ACTIVE_S
    told = {name: value for name, value in row.items() if name not in NOT_TOLD}
    return {**_plain(told), "is_active": is_active}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, bytes)}


def _number(request: Request, name: str, default: int, most: int | None = None) -> int:
    told = request.query_params.get(name)
    if told is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", told) or (most is not None and int(told) > most):
        upto = "" if most is None else f", at most {most}"
        raise Refused(422, f"{name} must be a whole number{upto}", param=name)
    return int(told)


def _prefixes(query: str) -> str:
    """Each word that is not in quotes is the beginning of one."""
    if query.count('"') % 2:
        query = query.replace('"', " ")
    terms = _TERMS.findall(query)
    return " ".join(
        term if '"' in term or term in OPERATORS or term.endswith("*") else f"{term}*" for term in terms
    )
