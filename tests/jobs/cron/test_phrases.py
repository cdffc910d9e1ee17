"""What people may type as a schedule, and what they are told if it is not understood."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.jobs.cron.phrases import format_duration, parse_duration, parse_phrase
from hermes.jobs.cron.schedule import BadSchedule

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 14, 0, tzinfo=BERLIN).timestamp()  # a Wednesday


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("0 9 * * 1-5", "0 9 * * 1-5"),
        ("  */15   *  * * *", "*/15 * * * *"),
        ("0 9 1 jan MON", "0 9 1 jan MON"),
        ("@daily", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("monthly", "0 0 1 * *"),
        ("every 2h", "every 2h"),
        ("every 90 minutes", "every 90m"),
        ("Every hour", "every 1h"),
        ("every 3 days", "every 3d"),
        ("every day at 9", "0 9 * * *"),
        ("daily at noon", "0 12 * * *"),
        ("every day at 9 and 18", "0 9,18 * * *"),
        ("weekdays at 9:30", "30 9 * * 1-5"),
        ("weekends at 10am", "0 10 * * 6,0"),
        ("mondays at 7", "0 7 * * 1"),
        ("every monday, wednesday and friday at 6pm", "0 18 * * 1,3,5"),
        ("tomorrow at 9", "2026-11-19T09:00:00+01:00"),
        ("tomorrow 9:30 pm", "2026-11-19T21:30:00+01:00"),
        ("today at 18", "2026-11-18T18:00:00+01:00"),
        ("at 9", "2026-11-19T09:00:00+01:00"),
        ("18:30", "2026-11-18T18:30:00+01:00"),
        ("friday at 6pm", "2026-11-20T18:00:00+01:00"),
        ("wednesday at 9", "2026-11-25T09:00:00+01:00"),
        ("in 20 minutes", "2026-11-18T14:20:00+01:00"),
        ("in 1h30m", "2026-11-18T15:30:00+01:00"),
        ("in 2 days", "2026-11-20T14:00:00+01:00"),
        ("2026-12-01 09:00", "2026-12-01T09:00:00+01:00"),
        ("2027-07-01 at 9am", "2027-07-01T09:00:00+02:00"),
        ("2026-12-01T09:00:00-05:00", "2026-12-01T15:00:00+01:00"),
    ],
)
def test_a_phrase_becomes_one_of_three_forms(typed: str, kept: str) -> None:
    assert parse_phrase(typed, BERLIN, NOW).text == kept


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "the schedule is empty"),
        ("soon", "not understood"),
        ("every", "not understood"),
        ("monday", "not understood"),
        ("every monday", "at which time"),
        ("weekdays", "at which time"),
        ("every day at 25", "not a time of the day"),
        ("every day at 9:15 and 10:45", "make one job for each"),
        ("every 1s", "at least 10 seconds"),
        ("today at 9", "in the past"),
        ("2020-01-01 09:00", "in the past"),
        ("2026-02-30 09:00", "there is no day"),
        ("2026-12-01", "at which time"),
        ("in 99999999 weeks", "ten years"),
        ("in 5 fortnights", "not understood"),
        ("@reboot", "not a time"),
        ("@noon", "there is no schedule"),
        ("61 9 * * *", "bad minute"),
        ("0 9 * *", "5 fields, not 4"),
        ("* * * * * *", "5 fields, not 6"),
        ("0 9 31 2 *", "bad day-of-month"),
    ],
)
def test_anything_else_is_refused_in_one_line(typed: str, problem: str) -> None:
    with pytest.raises(BadSchedule, match=problem) as caught:
        parse_phrase(typed, BERLIN, NOW)
    assert "\n" not in str(caught.value)


@given(
    st.text(max_size=40)
    | st.from_regex(r"(every|in|at|@|tomorrow|[0-9*/, -])[a-z0-9 :*/,-]{0,25}", fullmatch=True)
)
def test_no_text_causes_any_other_error(typed: str) -> None:
    try:
        schedule = parse_phrase(typed, BERLIN, NOW)
    except BadSchedule:
        return
    due = schedule.next_after(NOW)
    assert due is None or due > NOW


@given(st.integers(1, 10_000_000))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "0s", "soon", "5", "-5m", "5m 3", "1 fortnight", "5mm"])
def test_what_is_no_duration_is_not_read_as_one(text: str) -> None:
    assert parse_duration(text) is None
