"""Usage is stored as one row for each model call. The documented columns contain the sums. No total counts a
call twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.store.reports.usage import ModelCall, UsageLine, UsageRecords, UsageTotals
from hermes_state import SessionDB
from tests.store.repeating_engine import RepeatingEngine
from tests.stored_rows import read_dicts
from tests.tiers import scale_examples

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def columns(db: SessionDB, session_id: str) -> dict[str, Any]:
    found = db.get_session(session_id)
    assert found is not None
    return found


def rows(db: SessionDB) -> list[dict[str, Any]]:
    return read_dicts(db, "SELECT * FROM model_usage ORDER BY id")


def lines(totals: UsageTotals) -> dict[tuple[str | None, str | None, str], UsageLine]:
    return {(line.model, line.provider, line.purpose): line.used for line in totals.by_model}


def test_a_call_is_a_row_and_its_sums_are_in_the_session(db: SessionDB) -> None:
    db.create_session("a", "cli")
    first = db.record_usage(
        "a",
        model="m1",
        provider="p1",
        base_url="https://p1",
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=5,
        cache_write_tokens=6,
        reasoning_tokens=7,
        estimated_cost_usd=0.25,
        actual_cost_usd=0.5,
        cost_status="estimated",
        cost_source="table",
        pricing_version="v1",
        at=1000.0,
    )
    second = db.record_usage("a", model="m2", provider="p2", input_tokens=1, cost_status="final")
    assert second > first
    assert [row["id"] for row in rows(db)] == [first, second]
    assert rows(db)[0]["at"] == 1000.0
    row = columns(db, "a")
    assert [row[name] for name in TOKENS] == [101, 20, 5, 6, 7]
    assert (row["api_call_count"], row["estimated_cost_usd"], row["actual_cost_usd"]) == (2, 0.25, 0.5)
    assert (row["cost_status"], row["cost_source"], row["pricing_version"]) == ("final", "table", "v1")
    assert (row["model"], row["billing_provider"], row["billing_base_url"]) == ("m1", "p1", "https://p1")


def test_missing_usage_is_unknown_in_the_row_and_not_added_to_the_sums(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.record_usage("a", input_tokens=0)
    row = rows(db)[0]
    assert row["input_tokens"] == 0
    assert [row[name] for name in (*TOKENS[1:], "estimated_cost_usd", "actual_cost_usd", "model")] == [
        None
    ] * 7
    assert columns(db, "a")["actual_cost_usd"] is None
    total = db.usage_of("a").total
    assert total == UsageLine(calls=1)
    db.record_usage("a", actual_cost_usd=0.0)
    assert db.usage_of("a").total.actual_cost_usd == 0.0, "nothing is not unknown"


def test_auxiliary_calls_are_counted_and_distinguished(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.record_usage("a", model="big", provider="p", input_tokens=100, estimated_cost_usd=1.0)
    db.record_auxiliary_usage("a", model="small", provider="p", input_tokens=10, estimated_cost_usd=0.5)
    assert (columns(db, "a")["input_tokens"], columns(db, "a")["api_call_count"]) == (110, 2)
    totals = db.usage_of("a")
    assert totals.total == UsageLine(calls=2, input_tokens=110, estimated_cost_usd=1.5)
    assert lines(totals) == {
        ("big", "p", "main"): UsageLine(calls=1, input_tokens=100, estimated_cost_usd=1.0),
        ("small", "p", "auxiliary"): UsageLine(calls=1, input_tokens=10, estimated_cost_usd=0.5),
    }


def test_without_rows_the_totals_come_from_the_columns(db: SessionDB) -> None:
    db.create_session("a", "cli", model="m")
    db.update_token_counts(
        "a", input_tokens=7, output_tokens=3, api_call_count=2, estimated_cost_usd=0.25, billing_provider="p"
    )
    expected = UsageLine(calls=2, input_tokens=7, output_tokens=3, estimated_cost_usd=0.25)
    assert lines(db.usage_of("a")) == lines(db.usage_by_model()) == {("m", "p", "main"): expected}


def test_rows_and_columns_are_not_both_counted(db: SessionDB) -> None:
    db.create_session("a", "cli", model="m")
    db.update_token_counts("a", input_tokens=7, api_call_count=1, actual_cost_usd=2.0)
    for cost in (0.1, 0.2, 0.3):
        db.record_usage("a", model="m", input_tokens=10, estimated_cost_usd=cost)
    total = db.usage_of("a").total
    assert (total.calls, total.input_tokens, total.actual_cost_usd) == (4, 37, 2.0)
    assert total.estimated_cost_usd == pytest.approx(0.6)
    assert len(db.usage_of("a").by_model) == 1


def test_a_family_is_the_conversation_and_its_subagents(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.create_session("helper", "cli", parent_session_id="root")
    db.create_session("helper's", "cli", parent_session_id="helper")
    db.end_session("root", "compression")
    db.create_session("next", "cli", parent_session_id="root")
    db.end_session("next", "branched")
    db.create_session("branch", "cli", parent_session_id="next")
    for power, name in enumerate(("root", "helper", "helper's", "next", "branch")):
        db.record_usage(name, model="m", input_tokens=10**power)
    assert db.usage_of("root").total.input_tokens == 1
    assert db.usage_of("next").total.input_tokens == 1000, "a continuation has its own calls only"
    for member in ("root", "next"):
        assert db.usage_of(member, family=True).total.input_tokens == 1111
    assert db.usage_of("helper", family=True).total.input_tokens == 110
    assert db.usage_of("branch", family=True).total.input_tokens == 10_000
    assert db.usage_by_model().total.input_tokens == 11_111


def test_the_window_takes_calls_by_their_time_and_columns_by_the_start(db: SessionDB) -> None:
    db.create_session("a", "cli", started_at=100.0, model="m")
    db.update_token_counts("a", input_tokens=1)
    db.record_usage("a", model="m", input_tokens=10, at=200.0)
    db.record_usage("a", model="m", input_tokens=100, at=300.0)

    def within(since: float | None, until: float | None) -> int:
        return db.usage_by_model(since=since, until=until).total.input_tokens

    assert within(None, None) == 111
    assert within(200.0, 300.0) == 10
    assert within(300.0, None) == 100
    assert within(None, 200.0) == 1
    assert within(400.0, None) == 0


def test_the_dearest_model_comes_first(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.record_usage("a", model="free", input_tokens=10**6)
    db.record_usage("a", model="dear", actual_cost_usd=3.0, estimated_cost_usd=0.1)
    db.record_usage("a", model="cheap", estimated_cost_usd=0.5)
    assert [line.model for line in db.usage_by_model().by_model] == ["dear", "cheap", "free"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"output_tokens": "12"},
        {"reasoning_tokens": 2**62},
        {"estimated_cost_usd": float("nan")},
        {"purpose": None},
        {"model": 5},
        {"at": "now"},
    ],
)
def test_values_are_checked_and_nothing_is_written(db: SessionDB, wrong: dict[str, Any]) -> None:
    db.create_session("a", "cli")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        db.record_usage("a", **wrong)
    assert (rows(db), columns(db, "a")["api_call_count"]) == ([], 0)


def test_an_unknown_session_is_an_error_to_record_and_empty_to_ask(db: SessionDB) -> None:
    with pytest.raises(Exception, match="nobody") as problem:
        db.record_usage("nobody", input_tokens=1)
    assert type(problem.value).__name__ == "UnknownSession"
    assert db.usage_of("nobody") == db.usage_of("nobody", family=True) == UsageTotals(UsageLine(), ())
    assert db.get_session("nobody") is None


def test_a_call_whose_commit_was_lost_is_written_again(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.record_usage("a", model="m", input_tokens=1)
    db.vacuum()  # so that the log is empty
    log = Path(f"{db.db_path}-wal")
    log.rename(log.with_name("taken-away"))
    assert db.record_usage("a", model="m", input_tokens=10) == 2
    assert [row["input_tokens"] for row in rows(db)] == [1, 10]
    assert (columns(db, "a")["input_tokens"], columns(db, "a")["api_call_count"]) == (11, 2)


def test_a_call_whose_commit_succeeded_is_not_counted_twice(db: SessionDB) -> None:
    db.create_session("a", "cli")
    records = UsageRecords(RepeatingEngine(db))
    assert records.record("a", ModelCall(model="m", input_tokens=10)) == 1
    assert [row["input_tokens"] for row in rows(db)] == [10]
    assert (columns(db, "a")["input_tokens"], columns(db, "a")["api_call_count"]) == (10, 1)


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["row", "columns"]),
        st.sampled_from([None, "m1", "m2"]),
        st.one_of(st.none(), st.integers(0, 1000)),
        st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 64)),
        st.one_of(st.none(), st.integers(0, 64).map(lambda n: n / 64)),
    ),
    max_size=15,
)


@settings(
    max_examples=scale_examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls=CALLS)
def test_lines_add_up_to_the_total_and_to_the_recorded_values(
    tmp_path_factory: pytest.TempPathFactory, calls: list[Any]
) -> None:
    with SessionDB(tmp_path_factory.mktemp("calls") / "state.db", durability="normal") as db:
        check_totals(db, calls)


def check_totals(db: SessionDB, calls: list[Any]) -> None:
    for name in ("a", "b", "c"):
        db.create_session(name, "cli")
    for name, way, model, tokens, estimated, actual in calls:
        if way == "row":
            db.record_usage(
                name, model=model, input_tokens=tokens, estimated_cost_usd=estimated, actual_cost_usd=actual
            )
        else:
            db.update_token_counts(
                name,
                input_tokens=tokens or 0,
                model=model,
                estimated_cost_usd=estimated,
                actual_cost_usd=actual,
                api_call_count=1,
            )
    actual_costs = [actual for *_, actual in calls if actual is not None]
    expected = UsageLine(
        calls=len(calls),
        input_tokens=sum(call[3] or 0 for call in calls),
        estimated_cost_usd=sum(call[4] or 0.0 for call in calls),
        actual_cost_usd=sum(actual_costs) if actual_costs else None,
    )
    everything = db.usage_by_model()
    assert everything.total == expected
    each = [db.usage_of(name) for name in ("a", "b", "c")]
    for totals in (everything, *each):
        summed = UsageLine()
        for line in totals.by_model:
            summed = summed.add(line.used)
        assert summed == totals.total
    joined = UsageLine()
    for totals in each:
        joined = joined.add(totals.total)
    assert joined == expected
