"""Automatic resets: their times over whole years, with all clock changes, and their notices."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.clock import DAY, HOUR, MINUTE
from hermes.config.time_zones import load_zone
from hermes.gateway.sessions.reset_policy import (
    DueReset,
    find_boundary_after,
    find_due,
    find_next_due,
    format_minutes,
    format_notice,
)
from hermes.gateway.settings import ResetPolicy
from tests.tiers import scale_examples

NEVER = ResetPolicy("none")
DAILY = ResetPolicy("daily", at_hour=4, timezone="Europe/Berlin")
IDLE = ResetPolicy("idle", idle_minutes=90)
BOTH = ResetPolicy("both", idle_minutes=90, at_hour=4, timezone="Europe/Berlin")


def at(text: str, place: str = "Europe/Berlin") -> float:
    """Return the moment at which local clocks in `place` show `text`, such as `2025-03-30 03:00`. If the
    clocks show this time twice, return the first moment."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(place)).timestamp()


# --- a year of a chat with constant messages
# ---------------------------------------------------------------------------

# Taken from a calendar: the days whose reset is not at the usual hour, or not 24 hours after the previous
# reset.
UNUSUAL_DAYS = {
    ("Europe/Berlin", 2025, 4): [
        "Sun 2025-03-30 04:00 +0200 = 02:00 UTC, after 23h",
        "Sun 2025-10-26 04:00 +0100 = 03:00 UTC, after 25h",
    ],
    ("Europe/Berlin", 2025, 2): [
        "Sun 2025-03-30 03:00 +0200 = 01:00 UTC, after 24h",  # there is no 02:00
        "Mon 2025-03-31 02:00 +0200 = 00:00 UTC, after 23h",
        "Mon 2025-10-27 02:00 +0100 = 01:00 UTC, after 25h",  # 02:00 occurred twice on Sunday: the first counted
    ],
    ("America/New_York", 2025, 4): [
        "Sun 2025-03-09 04:00 -0400 = 08:00 UTC, after 23h",
        "Sun 2025-11-02 04:00 -0500 = 09:00 UTC, after 25h",
    ],
    ("America/New_York", 2025, 2): [
        "Sun 2025-03-09 03:00 -0400 = 07:00 UTC, after 24h",
        "Mon 2025-03-10 02:00 -0400 = 06:00 UTC, after 23h",
        "Sun 2025-11-02 02:00 -0500 = 07:00 UTC, after 25h",
    ],
    ("Australia/Lord_Howe", 2025, 4): [
        "Sun 2025-04-06 04:00 +1030 = 17:30 UTC, after 24h 30m",
        "Sun 2025-10-05 04:00 +1100 = 17:00 UTC, after 23h 30m",
    ],
    ("Australia/Lord_Howe", 2025, 2): [
        "Sun 2025-04-06 02:00 +1030 = 15:30 UTC, after 24h 30m",
        "Sun 2025-10-05 02:30 +1100 = 15:30 UTC, after 24h",  # there is no 02:00
        "Mon 2025-10-06 02:00 +1100 = 15:00 UTC, after 23h 30m",
    ],
    ("Asia/Kolkata", 2025, 4): [],
    ("Asia/Kolkata", 2025, 0): [],
    ("Pacific/Apia", 2011, 4): [
        "Sat 2011-04-02 04:00 -1100 = 15:00 UTC, after 25h",
        "Sat 2011-09-24 04:00 -1000 = 14:00 UTC, after 23h",
        "Sat 2011-12-31 04:00 +1400 = 14:00 UTC, after 24h",  # Friday was skipped
    ],
    ("Pacific/Apia", 2011, 0): [
        "Sun 2011-04-03 00:00 -1100 = 11:00 UTC, after 25h",
        "Sun 2011-09-25 00:00 -1000 = 10:00 UTC, after 23h",
        "Sat 2011-12-31 00:00 +1400 = 10:00 UTC, after 24h",
    ],
    ("Africa/Casablanca", 2025, 4): [
        "Sun 2025-02-23 04:00 +0000 = 04:00 UTC, after 25h",  # Ramadan begins
        "Sun 2025-04-06 04:00 +0100 = 03:00 UTC, after 23h",
    ],
    ("Africa/Casablanca", 2025, 2): [
        "Mon 2025-02-24 02:00 +0000 = 02:00 UTC, after 25h",
        "Sun 2025-04-06 03:00 +0100 = 02:00 UTC, after 24h",
        "Mon 2025-04-07 02:00 +0100 = 01:00 UTC, after 23h",
    ],
    ("Europe/Dublin", 2025, 1): [  # in Ireland, standard time is the time in summer
        "Sun 2025-03-30 02:00 +0100 = 01:00 UTC, after 24h",
        "Mon 2025-03-31 01:00 +0100 = 00:00 UTC, after 23h",
        "Mon 2025-10-27 01:00 +0000 = 01:00 UTC, after 25h",
    ],
    ("America/St_Johns", 2010, 0): [  # clocks went back at 00:01: midnight occurred twice
        "Mon 2010-03-15 00:00 -0230 = 02:30 UTC, after 23h",
        "Mon 2010-11-08 00:00 -0330 = 03:30 UTC, after 25h",
    ],
}


