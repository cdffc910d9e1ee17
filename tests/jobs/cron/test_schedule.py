"""When a job is due, also on the days when the clock is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.jobs.cron.schedule import (
    BadSchedule,
    DayInterval,
    find_latest,
    list_between,
    list_next,
    read_schedule,
)

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE, DAY = 60, 86_400


def at(text: str, zone: tzinfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def shown(times: list[int], zone: tzinfo = BERLIN) -> list[str]:
    return [datetime.fromtimestamp(time, zone).strftime("%m-%d %H:%M %z") for time in times]


def next_times(schedule: str, after: str, count: int = 3, zone: tzinfo = BERLIN) -> list[str]:
    return shown(list_next(read_schedule(schedule, zone, 0), at(after, zone), count), zone)


# The clock is changed


def test_a_fixed_time_that_occurs_twice_counts_once() -> None:
    """On 25 October 2026, 02:30 occurs at +02:00 and again at +01:00."""
    assert next_times("30 2 * * *", "2026-10-24 12:00") == [
        "10-25 02:30 +0200",
        "10-26 02:30 +0100",
        "10-27 02:30 +0100",
    ]


def test_after_the_first_of_two_equal_hours_the_time_does_not_come_again() -> None:
    second_half_past_two = int(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp())  # 02:10 at +01:00
    schedule = read_schedule("30 2 * * *", BERLIN, 0)
    assert shown([schedule.next_after(second_half_past_two) or 0]) == ["10-26 02:30 +0100"]


def test_a_fixed_time_that_is_skipped_moves_to_the_end_of_the_gap() -> None:
    """On 29 March 2026 the clock goes from 02:00 to 03:00."""
    assert next_times("30 2 * * *", "2026-03-28 12:00") == [
        "03-29 03:00 +0200",
        "03-30 02:30 +0200",
        "03-31 02:30 +0200",
    ]


def test_several_skipped_times_become_one() -> None:
    assert next_times("10,20,50 2 * * *", "2026-03-28 12:00", 2) == ["03-29 03:00 +0200", "03-30 02:10 +0200"]


def test_a_time_of_every_hour_runs_in_both_of_two_equal_hours() -> None:
    assert next_times("30 * * * *", "2026-10-25 01:45", 3) == [
        "10-25 02:30 +0200",
        "10-25 02:30 +0100",
        "10-25 03:30 +0100",
    ]


def test_a_time_of_every_hour_is_left_out_with_a_skipped_hour() -> None:
    assert next_times("30 * * * *", "2026-03-29 00:45", 2) == ["03-29 01:30 +0100", "03-29 03:30 +0200"]


def test_an_interval_of_hours_is_exact_and_one_of_days_keeps_the_time_of_day() -> None:
    anchor = at("2026-03-28 09:00")
    assert shown(list_next(read_schedule("every 24h", BERLIN, anchor), anchor, 2)) == [
        "03-29 10:00 +0200",
        "03-30 10:00 +0200",
    ]
    assert shown(list_next(read_schedule("every 1d", BERLIN, anchor), anchor, 2)) == [
        "03-29 09:00 +0200",
        "03-30 09:00 +0200",
    ]


def test_a_zone_that_skips_a_whole_day_runs_the_day_at_its_end() -> None:
    """Samoa crossed the date line: 30 December 2011 does not exist there."""
    apia = ZoneInfo("Pacific/Apia")
    assert next_times("0 9 30 12 *", "2011-12-29 12:00", 1, apia) == ["12-31 00:00 +1400"]


# Forms


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 9 * *", "a cron expression has 5 fields, not 4"),
        ("0 0 9 * * *", "a cron expression has 5 fields, not 6"),
        ("60 9 * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 9 31 2 *", "bad day-of-month"),
        ("0 9 * * mo", "bad day-of-week"),
        ("every 5s", "at least 10 seconds"),
        ("every 400d", "at most 366 days"),
        ("every day", "not an interval"),
        ("soon", "no schedule"),
    ],
)
def test_a_text_that_is_no_schedule_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(BadSchedule, match=problem) as caught:
        read_schedule(text, BERLIN, 0)
    assert "\n" not in str(caught.value)


def test_one_time_comes_once() -> None:
    schedule = read_schedule("2026-12-01T09:00:00+01:00", BERLIN, 0)
    assert shown(list_next(schedule, at("2026-11-18 12:00"), 5)) == ["12-01 09:00 +0100"]
    assert list_next(schedule, at("2026-12-01 09:00"), 5) == []


def test_the_latest_time_is_found_after_a_long_pause_without_counting_every_minute() -> None:
    schedule = read_schedule("* * * * *", BERLIN, 0)
    assert find_latest(schedule, 0.0, at("2026-11-18 12:00") + 30) == at("2026-11-18 12:00")
    rare = read_schedule("0 0 29 2 *", BERLIN, 0)
    assert shown([find_latest(rare, at("2020-01-01 00:00"), at("2027-11-18 12:00")) or 0]) == [
        "02-29 00:00 +0100"
    ]
    assert find_latest(rare, at("2025-01-01 00:00"), at("2027-11-18 12:00")) is None


# Properties. The expected times come from a walk over every minute, which shares no code with the schedule.


class Field(NamedTuple):
    text: str
    values: frozenset[int]

    @property
    def is_wild(self) -> bool:
        return self.text.startswith("*")


def fields(least: int, most: int) -> st.SearchStrategy[Field]:
    every = range(least, most + 1)
    number = st.integers(least, most)
    return st.one_of(
        st.just(Field("*", frozenset(every))),
        st.integers(2, max(2, (most - least) // 2)).map(lambda n: Field(f"*/{n}", frozenset(every[::n]))),
        st.lists(number, min_size=1, max_size=3).map(
            lambda listed: Field(",".join(map(str, listed)), frozenset(listed))
        ),
        st.tuples(number, number).map(
            lambda ends: Field(f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
        ),
    )


# A zone, and a moment near which its clock is changed, by an hour, half an hour or a day.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Asia/Beirut", "2026-03-29"),
    ("Asia/Beirut", "2026-10-25"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "2026-06-01"),
]
SPAN_DAYS = 3


def walk(first: int, last: int, zone: tzinfo) -> dict[int, datetime]:
    """Return the wall time of every minute."""
    return {
        time: datetime.fromtimestamp(time, zone).replace(tzinfo=None, fold=0)
        for time in range(first - first % MINUTE, last + MINUTE, MINUTE)
    }


def is_match(wall: datetime, minute: Field, hour: Field, day: Field, month: Field, weekday: Field) -> bool:
    if wall.minute not in minute.values or wall.hour not in hour.values or wall.month not in month.values:
        return False
    on_day, on_weekday = wall.day in day.values, wall.isoweekday() % 7 in weekday.values
    both = day.is_wild or weekday.is_wild
    return on_day and on_weekday if both else on_day or on_weekday


def expect(cron: tuple[Field, ...], first: int, last: int, zone: tzinfo) -> list[int]:
    """Return the due times in (first, last], from the rules in words."""
    minute, hour = cron[0], cron[1]
    walls = walk(first - 2 * DAY, last + 2 * DAY, zone)
    if minute.is_wild or hour.is_wild:  # every matching minute that exists
        due = {time for time, wall in walls.items() if is_match(wall, *cron)}
    else:  # each wall time once: at its first occurrence, or at the end of the gap
        due = set()
        firsts: dict[datetime, int] = {}
        for time, wall in walls.items():
            firsts.setdefault(wall, time)
        wall, end = min(firsts), max(firsts)
        while wall < end:
            if is_match(wall, *cron):
                due.add(firsts.get(wall) or min(time for later, time in firsts.items() if later > wall))
            wall += timedelta(minutes=1)
    return sorted(time for time in due if first < time <= last)


def has_days(cron: tuple[Field, ...]) -> bool:
    """Return whether any day of eight years matches."""
    first = datetime(2020, 1, 1, min(cron[1].values), min(cron[0].values))  # noqa: DTZ001  a wall time
    return any(is_match(first + timedelta(days=number), *cron) for number in range(8 * 366))


@given(
    change=st.sampled_from(CHANGES),
    offset=st.integers(-DAY, DAY),
    cron=st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 6)),
)
def test_due_times_are_those_of_the_rules_and_none_is_skipped(
    change: tuple[str, str], offset: int, cron: tuple[Field, ...]
) -> None:
    zone = ZoneInfo(change[0])
    first = int(at(f"{change[1]} 00:00", zone)) - DAY + offset
    last = first + SPAN_DAYS * DAY
    try:
        schedule = read_schedule(" ".join(field.text for field in cron), zone, 0)
    except BadSchedule:
        assert not has_days(cron)
        return
    times = list_between(schedule, first, last, 10_000)
    assert times == expect(cron, first, last, zone)
    assert all(earlier < later for earlier, later in pairwise(times))


@given(
    change=st.sampled_from(CHANGES),
    cron=st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 6)),
    count=st.integers(1, 20),
)
def test_times_far_ahead_are_strictly_increasing_and_found_again_from_any_point_between(
    change: tuple[str, str], cron: tuple[Field, ...], count: int
) -> None:
    zone = ZoneInfo(change[0])
    start = at(f"{change[1]} 00:00", zone) - 7 * DAY
    try:
        schedule = read_schedule(" ".join(field.text for field in cron), zone, 0)
    except BadSchedule:
        return
    times = list_next(schedule, start, count)
    for earlier, later in pairwise(times):
        assert earlier < later
        assert schedule.next_after(later - 1) == later
        assert schedule.next_after((earlier + later) / 2) == later
    if times:
        assert find_latest(schedule, start, times[-1]) == times[-1]


@given(
    change=st.sampled_from(CHANGES),
    days=st.integers(1, 30),
    anchor=st.integers(0, DAY),
    after=st.integers(-40 * DAY, 40 * DAY),
)
def test_an_interval_of_days_is_at_the_same_wall_time_unless_that_time_is_skipped(
    change: tuple[str, str], days: int, anchor: int, after: int
) -> None:
    zone = ZoneInfo(change[0])
    start = int(at(f"{change[1]} 00:00", zone)) - 10 * DAY + anchor
    schedule = read_schedule(f"every {days}d", zone, start)
    assert isinstance(schedule, DayInterval)
    due = schedule.next_after(start + after)
    assert due is not None
    assert due > max(start, start + after)
    wall, first = (datetime.fromtimestamp(time, zone).replace(tzinfo=None, fold=0) for time in (due, start))
    if (wall - first) % timedelta(days=days):
        passed = (wall - first) // timedelta(days=days)
        assert is_skipped(first + passed * timedelta(days=days), zone)


def is_skipped(wall: datetime, zone: tzinfo) -> bool:
    there = wall.replace(tzinfo=zone)
    return there.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall
