"""Which due times run: on time, or later by the policy for missed runs."""

from __future__ import annotations

import pytest

from hermes.jobs.cron.due_times import MOST_CAUGHT_UP, DueTime, find_due
from hermes.jobs.cron.job import BadJob, Job, parse_missed

HOUR, DAY = 3_600, 86_400
START = 1_800_000_000 - 1_800_000_000 % DAY


def hourly(missed: str = "once", since: float = START) -> Job:
    return Job(id="a", name="a", schedule="0 * * * *", timezone="UTC", prompt="x", missed=missed, since=since)


def due(job: Job, now: float, last_due: int | None = None) -> list[DueTime]:
    return find_due(job, job.read_schedule(), last_due, now)


def test_nothing_is_due_before_the_first_time_and_nothing_twice() -> None:
    assert due(hourly(), START + HOUR - 1) == []
    assert due(hourly(), START + HOUR + 2) == [DueTime(START + HOUR, "schedule")]
    assert due(hourly(), START + HOUR + 2, last_due=START + HOUR) == []


def test_times_before_the_job_was_made_or_resumed_never_run() -> None:
    assert due(hourly("all", since=START + 5 * HOUR), START + 5 * HOUR + 60) == []


@pytest.mark.parametrize(("missed", "runs"), [("once", [4]), ("all", [1, 2, 3, 4]), ("all:2h", [3, 4])])
def test_after_a_pause_missed_runs_follow_the_policy(missed: str, runs: list[int]) -> None:
    found = due(hourly(missed), START + 4 * HOUR + 30 * 60)
    assert found == [DueTime(START + number * HOUR, "missed") for number in runs]


def test_skipped_runs_are_recorded_with_the_reason() -> None:
    found = due(hourly("skip"), START + 4 * HOUR + 30 * 60)
    assert [(time.at, time.cause) for time in found] == [(START + 4 * HOUR, "missed")]
    assert "missed: skip" in (found[0].skipped or "")


def test_a_time_that_is_too_long_ago_for_the_policy_is_skipped() -> None:
    (found,) = due(hourly("once:20m"), START + 4 * HOUR + 30 * 60)
    assert found.skipped is not None


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_time_of_the_last_minutes_is_on_time_whatever_the_policy(missed: str) -> None:
    """System cron may call `hermes cron tick` every five minutes."""
    found = due(hourly(missed), START + HOUR + 4 * 60)
    assert found == [DueTime(START + HOUR, "schedule")]


def test_earlier_missed_times_do_not_add_a_run_to_one_on_time_unless_all_run() -> None:
    now = START + 4 * HOUR + 60
    assert due(hourly("once"), now) == [DueTime(START + 4 * HOUR, "schedule")]
    assert [time.cause for time in due(hourly("all"), now)] == ["missed", "missed", "missed", "schedule"]


def test_a_year_of_missed_runs_is_limited() -> None:
    assert len(due(hourly("all"), START + 365 * DAY)) == MOST_CAUGHT_UP


@pytest.mark.parametrize("text", ["", "never", "skip:1h", "all:", "all:soon", "once:-1h"])
def test_a_policy_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(BadJob, match="missed runs: say skip, once, all"):
        parse_missed(text)
