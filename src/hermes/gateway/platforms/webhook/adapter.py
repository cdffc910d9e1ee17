"""The webhook adapter: signed HTTP requests, answered in the response or by a callback. See docs/webhook.md.

The shared secret grants access. The user that a signed request names is trusted. The response contains the answer
unless the request names a callback URL. If the request no longer waits and there is no callback URL, the answer
cannot be delivered. It is still stored in the conversation.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import httpx2
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes import __version__, clock
from hermes.errors import HermesError
from hermes.gateway.adapter import Capabilities, Misconfigured, Receipt, Receive, Undeliverable
from hermes.gateway.http.address_rules import open_client
from hermes.gateway.http.client_address import find_client_address
from hermes.gateway.http.host import error_handlers, serve
from hermes.gateway.http.limits import current_guard
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.platform_options import read_options
from hermes.gateway.platforms.webhook.callback_urls import Callbacks, post_callback
from hermes.gateway.platforms.webhook.declaration import WebhookOptions
from hermes.gateway.platforms.webhook.signed_request import (
    OURS,
    REMEMBERED_S,
    NotUnderstood,
    Proof,
    SeenRequests,
    WebhookMessage,
    check_signature,
    read_claim,
    read_message,
    sign,
)
from hermes.gateway.settings import PlatformSettings
from hermes.logs import get_logger

log = get_logger(__name__)

SHORTEST_SECRET = 16
LARGEST_BODY = 32 * 1024 * 1024
"""Maximum size of a request body in bytes. The body contains the attachments in base64, which adds a third to
their size."""
TAKEN_IN = ("accepted", "answered")
REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "duplicate": (200, {"duplicate": True}),
    "unauthorised": (403, {"error": "this user is not authorised"}),
    "limited": (429, {"error": "too many messages; try again in a minute"}),
    "ignored": (200, {"ignored": True}),
}
LOST: tuple[int, dict[str, Any]] = (503, {"error": "the message was not stored; try again"})
AGAIN = {429: {"Retry-After": "60"}, 503: {"Retry-After": "5"}}


class WaitingRequest(NamedTuple):
    """A request that waits for the answer to its message."""

    source: Source
    reply: asyncio.Future[str]


class Webhook:
    name = "webhook"
    # A repeated callback has the same `Idempotency-Key`, so that its receiver can ignore it (as documented). An
    # answer in a response cannot arrive twice, because the request ends with its response.
    capabilities = Capabilities(max_length=1_000_000, edits=False, idempotent=True, allows_many_replies=False)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        options = read_options(WebhookOptions, settings)
        secret = options.secret or ""
        if len(secret) < SHORTEST_SECRET:
            what = f"is shorter than {SHORTEST_SECRET} characters" if secret else "is missing"
            raise Misconfigured(f"the secret of the webhook {what}: set WEBHOOK_SECRET")
        self._secret = secret.encode()
        self._host = options.host
        self._wanted_port = options.port
        self._wait_s = options.wait_seconds
        self._callbacks = Callbacks(folder / "callbacks", options.callback_hosts)
        self._seen = SeenRequests(folder / "seen.jsonl")
        self._waiting: list[WaitingRequest] = []
        self._handing_in: WeakValueDictionary[Source, asyncio.Lock] = WeakValueDictionary()
        self._client: httpx2.AsyncClient | None = None
        self._draining = False
        self.port: int | None = None
        """The port while the adapter is listening, otherwise None."""

    def measure(self, text: str) -> int:
        return len(text)

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        def listening(port: int) -> None:
            self.port = port
            ready()

        async def answer(request: Request) -> Response:
            return await self._answer(request, receive)

        await asyncio.to_thread(self._callbacks.tidy)
        await asyncio.to_thread(self._seen.load)
        app = Starlette(
            routes=[Route(path, answer, methods=["POST"]) for path in ("/webhook", "/webhook/{route}")],
            exception_handlers=error_handlers(),
        )
        try:
            await serve(app, self._host, self._wanted_port, ready=listening, largest_body=LARGEST_BODY)
        finally:
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
        """Deliver a text to the HTTP request that waits for it. This is the request with the message that the text
        answers. If that request no longer waits, the text is sent to the callback URL of the message. A text that
        answers no message goes to the request that has waited longest in the chat. Raise `Undeliverable` if there
        is neither a waiting request nor a callback URL."""
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent
        message_id = reply_to or to.message_id
        waiting = next(
            (request for request in self._find_waiting(to) if request.source.message_id == message_id),
            None,
        )
        if waiting is None:
            url = await asyncio.to_thread(self._callbacks.find, to, message_id) if message_id else None
            if url is not None:
                await self._call_back(url, to, message_id, text, idempotency_key, last=reply_to is not None)
                return None
            # A request that waits for another answer must not receive this one.
            waiting = next(iter(self._find_waiting(to)), None) if message_id is None else None
        if waiting is None:
            raise Undeliverable("no request waits for the message and it has no callback URL")
        waiting.reply.set_result(text)
        return None

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        raise Undeliverable("a webhook response cannot be edited")

    async def typing(self, to: Source) -> None:
        """Do nothing: a webhook has no typing indicator."""

    async def open_thread(self, to: Source, name: str) -> str | None:
        return None

    async def drain(self) -> None:
        self._draining = True
        while self._waiting:
            await asyncio.wait([request.reply for request in self._waiting])
            await asyncio.sleep(0)  # let the answered requests end

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _answer(self, request: Request, receive: Receive) -> Response:
        # Do not read the body if the signature is malformed.
        if read_claim(request.headers, clock.now()) is None:
            return _refuse_unauthorised(request)
        if self._draining:
            return _json_response(*LOST)
        try:
            body = await _read_body(request)
            understood = await asyncio.to_thread(self._check_request, request, body)
        except ClientDisconnect:
            return Response(status_code=400)
        except NotUnderstood as problem:
            return _json_response(400, {"error": str(problem)})
        if understood is None:
            return _refuse_unauthorised(request)
        proof, message = understood
        if message.callback_url is not None and not self._callbacks.allows(message.callback_url):
            return _json_response(400, {"error": "callback_url: the host is not listed in callback_hosts"})
        try:
            source, remembered = message.event.source, REMEMBERED_S[proof.signature]
            chat = f"{source.chat_type}:{source.chat_id}"  # depends on the path, which is not signed
            if not await asyncio.to_thread(self._seen.begin, proof.mark, chat, remembered):
                return _json_response(*REFUSED["duplicate"])
            return await self._hand_in(request, message, receive, proof)
        except (HermesError, OSError) as problem:
            log.warning("a message was not accepted: %s", problem)
            return _json_response(*LOST)

    def _check_request(self, request: Request, body: bytes) -> tuple[Proof, WebhookMessage] | None:
        """Check the signature of a request and parse its message. Return the proof of the signature and the
        message, or None if the signature is invalid."""
        now = clock.now()
        proof = check_signature(self._secret, request.headers, body, now)
        route = request.path_params.get("route")
        return None if proof is None else (proof, read_message(body, proof, request.headers, route, now))

    async def _hand_in(
        self, request: Request, message: WebhookMessage, receive: Receive, proof: Proof
    ) -> Response:
        async def hand_in(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
            receipt = await receive(event, offered)
            if receipt.state in (*TAKEN_IN, "duplicate"):
                await asyncio.to_thread(self._seen.accept, proof.mark)
            return receipt

        if message.callback_url is None:
            return await self._accept(request, message, hand_in)
        # Process copies of the same message one at a time. Otherwise a duplicate could remove the callback
        # URL of the other copy.
        async with self._handing_in.setdefault(message.event.source, asyncio.Lock()):
            return await self._accept(request, message, hand_in)

    async def _accept(self, request: Request, message: WebhookMessage, receive: Receive) -> Response:
        source, url = message.event.source, message.callback_url
        is_new = url is not None and await asyncio.to_thread(self._callbacks.keep, source, url)
        reply = None
        if message.wait and url is None:
            # Register before the gateway gets the message, because the answer may come before the receipt.
            with self._register_waiting(source) as waiting:
                receipt = await receive(message.event, message.offered)
                if receipt.state in TAKEN_IN:
                    reply = await self._wait_for_reply(request, waiting)
        else:
            receipt = await receive(message.event, message.offered)
        if receipt.state not in TAKEN_IN:
            if is_new:  # keep a URL that an earlier request stored
                await asyncio.to_thread(self._callbacks.drop, source, source.message_id)
            return _json_response(*REFUSED.get(receipt.state, LOST))
        ids = {"session_key": receipt.session_key, "message_id": source.message_id}
        if reply is None:
            return _json_response(202, {"accepted": True, **ids})
        return _json_response(200, {"reply": reply, **ids})

    @contextmanager
    def _register_waiting(self, source: Source) -> Iterator[WaitingRequest]:
        waiting = WaitingRequest(source, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            yield waiting
        finally:
            self._waiting.remove(waiting)

    def _find_waiting(self, to: Source) -> list[WaitingRequest]:
        """Return the requests of the chat in `to` that wait for an answer. If `to` names a user, return only the
        requests of this user, because a text for one user of a group must not reach another user."""
        return [
            request
            for request in self._waiting
            if not request.reply.done()
            and (request.source.chat_id, request.source.thread_id) == (to.chat_id, to.thread_id)
            and to.user_id in (None, request.source.user_id)
        ]

    async def _wait_for_reply(self, request: Request, waiting: WaitingRequest) -> str | None:
        """Wait for the answer until the timeout, or until the client disconnects. Return None if no answer came."""
        # The body was read, so the next message is the disconnect.
        disconnected = asyncio.ensure_future(request.receive())
        either: list[asyncio.Future[Any]] = [waiting.reply, disconnected]
        # On shutdown, the response can still report that the message was accepted.
        with suppress(asyncio.CancelledError):
            await asyncio.wait(either, timeout=self._wait_s, return_when=asyncio.FIRST_COMPLETED)
        disconnected.cancel()
        return waiting.reply.result() if waiting.reply.done() else None

    async def _call_back(
        self, url: str, to: Source, message_id: str | None, text: str, idempotency_key: str, *, last: bool
    ) -> None:
        if not self._callbacks.allows(url):
            raise Undeliverable("the host of the callback URL is no longer allowed")
        data = {"reply": text, "message_id": message_id, "chat": to.chat_id, "thread": to.thread_id}
        body = json.dumps(data, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"hermes-sessions/{__version__}",
            "Idempotency-Key": idempotency_key,
            OURS: sign(self._secret, body, clock.now()),
        }
        if self._client is None:
            self._client = open_client()
        await post_callback(self._client, url, body, headers)
        if last:
            await asyncio.to_thread(self._callbacks.drop, to, message_id)


def _json_response(status: int, data: dict[str, Any]) -> Response:
    return JSONResponse(data, status, headers=AGAIN.get(status))


async def _read_body(request: Request) -> bytes:
    """Read the body of a request piece by piece. `request.body()` would keep the bytes in memory until the response
    is sent."""
    return b"".join([chunk async for chunk in request.stream()])


def _refuse_unauthorised(request: Request) -> Response:
    """Return the response for a request without a valid signature. It gives no reason. After too many such requests
    from an address, its status is 429 instead of 401."""
    wait = current_guard().auth_failures.add(
        "webhook", find_client_address(request), "signature", "it is not valid"
    )
    if wait:
        return JSONResponse(
            {"error": "too many requests without a valid signature"},
            429,
            headers={"Retry-After": str(math.ceil(wait)), "Connection": "close"},
        )
    return _json_response(401, {"error": "unauthorised"})
