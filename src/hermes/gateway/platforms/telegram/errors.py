"""Errors of Telegram's library, translated to the errors of the adapter seam."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)

from hermes.gateway.adapter import (
    AdapterError,
    DeliveryUnknown,
    Misconfigured,
    RateLimited,
    Undeliverable,
    Unreachable,
)
from hermes.secrets import redact

_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    RuntimeError,  # the client is closed
)
_TOO_MANY = "too many requests"


@contextmanager
def translate_errors(doing: str, *, repeatable: bool = False) -> Iterator[None]:
    """Turn what goes wrong in here into an `AdapterError`.

    `repeatable`: doing it twice is the same as doing it once, so that a doubt whether it was done is none.
    """
    try:
        yield
    except TelegramError as error:
        raise _translate_error(error, doing, repeatable) from error


def _translate_error(error: TelegramError, doing: str, repeatable: bool) -> AdapterError:
    line = redact(f"Telegram could not {doing}: {error.message}")
    match error:
        case RetryAfter():
            return RateLimited(line, _parse_seconds(error.retry_after))
        case InvalidToken():
            return Misconfigured(redact(f"Telegram does not know this bot token: {error.message}"))
        case Conflict():
            return Unreachable(f"another program receives the messages of this Telegram bot: {error.message}")
        case Forbidden() | BadRequest() | ChatMigrated():
            return Undeliverable(line)
        case NetworkError() if error.message.lower().startswith(_TOO_MANY):  # with no time given
            return RateLimited(line, 1.0)
        case _ if repeatable or isinstance(error.__cause__, _NEVER_SENT):
            return Unreachable(line)
        case _:
            return DeliveryUnknown(line)


def _parse_seconds(wait: int | timedelta) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