def resets_of_a_year(place: str, year: int, hour: int) -> list[datetime]:
    """Simulate a gateway that checks every half hour and a chat with a message after each check. Return the
    local times of all resets."""
    policy = ResetPolicy("daily", at_hour=hour, timezone=place)
    moment, end = (int(at(f"{when}-01-01 00:00", place)) for when in (year, year + 1))
    last, resets = moment - HOUR, []
    while moment < end:
        if find_due(policy, last, moment):
            resets.append(datetime.fromtimestamp(moment, ZoneInfo(place)))
        last = moment
        moment += HOUR // 2
    return resets


USUAL_YEARS = (
    ("Europe/Berlin", 2025, 4),
    ("America/New_York", 2025, 2),
    ("Australia/Lord_Howe", 2025, 2),
    ("Pacific/Apia", 2011, 4),
)
"""`make test` computes only these years."""


def days_of_a_year(place: str, year: int) -> list[date]:
    moment, end = (int(at(f"{when}-01-01 00:00", place)) for when in (year, year + 1))
    return sorted({datetime.fromtimestamp(hour, ZoneInfo(place)).date() for hour in range(moment, end, HOUR)})


@pytest.mark.parametrize(
    ("place", "year", "hour"),
    [case if case in USUAL_YEARS else pytest.param(*case, marks=pytest.mark.full) for case in UNUSUAL_DAYS],
)
def test_over_a_year_each_day_has_one_reset_at_the_expected_time(place: str, year: int, hour: int) -> None:
    resets = resets_of_a_year(place, year, hour)
    assert [reset.date() for reset in resets] == days_of_a_year(place, year)
    unusual = []
    for before, reset in pairwise(resets):
        passed = round((reset.timestamp() - before.timestamp()) / MINUTE)
        next_day = reset.date() - before.date() == timedelta(1)
        if (passed, reset.hour, reset.minute, next_day) != (24 * 60, hour, 0, True):
            utc = reset.astimezone(UTC)
            unusual.append(f"{reset:%a %Y-%m-%d %H:%M %z} = {utc:%H:%M} UTC, after {format_minutes(passed)}")
    assert unusual == UNUSUAL_DAYS[place, year, hour]


def test_where_an_hour_is_skipped_until_midnight_the_day_ends_with_its_reset() -> None:
    """In Nuuk, clocks went forward from Saturday 22:59 to Sunday 00:00, so that Saturday had no 23:00. In
    autumn, they went back from Saturday 23:59 to 23:00."""
    place = ZoneInfo("America/Nuuk")

    def four(moment: float) -> Iterator[str]:
        for _ in range(4):
            moment = find_boundary_after(moment, 23, place) or math.nan
            yield f"{datetime.fromtimestamp(moment, place):%a %d %H:%M %z}"

    assert [*four(at("2024-03-29 12:00", "America/Nuuk"))] == [
        "Fri 29 23:00 -0200",
        "Sun 31 00:00 -0100",
        "Sun 31 23:00 -0100",
        "Mon 01 23:00 -0100",
    ]
    midnight = at("2024-03-31 00:00", "America/Nuuk")
    assert find_boundary_after(math.nextafter(midnight, 0), 23, place) == midnight
    assert [*four(at("2024-10-25 12:00", "America/Nuuk"))] == [
        "Fri 25 23:00 -0100",
        "Sat 26 23:00 -0100",
        "Sun 27 23:00 -0200",
        "Mon 28 23:00 -0200",
    ]


