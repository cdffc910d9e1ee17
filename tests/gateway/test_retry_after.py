"""The `Retry-After` header contains seconds, a date, or an invalid value."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from hermes import clock
from hermes.gateway.http.retry_after import parse_retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.2", 1.0),
        ("-5", 1.0),
        ("999999", 3600.0),
        ("", None),
        (None, None),
        ("soon", None),
        ("nan", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0),
    ],
)
def test_how_long_to_wait(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header) == seconds


def test_a_date_is_a_time_to_wait() -> None:
    wait = parse_retry_after(formatdate(clock.now() + 120, usegmt=True))
    assert wait is not None
    assert 110 < wait <= 120
