"""Idempotency keys: if a client repeats a request with the same `Idempotency-Key`, the request runs only
once, and the client gets the same answer again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.responses import Response

from hermes import clock
from hermes.server.api_errors import bad_request

HEADER = "Idempotency-Key"
LONGEST_KEY = 200
REMEMBERED_S = 10 * clock.MINUTE
MOST_REMEMBERED, MOST_BYTES = 1000, 4 * 1024 * 1024
"""The maximum number and the maximum total size of the answers stored for one person. The oldest answers are
removed first."""


class _KnownRequest(NamedTuple):
    details: object
    at: float
    answering: asyncio.Task[Response]

    @property
    def size(self) -> int:
        task = self.answering
        has_answer = task.done() and not task.cancelled() and task.exception() is None
        return len(task.result().body) if has_answer else 0


class RepeatedRequests:
    """The answers of the last minutes by `Idempotency-Key`, in memory. Errors are not stored, so a request that failed
    runs again when it is repeated."""

    def __init__(self) -> None:
        self._known: dict[str, OrderedDict[str, _KnownRequest]] = {}

    async def answer_once(
        self, person: str, key: str | None, details: object, work: Callable[[], Coroutine[Any, Any, Response]]
    ) -> Response:
        """Run `work` and return its answer. If an earlier request had the same `Idempotency-Key`, `key`, return the
        answer of that request and do not run `work`.

        Raise a 400 error if the key was used before with different `details`, the content of the request. If `key` is
        None, run `work` and do not store the answer.
        """
        if key is None:
            return await work()
        check_key(key)
        requests = self._known.setdefault(person, OrderedDict())
        _forget_oldest(requests)
        while (known := requests.get(key)) is not None:
            if known.details != details:
                raise bad_request(
                    f"this {HEADER} was sent with another request", HEADER, "idempotency_key_reused"
                )
            with suppress(Exception):  # the first request got the error; run the work again
                return await asyncio.shield(known.answering)
            _forget(requests, key, known)
        requests[key] = request = _KnownRequest(details, clock.now(), asyncio.create_task(work()))
        try:
            return await request.answering
        except BaseException:
            _forget(requests, key, request)
            raise


def check_key(key: str | None) -> None:
    """Raise a 400 error if the `Idempotency-Key` that the client sent is invalid."""
    if key is not None and not 0 < len(key) <= LONGEST_KEY:
        raise bad_request(f"{HEADER} must have 1 to {LONGEST_KEY} characters", HEADER)


def _forget(requests: OrderedDict[str, _KnownRequest], key: str, request: _KnownRequest) -> None:
    if requests.get(key) is request:
        del requests[key]


def _forget_oldest(requests: OrderedDict[str, _KnownRequest]) -> None:
    size = sum(request.size for request in requests.values())
    while requests:
        key, oldest = next(iter(requests.items()))
        is_recent = clock.now() - oldest.at < REMEMBERED_S
        if is_recent and len(requests) < MOST_REMEMBERED and size <= MOST_BYTES:
            return
        size -= oldest.size
        del requests[key]
