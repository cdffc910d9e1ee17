"""`/api/sessions`: the sessions of one key. A request for a session of another person gets a 404 response."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hermes import clock
from hermes.db.scoped_store import ScopedStore
from hermes.export.formats import FORMATS
from hermes.export.plan import Plan, Session, make_file_stem, plan_conversation
from hermes.export.writer import Export, Options
from hermes.gateway.http.host import HOLD
from hermes.gateway.http.limits import current_guard
from hermes.server.api_errors import Refused, session_not_found
from hermes.server.api_keys import Person
from hermes.server.key_limits import OPERATORS, check_query
from hermes.server.request_handler import RequestHandler

ACTIVE_S = 300.0
"""How long a session that is not ended counts as active after its last message, in seconds."""
MOST = 500
PRIVATE_COLUMNS = frozenset(
    ("system_prompt", "owner", "origin_json", "process", "lease_epoch", "session_key")
)
"""Columns that are internal to the server and are not sent to clients."""
MEDIA_TYPES = {
    "jsonl": "application/jsonl",
    "md": "text/markdown",
    "html": "text/html",
    "trace": "application/jsonl",
}
EXPORT_CHUNK = 64 * 1024
"""An export is sent in chunks of at least this many bytes, except for the last chunk."""
_TERMS = re.compile(r'"[^"]*"|\S+')


async def list_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
    limit, offset = _read_number(request, "limit", 20, MOST), _read_number(request, "offset", 0)
    store = handler.get_store(person)

    def page() -> Response:
        page_of_rows = store.list_conversations(limit=limit, offset=offset)
        body = [_format_session(row) for row in page_of_rows.rows]
        return JSONResponse({"sessions": body, "total": page_of_rows.total, "limit": limit, "offset": offset})

    return await handler.run_in_thread(person, page)


async def search_sessions(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Search the sessions of the person who sent the request. Return one message for each matching session: its best
    match."""
    limit = _read_number(request, "limit", 20, MOST)
    query = request.query_params.get("q", "")
    check_query(query, handler.limits)
    query, store = _make_prefixes(query), handler.get_store(person)

    def find() -> Response:
        best: dict[str, dict[str, Any]] = {}
        for hit in store.search_messages(query, limit=limit, relax=False):
            best.setdefault(hit["session_id"], hit)
        return JSONResponse({"results": [format_row(hit) for hit in best.values()]})

    return await handler.run_in_thread(person, find)


async def get_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    _, session = await find_session(handler, request, person)
    return JSONResponse(_format_session(session))


async def list_messages(handler: RequestHandler, request: Request, person: Person) -> Response:
    store, session = await find_session(handler, request, person)

    def read() -> Response:
        rows = store.get_messages(session["id"])
        return JSONResponse({"session_id": session["id"], "messages": [format_row(row) for row in rows]})

    answer = await handler.run_in_thread(person, read)
    # The response stays in memory until the client has read it, so its size is counted. At most the share of one
    # key is counted, so that a session of any size can be read, but only one such session at a time.
    request.scope[HOLD](min(len(answer.body), current_guard().bodies.share))
    return answer


async def export_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Stream the whole conversation in one of the formats of `hermes sessions export`."""
    name = request.query_params.get("format", "jsonl")
    if name not in FORMATS:
        raise Refused(422, f"format must be one of {', '.join(FORMATS)}", param="format")
    store, session = await find_session(handler, request, person)
    plan = await handler.run_in_thread(person, plan_conversation, store, session["id"])
    if not plan.conversations:  # deleted since it was found
        raise session_not_found()
    options = Options(FORMATS[name], left_out=PRIVATE_COLUMNS)
    chunks = _ExportChunks(handler, person, plan, options, request.scope[HOLD])
    await chunks.read_first()
    file = f"{make_file_stem(plan.conversations[0], FORMATS[name].is_titled)}{FORMATS[name].ending}"
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file, safe='')}",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(aiter(chunks), headers=headers, media_type=MEDIA_TYPES[name])


async def get_latest_descendant(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Return the last session of the conversation of the requested session. The two differ if the conversation was
    compressed."""
    store, session = await find_session(handler, request, person)
    live = await handler.run_in_thread(person, store.get_compression_tip, session["id"])
    body = {"requested_session_id": session["id"], "session_id": live, "changed": live != session["id"]}
    return JSONResponse(body)


