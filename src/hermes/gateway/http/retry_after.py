"""Parses the `Retry-After` header of a response: a number of seconds, or a date."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from math import isfinite

from hermes import clock

SHORTEST_S, LONGEST_S = 1.0, 3600.0


def parse_retry_after(text: str | None) -> float | None:
    """Return how many seconds to wait according to `text`, the value of a `Retry-After` header. The result is at
    least one second and at most one hour. Return None if the header is missing or invalid."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        # A date without a time zone is in UTC.
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - clock.now()
    return min(max(seconds, SHORTEST_S), LONGEST_S) if isfinite(seconds) else None
