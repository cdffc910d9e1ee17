"""Receives Telegram updates by webhook instead of polling. Each request must carry the secret."""

from __future__ import annotations

import asyncio
import json
import math
import re
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from telegram import Bot, Update

from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http.client_address import find_client_address
from hermes.gateway.http.host import error_handlers, serve
from hermes.gateway.http.json_body import check_depth, check_value_count
from hermes.gateway.http.limits import current_guard
from hermes.gateway.platforms.telegram.update_queues import Accept
from hermes.logs import get_logger
from hermes.secrets import redact

LOG = get_logger(__name__)

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"

_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class Webhook(NamedTuple):
    url: str
    secret: str
    host: str
    port: int

    @classmethod
    def from_settings(cls, url: str, secret: str, host: str, port: int) -> Webhook:
        if not _SECRET.fullmatch(secret):
            raise Misconfigured(
                "A Telegram webhook needs webhook_secret: up to 256 letters, digits, underscores and hyphens."
            )
        return cls(url, secret, host, port)

    async def serve(self, bot: Bot, accept: Accept) -> None:
        """Serve the webhook until cancelled. Each received update is passed to `accept`."""
        await serve(self.app(bot, accept), self.host, self.port)

    def app(self, bot: Bot, accept: Accept) -> Starlette:
        async def receive_update(request: Request) -> Response:
            secret = request.headers.get(SECRET_HEADER, "")
            if not compare_digest(secret.encode(), self.secret.encode()):  # the body is not read
                address = find_client_address(request)
                wait = current_guard().auth_failures.add(
                    "telegram", address, "signature", "the secret is wrong"
                )
                if wait:
                    retry = {"Retry-After": str(math.ceil(wait)), "Connection": "close"}
                    raise HTTPException(429, headers=retry)
                raise HTTPException(403)
            try:
                body = await request.body()
                check_value_count(body)
                data = await asyncio.to_thread(json.loads, body)
                check_depth(data)
                update = Update.de_json(data, bot)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ClientDisconnect):
                raise HTTPException(400) from None
            try:
                await accept([update])
            except Exception as error:  # noqa: BLE001 - Telegram must deliver the message again
                LOG.warning(
                    "a Telegram message was not accepted; Telegram will send it again: %s", redact(str(error))
                )
                raise HTTPException(503) from None
            return Response()

        return Starlette(
            routes=[Route(urlsplit(self.url).path or "/", receive_update, methods=["POST"])],
            exception_handlers=error_handlers(),
        )