async def delete_session(handler: RequestHandler, request: Request, person: Person) -> Response:
    """Move the conversation of the requested session to the trash."""
    _, session = await find_session(handler, request, person)
    await handler.conversations.trash(person, session["id"])
    return JSONResponse({"ok": True})


class _ExportChunks:
    """The chunks of an exported conversation. Each is created in a worker thread after the client has read the previous
    one."""

    def __init__(
        self,
        handler: RequestHandler,
        person: Person,
        plan: Plan,
        options: Options,
        hold: Callable[[int], None],
    ) -> None:
        self._handler, self._person, self._hold = handler, person, hold
        self._read_session, self._largest, self._counted = plan.read, 0, 0
        self._chunks = _join_chunks(Export(plan._replace(read=self._read), options).iterate_chunks())
        self._first = b""

    async def read_first(self) -> None:
        """Create the first chunk of the export before the response starts, so that an error can still set the HTTP
        status."""
        self._first = await self._make_chunk()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunk = self._first
        try:
            while chunk:
                yield chunk
                chunk = await self._make_chunk()
        finally:
            with suppress(ValueError):  # a thread is still running the generator; its result is not needed
                self._chunks.close()

    async def _make_chunk(self) -> bytes:
        chunk = await self._handler.run_in_thread(self._person, next, self._chunks, b"")
        # The session that is being sent stays in memory until the client has read it.
        size = min(max(self._largest, len(chunk)), current_guard().bodies.share)
        if size > self._counted:
            self._hold(size - self._counted)
            self._counted = size
        return chunk

    def _read(self, session_id: str) -> Session | None:
        session = self._read_session(session_id)
        if session is not None:
            contents = (message["content"] for message in session["messages"])
            size = sum(len(content if isinstance(content, str) else str(content)) for content in contents)
            self._largest = max(self._largest, size)
        return session


def _join_chunks(chunks: Iterator[bytes]) -> Generator[bytes, None, None]:
    joined: list[bytes] = []
    size = 0
    for chunk in chunks:
        joined.append(chunk)
        size += len(chunk)
        if size >= EXPORT_CHUNK:
            yield b"".join(joined)
            joined, size = [], 0
    if size:
        yield b"".join(joined)


async def find_session(
    handler: RequestHandler, request: Request, person: Person
) -> tuple[ScopedStore, dict[str, Any]]:
    store = handler.get_store(person)
    session = await handler.run_in_thread(person, store.get_session, request.path_params["id"])
    if session is None:
        raise session_not_found()
    return store, session


def _format_session(row: Mapping[str, Any]) -> dict[str, Any]:
    active = row.get("last_active") or row["started_at"]
    is_active = row["ended_at"] is None and clock.is_time(active) and clock.now() - active < ACTIVE_S
    return {**format_row(row), "is_active": is_active}


def format_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the store as JSON values for a client, without binary values and without the private columns of
    the server."""
    return {
        name: value
        for name, value in row.items()
        if name not in PRIVATE_COLUMNS and not isinstance(value, bytes)
    }


def _read_number(request: Request, name: str, default: int, most: int | None = None) -> int:
    body = request.query_params.get(name)
    if body is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", body) or (most is not None and int(body) > most):
        upto = "" if most is None else f", at most {most}"
        raise Refused(422, f"{name} must be a whole number{upto}", param=name)
    return int(body)


def _make_prefixes(query: str) -> str:
    """Return the search query with every word that is not in quotes turned into a prefix search."""
    if query.count('"') % 2:
        query = query.replace('"', " ")
    terms = _TERMS.findall(query)
    return " ".join(
        term if '"' in term or term in OPERATORS or term.endswith("*") else f"{term}*" for term in terms
    )
