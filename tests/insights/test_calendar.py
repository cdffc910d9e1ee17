"""Days, hours and streaks follow the local calendar, including days on which clocks change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.insights.calendar import DAYS, Calendar, find_longest_streak
from hermes.store.reports.activity import SessionActivity
from hermes.store.reports.usage import UsageLine

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, in_zone: Callable[[str], None]) -> ZoneInfo:
    in_zone(request.param)
    return ZoneInfo(request.param)


def begun(at: float) -> SessionActivity:
    return SessionActivity("s", "s", "cli", None, None, at, None, 2, 0, UsageLine(1, 3, 4), ())


def calendar(*times: float) -> Calendar:
    made = Calendar()
    for at in times:
        made.add(begun(at))
    return made


def test_days_and_hours_are_local(zone: ZoneInfo) -> None:
    # Every quarter of an hour around both clock changes of 2025, in both hemispheres.
    starts = (
        *(datetime(2025, month, day, tzinfo=UTC) for month, day in ((3, 9), (3, 30), (4, 5), (9, 27))),
        *(datetime(2025, month, day, tzinfo=UTC) for month, day in ((10, 4), (10, 26), (11, 2))),
    )
    moments = [start + timedelta(minutes=15 * step) for start in starts for step in range(4 * 40)]
    local = [moment.astimezone(zone) for moment in moments]
    made = calendar(*(moment.timestamp() for moment in moments))
    told = made.activity()
    by_hour, by_day = Counter(at.hour for at in local), Counter(at.strftime("%a") for at in local)
    assert {one["hour"]: one["count"] for one in told["by_hour"]} == {
        hour: by_hour[hour] for hour in range(24)
    }
    assert {one["day"]: one["count"] for one in told["by_day"]} == {day: by_day[day] for day in DAYS}
    dates = Counter(at.date().isoformat() for at in local)
    assert {one["date"]: one["sessions"] for one in made.daily()} == dates
    assert told["active_days"] == len(dates)
    assert told["busiest_hour"]["count"] == max(by_hour.values())


def test_a_streak_continues_over_a_day_of_23_or_25_hours(zone: ZoneInfo) -> None:
    noons = [datetime(2025, 3, 1, 12, tzinfo=zone) + timedelta(days=day) for day in range(250)]
    told = calendar(*(noon.timestamp() for noon in noons)).activity()
    assert (told["max_streak"], told["active_days"]) == (250, 250)


@given(st.sets(st.integers(1, 60)))
def test_the_longest_streak_is_the_longest_run_of_days(ordinals: set[int]) -> None:
    runs = dict.fromkeys(ordinals, 0)
    for start in ordinals:
        while start + runs[start] in ordinals:
            runs[start] += 1
    assert find_longest_streak([date.fromordinal(day) for day in ordinals]) == max(runs.values(), default=0)


def test_a_time_outside_the_calendar_is_on_no_day() -> None:
    told = calendar(1e18, -1e18).activity()
    assert (told["active_days"], told["max_streak"]) == (0, 0)
    assert told["busiest_day"] is told["busiest_hour"] is None


def test_a_day_has_the_totals_of_its_sessions() -> None:
    (day,) = calendar(1_750_000_000.0, 1_750_000_001.0).daily()
    assert (day["sessions"], day["messages"], day["total_tokens"]) == (2, 4, 14)
    assert (day["cost"], day["cost_status"]) == (0.0, "none")
