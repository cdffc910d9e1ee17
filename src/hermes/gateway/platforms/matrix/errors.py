"""Translates homeserver errors to adapter errors.

Every send carries a transaction id, so that a repeated send is not shown twice. Therefore a send with an unknown result
can be repeated. It raises `Unreachable`, like a send that certainly failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiohttp import ClientError
from nio import ErrorResponse, LocalProtocolError

from hermes.gateway.adapter import AdapterError, Misconfigured, RateLimited, Undeliverable, Unreachable
from hermes.gateway.http.retry_after import parse_retry_after

_PATIENCE = 60.0
"""Default timeout of a request, in seconds."""
_LIMITED_FOR = 5.0
"""Seconds to wait after a rate limit if the server does not say how long."""


class SignedOut(Misconfigured):
    """The access token is invalid or has expired."""

    def __init__(self, message: str, soft: bool) -> None:
        super().__init__(message)
        self.soft = soft
        """Whether the server still knows the device. If so, the device can sign in again and keep its keys."""


async def call_server(call: Awaitable[Any], doing: str, *, within: float = _PATIENCE) -> Any:
    """Await `call`, a request to the homeserver, and return the response. Raise an `AdapterError` on any failure.
    `doing` describes the request in the error message. `within` is the timeout in seconds."""
    try:
        async with asyncio.timeout(within):
            answer = await call
    except AdapterError:
        raise
    except (ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"matrix: {doing}: {str(error) or type(error).__name__}") from error
    except LocalProtocolError as error:
        # nio forgets a token that the server called expired, and then sends no request.
        if "logged in" in str(error):
            raise SignedOut(f"matrix: {doing}: {error}", soft=True) from error
        raise Undeliverable(f"matrix: {doing}: {error}") from error
    except Exception as error:  # nio raises many kinds of errors for invalid responses
        raise Unreachable(f"matrix: {doing}: {type(error).__name__}: {error}") from error
    if isinstance(answer, ErrorResponse):
        raise translate_refusal(answer, doing)
    return answer


def translate_refusal(answer: ErrorResponse, doing: str) -> AdapterError:
    response = answer.transport_response
    status = getattr(response, "status", None) or 0
    wait = (answer.retry_after_ms or 0) / 1000 or (
        parse_retry_after(response.headers.get("Retry-After")) if response is not None else None
    )
    description = f"matrix: {doing}: {answer.status_code or status} {answer.message}"
    if answer.status_code == "M_LIMIT_EXCEEDED" or status == 429:
        return RateLimited(description, wait or _LIMITED_FOR)
    if answer.status_code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
        return SignedOut(description, soft=bool(answer.soft_logout))
    if answer.status_code == "M_USER_DEACTIVATED":
        return Misconfigured(description)
    if 400 <= status < 500:
        return Undeliverable(description)
    return RateLimited(description, wait) if wait else Unreachable(description)
