"""Token counts and costs are added to the stored values. A caller that knows the total can replace them
instead.
"""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state import SessionDB
from tests.interface.conftest import session

COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
LABELS = ("cost_status", "cost_source", "pricing_version")
ROUTE = ("billing_provider", "billing_base_url", "billing_mode", "model")


def numbers(start: int) -> dict[str, Any]:
    return {name: start + nth for nth, name in enumerate(COUNTERS)}


def counters(db: SessionDB) -> dict[str, int]:
    row = session(db, "a")
    return {name: row[name] for name in COUNTERS}


def update(db: SessionDB, **values: Any) -> dict[str, Any]:
    db.update_token_counts("a", **values)
    return session(db, "a")


@pytest.mark.parametrize("absolute", [False, True])
def test_a_missing_session_is_created_with_the_source_unknown(db: SessionDB, absolute: bool) -> None:
    row = update(db, input_tokens=3, model="m", absolute=absolute)
    assert (row["source"], row["model"], row["input_tokens"]) == ("unknown", "m", 3)


def test_counters_are_added_up(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.update_token_counts("a", **numbers(1))
    db.update_token_counts("a", **numbers(100))
    assert counters(db) == {name: 101 + 2 * nth for nth, name in enumerate(COUNTERS)}


def test_absolute_counters_are_set(db: SessionDB) -> None:
    db.update_token_counts("a", **numbers(100))
    db.update_token_counts("a", **numbers(7), absolute=True)
    assert counters(db) == numbers(7)


def test_absolute_sets_missing_values_to_zero(db: SessionDB) -> None:
    db.update_token_counts("a", **numbers(100))
    db.update_token_counts("a", input_tokens=5, absolute=True)
    assert counters(db) == {**dict.fromkeys(COUNTERS, 0), "input_tokens": 5}


def test_input_and_output_may_be_given_by_position(db: SessionDB) -> None:
    db.update_token_counts("a", 3, 4, "m")
    row = session(db, "a")
    assert (row["input_tokens"], row["output_tokens"], row["model"]) == (3, 4, "m")


def test_the_estimated_cost_adds_up_from_zero(db: SessionDB) -> None:
    db.create_session("a", "cli")
    assert session(db, "a")["estimated_cost_usd"] is None
    assert update(db, input_tokens=1)["estimated_cost_usd"] == 0
    assert update(db, estimated_cost_usd=0.5)["estimated_cost_usd"] == 0.5
    assert update(db, estimated_cost_usd=0.25)["estimated_cost_usd"] == 0.75
    assert update(db, input_tokens=1)["estimated_cost_usd"] == 0.75


def test_the_absolute_estimated_cost_is_the_value_or_zero(db: SessionDB) -> None:
    update(db, estimated_cost_usd=0.5)
    assert update(db, estimated_cost_usd=0.25, absolute=True)["estimated_cost_usd"] == 0.25
    assert update(db, absolute=True)["estimated_cost_usd"] == 0


def test_the_actual_cost_stays_unknown_until_given_and_then_adds_up(db: SessionDB) -> None:
    assert update(db, input_tokens=1)["actual_cost_usd"] is None
    assert update(db, actual_cost_usd=0.5)["actual_cost_usd"] == 0.5
    assert update(db, actual_cost_usd=0.25)["actual_cost_usd"] == 0.75
    assert update(db, input_tokens=1)["actual_cost_usd"] == 0.75


def test_the_absolute_actual_cost_is_set_or_left(db: SessionDB) -> None:
    update(db, actual_cost_usd=0.5)
    assert update(db, actual_cost_usd=0.25, absolute=True)["actual_cost_usd"] == 0.25
    assert update(db, absolute=True)["actual_cost_usd"] == 0.25
    assert update(db, actual_cost_usd=0.0, absolute=True)["actual_cost_usd"] == 0


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", LABELS)
def test_a_label_takes_the_new_value_if_one_is_given(db: SessionDB, name: str, absolute: bool) -> None:
    assert update(db, **{name: "first"}, absolute=absolute)[name] == "first"
    assert update(db, absolute=absolute)[name] == "first"
    assert update(db, **{name: "second"}, absolute=absolute)[name] == "second"


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("name", ROUTE)
def test_model_and_billing_route_are_filled_once(db: SessionDB, name: str, absolute: bool) -> None:
    db.create_session("a", "cli")
    assert update(db, **{name: "first"}, absolute=absolute)[name] == "first"
    assert update(db, **{name: "second"}, absolute=absolute)[name] == "first"


def test_the_source_and_start_of_a_known_session_stay(db: SessionDB) -> None:
    db.create_session("a", "telegram", started_at=5)
    row = update(db, input_tokens=1)
    assert (row["source"], row["started_at"], row["message_count"]) == ("telegram", 5.0, 0)


def test_large_counts_are_exact(db: SessionDB) -> None:
    assert update(db, input_tokens=2**53 + 1)["input_tokens"] == 2**53 + 1