@pytest.mark.parametrize(
    ("place", "day", "hour", "boundary"),
    [
        ("Antarctica/Casey", "2020-10-04", 2, "03:01:00 +1100"),  # from 00:01
        ("America/St_Johns", "2010-03-14", 1, "01:01:00 -0230"),  # from 00:01
        ("Pacific/Chatham", "2025-09-28", 3, "03:45:00 +1345"),  # from 02:45
        ("America/Sao_Paulo", "2018-11-04", 0, "01:00:00 -0200"),  # from midnight
        ("Asia/Pyongyang", "2018-05-05", 0, "00:00:00 +0900"),  # from 23:30: no hour is skipped
    ],
)
def test_where_an_hour_is_skipped_the_boundary_is_the_first_moment_after_the_gap(
    place: str, day: str, hour: int, boundary: str
) -> None:
    before = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(place)) - timedelta(hours=2)
    found = find_boundary_after(before.timestamp(), hour, ZoneInfo(place)) or math.nan
    assert f"{datetime.fromtimestamp(found, ZoneInfo(place)):%Y-%m-%d %H:%M:%S %z}" == f"{day} {boundary}"


# --- a week of a chat with few messages
# --------------------------------------------------------------------------------


def lived(policy: ResetPolicy, said: list[str], looks: Iterator[float]) -> list[str]:
    """Return the resets of a gateway that checks at the times `looks`. The chat has messages at the times
    `said`. A reset creates a session without messages."""
    to_come = [at(when) for when in said]
    last, resets = None, []
    for moment in looks:
        while to_come and to_come[0] <= moment:
            if found := find_due(policy, last, to_come[0]):  # the gateway also checks before it answers
                resets.append(
                    f"{format_moment(to_come[0])} {found.reason} since {format_moment(found.since)}"
                )
            last = to_come.pop(0)
        if found := find_due(policy, last, moment):
            resets.append(f"{format_moment(moment)} {found.reason} since {format_moment(found.since)}")
            last = None
    return resets


def format_moment(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, ZoneInfo('Europe/Berlin')):%a %d %H:%M}"


def every(minutes: int, begin: str, end: str) -> Iterator[float]:
    return iter(range(int(at(begin)), int(at(end)), minutes * MINUTE))


SAID = ["2025-03-24 09:00", "2025-03-24 10:00", "2025-03-26 03:59", "2025-03-26 04:00", "2025-03-29 23:00"]
"""A week in which clocks in Berlin go forward, in the night before Sunday the 30th."""


def test_a_quiet_day_has_no_reset() -> None:
    assert lived(DAILY, SAID, every(10, "2025-03-24 00:00", "2025-04-01 00:00")) == [
        "Tue 25 04:00 daily since Tue 25 04:00",
        "Wed 26 04:00 daily since Wed 26 04:00",
        "Thu 27 04:00 daily since Thu 27 04:00",
        "Sun 30 04:00 daily since Sun 30 04:00",
    ]


def test_idle_time_is_counted_in_elapsed_hours() -> None:
    six_hours = ResetPolicy("idle", idle_minutes=360, timezone="Europe/Berlin")
    assert lived(six_hours, SAID, every(10, "2025-03-24 00:00", "2025-04-01 00:00")) == [
        "Mon 24 16:10 idle since Mon 24 16:00",
        "Wed 26 10:10 idle since Wed 26 10:00",
        "Sun 30 06:10 idle since Sun 30 06:00",
    ]


def test_whichever_comes_first() -> None:
    six_hours = ResetPolicy("both", idle_minutes=360, timezone="Europe/Berlin")
    assert lived(six_hours, SAID, every(10, "2025-03-24 00:00", "2025-04-01 00:00")) == [
        "Mon 24 16:10 idle since Mon 24 16:00",
        "Wed 26 04:00 daily since Wed 26 04:00",
        "Wed 26 10:10 idle since Wed 26 10:00",
        "Sun 30 04:00 daily since Sun 30 04:00",
    ]


def test_a_gateway_that_was_down_for_three_days_resets_once() -> None:
    def looks() -> Iterator[float]:
        yield from every(10, "2025-03-24 00:00", "2025-03-24 22:00")
        yield from every(10, "2025-03-27 15:00", "2025-03-29 00:00")

    assert lived(DAILY, SAID[:2], looks()) == ["Thu 27 15:00 daily since Tue 25 04:00"]


def test_a_message_after_days_begins_a_new_session_even_without_checks() -> None:
    assert lived(DAILY, SAID[:2] + SAID[4:], every(10, "2025-03-29 23:00", "2025-03-30 03:50")) == [
        "Sat 29 23:00 daily since Tue 25 04:00"
    ]


