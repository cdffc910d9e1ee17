"""The limits of one key: requests per minute, concurrent requests, messages per request and words per search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hermes import clock
from hermes.gateway.ops.key_file import NO_LIMITS, KeyLimits
from hermes.gateway.rate_limit import TokenBuckets
from hermes.server.api_errors import Refused, bad_request
from hermes.server.declaration import ApiServerOptions
from hermes.terms import index_text

LONGEST_QUERY = 2000
"""The maximum length of a search query, in characters."""
OPERATORS = ("AND", "OR", "NOT")


_DEFAULTS = ApiServerOptions()


class Limits(NamedTuple):
    """The limits for requests to the API server. Each field is set by the option of the same name."""

    requests_per_minute: int = _DEFAULTS.requests_per_minute
    concurrent_requests: int = _DEFAULTS.concurrent_requests
    concurrent_turns: int = _DEFAULTS.concurrent_turns
    most_messages: int = _DEFAULTS.most_messages
    search_words: int = _DEFAULTS.search_words

    @classmethod
    def from_options(cls, options: ApiServerOptions) -> Limits:
        return cls(*(getattr(options, name) for name in cls._fields))


class Admission:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buckets: dict[int, TokenBuckets] = {}
        """By number of requests per minute: the token buckets of all keys with this limit."""
        self._open: Counter[str] = Counter()

    @contextmanager
    def admit(self, key: str, own: KeyLimits = NO_LIMITS) -> Iterator[None]:
        """Count a request against the limits of the API key `key` until the context manager is left. Raise a 429 error
        if the key exceeds a limit. `own` are the limits that were set for this key alone."""
        at_once = own.concurrent_requests or self._limits.concurrent_requests
        if self._open[key] >= at_once:
            raise _refuse_too_many(f"this key has {at_once} requests open; wait for one", 1)
        most = own.requests_per_minute or self._limits.requests_per_minute
        if not self._buckets.setdefault(most, TokenBuckets(most)).take(key, clock.now())[0]:
            raise _refuse_too_many(
                f"this key sent more than {most} requests in a minute", math.ceil(60 / most)
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def check_query(query: str, limits: Limits, param: str = "q") -> None:
    """Raise a 400 error if a search query is too long or has too many terms.

    `a-b-c` counts as three terms. Several Chinese characters without a space between them count as several terms.
    """
    if len(query) > LONGEST_QUERY:
        raise bad_request(f"{param} is longer than {LONGEST_QUERY:,} characters", param, "query_too_long")
    words = [word for word in query.split() if word not in OPERATORS]
    if max(len(words), len(index_text(" ".join(words))[0].split())) > limits.search_words:
        raise bad_request(f"{param} has more than {limits.search_words} words", param, "query_too_long")


def _refuse_too_many(message: str, seconds: int) -> Refused:
    return Refused(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(seconds)})
