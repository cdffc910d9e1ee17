"""Active time: the time between two consecutive messages of a session that are at most ten minutes apart.
Time that is active in several sessions counts once."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.insights import InsightsEngine
from hermes.insights.active_time import MAX_GAP_S, find_stretches, measure, summarize
from hermes_state import SessionDB
from tests.stored_rows import change_rows

DAY = 86_400
MINUTE = 60.0
TIMES = st.lists(st.integers(0, 7_200), max_size=12)
SESSIONS = st.lists(TIMES, max_size=5)


def list_moments(times: list[int]) -> set[int]:
    """Return every active second of a session. The result is computed directly from the definition of active
    time."""
    return {
        moment
        for before, after in pairwise(sorted(times))
        if after - before <= MAX_GAP_S
        for moment in range(before, after)
    }


@given(SESSIONS)
def test_the_total_is_the_number_of_active_seconds(sessions: list[list[int]]) -> None:
    messages = [(str(number), at) for number, times in enumerate(sessions) for at in times]
    told = summarize(messages)
    each = [len(list_moments(times)) for times in sessions]
    active = [seconds for seconds in each if seconds]
    assert told["seconds"] == len(set().union(*map(list_moments, sessions)))
    assert told["sessions"] == len(active)
    assert told["avg_session_seconds"] == pytest.approx(sum(active) / len(active) if active else 0)


@given(TIMES, st.integers(0, 7_200), st.integers(-10_000, 10_000))
def test_another_message_or_a_shift_in_time_never_reduces_the_total(
    times: list[int], another: int, shift: int
) -> None:
    before = measure(find_stretches(times))
    assert before <= measure(find_stretches([*times, another]))
    assert before == measure(find_stretches([at + shift for at in times]))
    assert before <= max(times, default=0) - min(times, default=0)


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([], 0),
        ([5.0], 0),
        ([5.0, 5.0], 0),
        ([0.0, 600.0], 600),
        ([0.0, 600.5], 0),
        ([0.0, 60.0, 50_000.0, 50_030.0], 90),
    ],
)
def test_ten_minutes_count_and_longer_gaps_do_not(times: list[float], seconds: float) -> None:
    assert measure(find_stretches(times)) == seconds


@pytest.mark.parametrize("value", ["soon", None, b"x", float("nan"), float("inf")])
def test_an_invalid_time_is_left_out(value: object) -> None:
    assert summarize([("a", 0.0), ("a", value), ("a", 60.0)])["seconds"] == MINUTE


def test_a_session_left_open_overnight_counts_only_active_time(db: SessionDB) -> None:
    start = time.time() - 2 * DAY
    for name, minutes in (("a", (0, 5, 900, 910)), ("b", (2, 7)), ("alone", (3,))):
        db.create_session(name, "cli", started_at=start)
        for minute in minutes:
            db.append_message(name, "user", "hello", timestamp=start + minute * MINUTE)
    change_rows(db, "UPDATE sessions SET ended_at = ? WHERE id = ?", start + DAY, "a")
    told = InsightsEngine(db).generate(30)
    assert told["active_time"] == {
        "seconds": pytest.approx(17 * MINUTE),
        "avg_session_seconds": pytest.approx(10 * MINUTE),
        "sessions": 2,
        "max_gap_seconds": 600.0,
    }
    assert told["overview"]["total_hours"] == pytest.approx(24)


def test_rewound_messages_count_as_active_time(db: SessionDB) -> None:
    start = time.time() - DAY
    db.create_session("a", "cli", started_at=start)
    first = [
        db.append_message("a", role, "hello", timestamp=start + minute * MINUTE)
        for minute, role in enumerate(("user", "assistant", "user", "assistant"))
    ]
    db.rewind_to_message("a", first[2])
    assert InsightsEngine(db).generate(30)["active_time"]["seconds"] == pytest.approx(3 * MINUTE)