# --- edges ------------------------------------------------------------------------------------------------------------

FOUR = at("2025-06-10 04:00")


@pytest.mark.parametrize(
    ("last", "now", "is_due"),
    [
        ("03:59:59.999", "03:59:59.999", False),
        ("03:59:59.999", "04:00:00.000", True),
        ("03:59:00.000", "03:59:59.999", False),
        ("03:59:00.000", "04:00:00.000", True),
        ("04:00:00.000", "04:00:00.000", False),
        ("04:00:00.000", "23:59:59.999", False),
        ("04:00:00.001", "04:00:00.002", False),
    ],
)
def test_a_message_at_the_hour_of_the_reset_is_after_it(last: str, now: str, is_due: bool) -> None:
    found = find_due(DAILY, at(f"2025-06-10 {last}"), at(f"2025-06-10 {now}"))
    assert found == (DueReset("daily", FOUR) if is_due else None)


def test_exactly_at_the_deadline_nothing_is_due() -> None:
    deadline = FOUR + 90 * MINUTE
    assert find_due(IDLE, FOUR, deadline) is None
    assert find_due(IDLE, FOUR, deadline + 0.001) == DueReset("idle", deadline)
    assert find_next_due(IDLE, FOUR) == math.nextafter(deadline, math.inf)


def test_if_both_are_due_the_reason_is_idle_at_the_earlier_time() -> None:
    assert find_due(BOTH, FOUR - HOUR, FOUR) == DueReset("daily", FOUR)
    assert find_due(BOTH, FOUR - HOUR, FOUR + HOUR) == DueReset("idle", FOUR)
    assert find_due(BOTH, FOUR - 2 * HOUR, FOUR) == DueReset("idle", FOUR - HOUR / 2)


@pytest.mark.parametrize("policy", [NEVER, ResetPolicy()])
def test_none_is_never_due(policy: ResetPolicy) -> None:
    assert find_due(policy, FOUR, FOUR + 1000 * DAY) is None
    assert find_next_due(policy, FOUR) is None


@pytest.mark.parametrize("policy", [IDLE, DAILY, BOTH])
def test_nothing_is_due_without_a_message(policy: ResetPolicy) -> None:
    assert find_due(policy, None, FOUR) is None
    assert find_next_due(policy, None) is None


@pytest.mark.parametrize("policy", [IDLE, DAILY, BOTH])
def test_nothing_is_due_when_the_clock_was_put_back(policy: ResetPolicy) -> None:
    assert find_due(policy, FOUR, FOUR - 30 * DAY) is None


@pytest.mark.parametrize("last", [FOUR * 1000, FOUR * 1e9, -1e18, math.inf, -math.inf, math.nan])
def test_a_time_outside_the_calendar_is_no_boundary(last: float) -> None:
    assert find_due(DAILY, last, FOUR) is None
    assert find_next_due(DAILY, last) is None


# --- background tasks
# -----------------------------------------------------------------------------------------------

LONG_AFTER = FOUR + 300 * DAY


@pytest.mark.parametrize("policy", [IDLE, DAILY, BOTH])
def test_while_something_runs_nothing_is_reset_however_old_it_is(policy: ResetPolicy) -> None:
    assert find_due(policy, FOUR, LONG_AFTER, running=[FOUR]) is None
    assert find_next_due(policy, FOUR, running=[FOUR]) is None
    assert find_due(policy, FOUR, LONG_AFTER, running=[]) is not None


def test_with_an_age_limit_the_youngest_decides() -> None:
    limited = IDLE.replace(bg_process_max_age_hours=1.5)
    started = [FOUR - DAY, FOUR + DAY]
    old_enough = FOUR + DAY + 1.5 * HOUR
    assert find_due(limited, FOUR, old_enough, started) is None
    assert find_due(limited, FOUR, old_enough + 1, started) == DueReset("idle", FOUR + 90 * MINUTE)
    assert find_next_due(limited, FOUR, started) == math.nextafter(old_enough, math.inf)
    assert find_next_due(limited, FOUR, [FOUR - DAY]) == find_next_due(limited, FOUR)


# --- comparison with a check of the clock every minute
# ------------------------------------------------------------------

