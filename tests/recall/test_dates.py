"""A date in a query means a range of local time, even on days of 23 or 25 hours. Dates are accepted in the
forms that people write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.recall.query.dates import Span, read_date

BERLIN = ZoneInfo("Europe/Berlin")
HOUR, DAY = 3600.0, 86400.0


def at(*fields: int, zone: ZoneInfo = BERLIN) -> float:
    return datetime(*fields, tzinfo=zone).timestamp()  # type: ignore[arg-type, misc]


NOW = at(2026, 5, 13, 15, 30)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("today", (2026, 5, 13), (2026, 5, 14)),
        ("yesterday", (2026, 5, 12), (2026, 5, 13)),
        ("Yesterday", (2026, 5, 12), (2026, 5, 13)),
        ("昨天", (2026, 5, 12), (2026, 5, 13)),
        ("wednesday", (2026, 5, 13), (2026, 5, 14)),
        ("last wednesday", (2026, 5, 6), (2026, 5, 7)),
        ("monday", (2026, 5, 11), (2026, 5, 12)),
        ("Fri", (2026, 5, 8), (2026, 5, 9)),
        ("3 days ago", (2026, 5, 10), (2026, 5, 11)),
        ("this week", (2026, 5, 11), (2026, 5, 18)),
        ("last week", (2026, 5, 4), (2026, 5, 11)),
        ("2 weeks ago", (2026, 4, 27), (2026, 5, 4)),
        ("last  month", (2026, 4, 1), (2026, 5, 1)),
        ("5 months ago", (2025, 12, 1), (2026, 1, 1)),
        ("last year", (2025, 1, 1), (2026, 1, 1)),
        ("2026", (2026, 1, 1), (2027, 1, 1)),
        ("2026-05", (2026, 5, 1), (2026, 6, 1)),
        ("2025-12", (2025, 12, 1), (2026, 1, 1)),
        ("2026-05-02", (2026, 5, 2), (2026, 5, 3)),
        ("2026/5/2", (2026, 5, 2), (2026, 5, 3)),
        ("2026-12-31", (2026, 12, 31), (2027, 1, 1)),
        ("May", (2026, 5, 1), (2026, 6, 1)),
        ("june", (2025, 6, 1), (2025, 7, 1)),
        ("May 2", (2026, 5, 2), (2026, 5, 3)),
        ("2 May", (2026, 5, 2), (2026, 5, 3)),
        ("May 2nd", (2026, 5, 2), (2026, 5, 3)),
        ("Dec. 24", (2025, 12, 24), (2025, 12, 25)),
        ("Sept 1", (2025, 9, 1), (2025, 9, 2)),
        ("2 May 2025", (2025, 5, 2), (2025, 5, 3)),
        ("May 2, 2025", (2025, 5, 2), (2025, 5, 3)),
        ("May 2025", (2025, 5, 1), (2025, 6, 1)),
        ("Feb 29", (2024, 2, 29), (2024, 3, 1)),
        ("5月2日", (2026, 5, 2), (2026, 5, 3)),
        ("12月", (2025, 12, 1), (2026, 1, 1)),
        ("2025年5月2日", (2025, 5, 2), (2025, 5, 3)),
        ("5월 2일", (2026, 5, 2), (2026, 5, 3)),
        ("2026-05-02T14:30", (2026, 5, 2, 14, 30), (2026, 5, 2, 14, 31)),
        ("2026-05-02 14:30:05", (2026, 5, 2, 14, 30, 5), (2026, 5, 2, 14, 30, 6)),
        # Clocks go forward on 29 March 2026 and back on 25 October 2025.
        ("2026-03-29", (2026, 3, 29), (2026, 3, 30)),
        ("2025-10-25", (2025, 10, 25), (2025, 10, 26)),
    ],
)
def test_dates_as_people_write_them(text: str, start: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert read_date(text, NOW, BERLIN) == Span(at(*start), at(*end))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("12h", NOW - 12 * HOUR),
        ("30min", NOW - 1800),
        ("2 hours ago", NOW - 2 * HOUR),
        ("3d", at(2026, 5, 10, 15, 30)),
        ("2w", at(2026, 4, 29, 15, 30)),
        ("6mo", at(2025, 11, 13, 15, 30)),
        ("1y", at(2025, 5, 13, 15, 30)),
        ("7w", at(2026, 3, 25, 15, 30)),  # before the change of clocks, but at the same local time
    ],
)
def test_a_length_of_time_ends_now(text: str, start: float) -> None:
    assert read_date(text, NOW, BERLIN) == Span(start, NOW)


def test_an_hour_is_an_hour_and_a_day_is_a_day_when_clocks_change() -> None:
    after_change = at(2026, 3, 29, 12)
    assert read_date("24h", after_change, BERLIN) == Span(after_change - DAY, after_change)
    assert read_date("1d", after_change, BERLIN) == Span(at(2026, 3, 28, 12), after_change)
    assert after_change - at(2026, 3, 28, 12) == 23 * HOUR


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-03-28", 24), ("2025-10-26", 25)])
def test_a_day_has_as_many_hours_as_it_had(day: str, hours: int) -> None:
    span = read_date(day, NOW, BERLIN)
    assert span is not None
    assert span.end - span.start == hours * HOUR


def test_an_offset_names_the_moment_itself() -> None:
    utc = at(2026, 5, 2, 14, 30, zone=ZoneInfo("UTC"))
    for text in ("2026-05-02T14:30Z", "2026-05-02T16:30+02:00", "2026-05-02T14:30z"):
        assert read_date(text, NOW, BERLIN) == Span(utc, utc + 60)


@pytest.fixture
def in_new_york() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    "text", ["today", "2w", "2026-03-08", "2025-11-02", "last month", "monday", "2026-05-02T14:30", "May 2"]
)
def test_a_time_without_a_zone_is_local(text: str) -> None:
    assert read_date(text, NOW) == read_date(text, NOW, ZoneInfo("America/New_York"))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "foo",
            "2026-13",
            "2026-02-30",
            "May 32",
            "Feb 30",
            "40 May",
            "v1.2.3",
            "2m",
            "99999w",
            "0000",
        ),
        *("call", "13月1日", "2026-05-02T25:00", "0000-01-01", "last", "ago", "9999-12-31", "May 2 2025 3"),
    ],
)
def test_text_that_is_not_a_date(text: str) -> None:
    assert read_date(text, NOW, BERLIN) is None


PIECES = st.sampled_from(
    [
        "2",
        "w",
        "May",
        "last",
        "week",
        "-",
        "/",
        "2026",
        "月",
        "日",
        " ",
        "T",
        ":",
        "ago",
        "days",
        "0",
        "31",
        "+",
        "z",
    ]
)


@given(st.text() | st.lists(PIECES, max_size=8).map("".join), st.floats(0, 4e9))
@example("9999y", 0.0)
@example("٢٠٢٦-٠٥", 1e9)
def test_no_text_raises_and_every_range_goes_forward(text: str, now: float) -> None:
    for zone in (None, BERLIN):
        span = read_date(text, now, zone)
        assert span is None or span.start <= span.end