CHANGES = [
    ("Europe/Berlin", "2025-03-30T01:00Z"),
    ("Europe/Berlin", "2025-10-26T01:00Z"),
    ("America/New_York", "2025-03-09T07:00Z"),
    ("America/New_York", "2025-11-02T06:00Z"),
    ("Australia/Lord_Howe", "2025-04-05T15:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30Z"),
    ("Asia/Kolkata", "2025-01-01T00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Africa/Casablanca", "2025-02-23T02:00Z"),
    ("Africa/Casablanca", "2025-04-06T02:00Z"),
    ("Europe/Dublin", "2025-03-30T01:00Z"),
    ("Europe/Dublin", "2025-10-26T01:00Z"),
    ("America/Nuuk", "2024-03-31T01:00Z"),
    ("America/Nuuk", "2024-10-27T01:00Z"),
    ("America/St_Johns", "2010-03-14T03:31Z"),
    ("America/St_Johns", "2010-11-07T02:31Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),  # from 00:00 to 01:00
    ("Antarctica/Troll", "2025-03-30T01:00Z"),  # by two hours
    ("Antarctica/Casey", "2020-10-03T16:01Z"),  # by three, at 00:01
    ("Asia/Pyongyang", "2018-05-04T15:00Z"),  # from 23:30 to 00:00
    ("Pacific/Kwajalein", "1993-08-21T12:00Z"),  # skipped a day
    ("Pacific/Chatham", "2025-09-27T14:00Z"),  # at a quarter to the hour
]


def boundaries_seen(begin: float, end: float, hour: int, place: ZoneInfo) -> Iterator[float]:
    """Read the clock every minute. Yield each moment after `begin` at which the clock reaches or passes
    `hour` of a day for the first time. Only days that the clock has shown count."""
    days, highest = set(), datetime.min  # noqa: DTZ901 - what the clock shows has no zone
    for moment in range(int((begin - 3 * DAY) // MINUTE * MINUTE), int(end) + 1, MINUTE):
        shows = datetime.fromtimestamp(moment, place).replace(tzinfo=None, fold=0)
        days.add(shows.date())
        if shows <= highest:
            continue
        for day in sorted(days)[-3:]:
            if highest < datetime(day.year, day.month, day.day, hour) <= shows and moment > begin:  # noqa: DTZ001
                yield float(moment)
        highest = shows


@st.composite
def situations(draw: st.DrawFn) -> tuple[ResetPolicy, float, float]:
    """Draw a policy, the time of the last message, and the current time. Most times are near clock
    changes."""
    place, change = draw(st.sampled_from(CHANGES))
    around = datetime.fromisoformat(change).timestamp()
    spans = st.one_of(
        st.integers(-36 * 60, 36 * 60).map(lambda minutes: minutes * float(MINUTE)), st.floats(-2e5, 2e5)
    )
    anywhen = st.floats(
        datetime(1975, 1, 1, tzinfo=UTC).timestamp(), datetime(2036, 1, 1, tzinfo=UTC).timestamp()
    )
    last = draw(st.one_of(spans.map(lambda span: around + span), anywhen))
    hour_of_change = datetime.fromtimestamp(around - 1, ZoneInfo(place)).hour
    hours = st.one_of(st.integers(0, 23), st.integers(-1, 3).map(lambda more: (hour_of_change + more) % 24))
    modes = st.sampled_from(["daily", "both", "idle"])
    policy = ResetPolicy(draw(modes), draw(st.integers(1, 3000)), draw(hours), place)
    return policy, last, last + abs(draw(spans))


@given(situations())
@settings(max_examples=scale_examples(300))
def test_the_policy_agrees_with_a_check_of_the_clock_every_minute(
    situation: tuple[ResetPolicy, float, float],
) -> None:
    policy, last, now = situation
    deadline = last + policy.idle_minutes * MINUTE
    idle = [deadline] if policy.mode != "daily" and now > deadline else []
    seen = boundaries_seen(last, now, policy.at_hour, ZoneInfo(policy.timezone or "UTC"))
    daily = [*seen][:1] if policy.mode != "idle" else []
    expected = DueReset("idle" if idle else "daily", min(idle + daily)) if idle or daily else None
    assert find_due(policy, last, now) == expected


@given(situations(), st.lists(st.floats(-2e5, 2e5), max_size=3), st.sampled_from([0.0, 0.5, 24.0]))
def test_a_reset_is_due_from_the_next_moment_on(
    situation: tuple[ResetPolicy, float, float], started: list[float], limit: float
) -> None:
    policy, last, later = situation
    policy = policy.replace(bg_process_max_age_hours=limit)
    running = [last + offset for offset in started]
    first = find_next_due(policy, last, running)
    if first is None:
        assert running
        assert not limit
        assert find_due(policy, last, last + 1000 * DAY, running) is None
        return
    found = find_due(policy, last, first, running)
    assert found is not None
    assert find_due(policy, last, math.nextafter(first, -math.inf), running) is None
    after = find_due(policy, last, max(first, later), running)
    assert after is not None
    assert after.since == found.since <= first


# --- the time zone
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", sorted({place for place, _ in CHANGES}))
@pytest.mark.parametrize("spelling", ["{}", ":/usr/share/zoneinfo/{}"])
def test_without_a_time_zone_it_is_that_of_the_machine(
    in_zone: Callable[[str], None], place: str, spelling: str
) -> None:
    in_zone(spelling.format(place))
    for change in (datetime.fromisoformat(change).timestamp() for where, change in CHANGES if where == place):
        for hour in (0, 1, 2, 4, 23):
            for moment in range(int(change) - 2 * DAY, int(change) + 2 * DAY, 45 * MINUTE):
                named = find_due(ResetPolicy("daily", at_hour=hour, timezone=place), moment, moment + 3 * DAY)
                assert (
                    find_due(ResetPolicy("daily", at_hour=hour), moment, moment + 3 * DAY)
                    == named
                    is not None
                )


def test_the_time_zone_of_the_machine_may_be_a_rule(in_zone: Callable[[str], None]) -> None:
    in_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    assert find_due(
        ResetPolicy("daily", at_hour=2), at("2025-03-30 01:59"), at("2025-03-30 03:00")
    ) == DueReset("daily", at("2025-03-30 03:00"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mars/Olympus", "not 'Mars/Olympus'"),
        ("europe/berlin", "not 'europe/berlin'; did you mean Europe/Berlin?"),
        ("New York", "not 'New York'; did you mean America/New_York?"),
        ("Europe", "not 'Europe'"),
        ("", "not ''"),
        ("../../../etc/passwd", "not '../../../etc/passwd'"),
        ("zone.tab", "not 'zone.tab'"),
        ("a\nb\0", "not 'a\\nb\\x00'"),
        (2, "not 2"),
    ],
)
def test_a_time_zone_that_does_not_exist_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(errors.BadConfig) as refused:
        load_zone(name, "reset_by_type.dm.timezone")
    assert str(refused.value).startswith(
        "reset_by_type.dm.timezone must be a time zone such as Europe/Berlin, "
    )
    assert str(refused.value).endswith(message)


def test_a_machine_without_time_zones_says_so() -> None:
    program = """
import sys
sys.modules["tzdata"] = None
from hermes import errors
from hermes.config.settings_schema import ResetPolicy
from hermes.config.time_zones import load_zone
from hermes.gateway.sessions.reset_policy import find_due
assert find_due(ResetPolicy("daily"), 0.0, 86400.0)
try:
    load_zone("Europe/Berlin")
except errors.BadConfig as problem:
    print(problem)
"""
    environment = os.environ | {"PYTHONTZPATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == (
        "session_reset.timezone must be a time zone such as Europe/Berlin, not 'Europe/Berlin'; this machine has no"
        " time zone database: install the package tzdata, or leave the setting out\n"
    )


# --- notices
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "text"), [(1440, "24h"), (60, "1h"), (90, "1h 30m"), (45, "45m"), (1, "1m"), (2881, "48h 1m")]
)
def test_durations(minutes: int, text: str) -> None:
    assert format_minutes(minutes) == text


@pytest.mark.parametrize(
    ("reason", "why"), [("idle", "inactive for 1h 30m"), ("daily", "daily schedule at 4:00")]
)
def test_the_notice_says_why_and_how_to_get_back_and_how_to_switch_it_off(reason: str, why: str) -> None:
    assert format_notice(BOTH, reason, "Trip to Oslo").splitlines() == [
        f"◐ Session automatically reset ({why}).",
        "Nothing is lost: `/undo` before your next message undoes this, `/resume Trip to Oslo` does at any time.",
        "`session_reset` in config.yaml sets when this happens; `mode: none` turns it off.",
    ]


def test_the_notice_names_the_setting_that_decided() -> None:
    assert "`reset_by_platform.telegram` in config.yaml" in format_notice(
        IDLE, "idle", "x", "reset_by_platform.telegram"
    )
