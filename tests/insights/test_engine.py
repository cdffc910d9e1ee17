"""The report has the documented keys. Its figures equal those of a simple recount by the documented rules. No
cost is counted twice, and an unknown cost does not count as zero.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.errors import InvalidArgument
from hermes.insights import InsightsEngine
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.tiers import scale_examples

DAY = 86_400.0

OVERVIEW = {
    *("total_sessions", "total_messages", "total_tool_calls", "total_input_tokens", "total_output_tokens"),
    *("total_cache_read_tokens", "total_cache_write_tokens", "total_tokens", "estimated_cost", "actual_cost"),
    *("total_hours", "avg_session_duration", "avg_messages_per_session", "avg_tokens_per_session"),
    *("user_messages", "assistant_messages", "tool_messages", "date_range_start", "date_range_end"),
    *("models_with_pricing", "models_without_pricing", "unknown_cost_sessions", "included_cost_sessions"),
}
COUNTERS = {
    *("sessions", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens"),
    *("tool_calls", "cost", "cost_status"),
}
DOCUMENTED = {
    *("days", "source_filter", "generated_at", "empty", "overview", "models", "platforms", "tools", "skills"),
    *("activity", "top_sessions"),
}
OURS = {"costs", "conversations", "daily", "active_time"}


def report(db: Any, days: int = 30, source: Any = None) -> dict[str, Any]:
    return InsightsEngine(db).generate(days, source)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}


def test_an_empty_window_is_exactly_the_documented_report(db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=time.time() - 8 * DAY)
    told = report(db, 7, "cli")
    zeros = told["skills"]["summary"]
    assert told == {
        "days": 7,
        "source_filter": "cli",
        "empty": True,
        "overview": {},
        "models": [],
        "platforms": [],
        "tools": [],
        "skills": {"summary": zeros, "top_skills": []},
        "activity": {},
        "top_sessions": [],
    }
    assert set(zeros.values()) == {0}
    assert not report(db, 9)["empty"]


def test_the_report_has_the_documented_keys_and_additional_ones(db: SessionDB) -> None:
    db.create_session("one", "cli", model="anthropic/claude-opus", started_at=time.time() - DAY)
    db.append_message("one", "assistant", "x", tool_calls=[call("skill_view", name="pdf")])
    told = report(db)
    assert set(told) == DOCUMENTED | OURS
    assert set(told["overview"]) == OVERVIEW
    assert set(told["models"][0]) == {"model", "has_pricing"} | COUNTERS
    assert set(told["platforms"][0]) == {"platform", "messages"} | COUNTERS
    assert set(told["tools"][0]) == {"tool", "count", "percentage"}
    assert set(told["skills"]) == {"summary", "top_skills"}
    assert set(told["skills"]["top_skills"][0]) == {
        *("skill", "view_count", "manage_count", "total_count", "percentage", "last_used_at"),
    }
    assert set(told["activity"]) == {
        *("by_day", "by_hour", "busiest_day", "busiest_hour", "active_days", "max_streak"),
    }
    assert [one["day"] for one in told["activity"]["by_day"]] == [
        *("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    ]
    assert [one["hour"] for one in told["activity"]["by_hour"]] == list(range(24))
    assert told["models"][0]["model"] == "claude-opus"
    json.dumps(told)


@pytest.mark.parametrize("days", [0, -1, 1.5, "7", None, True])
def test_days_are_a_whole_number_from_one_up(db: SessionDB, days: Any) -> None:
    with pytest.raises(InvalidArgument, match="days must be"):
        report(db, days)


def test_sources_are_chosen_by_their_name_one_several_or_in_an_older_spelling(db: SessionDB) -> None:
    for at, source in enumerate(["cli", "telegram", "api-server", "cli"]):
        db.create_session(f"s{at}", source)
    assert report(db, source="cli")["overview"]["total_sessions"] == 2
    several = report(db, source=["telegram", "api_server"])
    assert [one["platform"] for one in several["platforms"]] == ["api-server", "telegram"]
    assert several["source_filter"] == ["telegram", "api_server"]
    assert report(db, source="cl")["empty"]


def test_notable_sessions_are_the_longest_and_those_with_most(db: SessionDB) -> None:
    now = time.time() - DAY
    for name, length in (("20260101_000000_short", 45.0), ("20260101_000001_long", 3 * 3600 + 300.0)):
        db.create_session(name, "cli", started_at=now)
        change_rows(db, "UPDATE sessions SET ended_at = ? WHERE id = ?", now + length, name)
    db.create_session("backwards", "cli", started_at=now)
    change_rows(db, "UPDATE sessions SET ended_at = ? WHERE id = ?", now - 5, "backwards")
    db.update_token_counts("backwards", input_tokens=1000, output_tokens=234, cache_read_tokens=5)
    for _ in range(2):
        db.append_message("20260101_000000_short", "assistant", "", tool_calls=[call("a"), call("b")])
    told = report(db)
    date = time.strftime("%b %d", time.localtime(now))
    assert [(one["label"], one["value"], one["session_id"], one["date"]) for one in told["top_sessions"]] == [
        ("Longest session", "3h 5m", "20260101_000001_", date),
        ("Most messages", "2 messages", "20260101_000000_", date),
        ("Most tokens", "1,234 tokens", "backwards", date),
        ("Most tool calls", "4 calls", "20260101_000000_", date),
    ]
    assert told["overview"]["total_hours"] == pytest.approx((45 + 11_100) / 3600)
    assert told["overview"]["avg_session_duration"] == pytest.approx((45 + 11_100) / 2)


# Costs


def test_the_costs_of_a_conversation_are_counted_once(db: SessionDB) -> None:
    before = time.time() - 40 * DAY
    db.create_session("first", "telegram", started_at=before)
    db.set_session_title("first", "migration")
    db.record_usage("first", model="m", input_tokens=10, estimated_cost_usd=1.0, at=before)
    second = db.begin_continuation("first", "summary")
    db.record_usage(second, model="m", input_tokens=10, estimated_cost_usd=2.0)
    db.record_auxiliary_usage(second, model="small", input_tokens=1, estimated_cost_usd=0.25)
    helper = db.delegate(second)
    db.record_usage(helper, model="m", input_tokens=10, estimated_cost_usd=4.0)
    helpers_helper = db.delegate(helper)
    db.record_usage(helpers_helper, model="m", input_tokens=10, estimated_cost_usd=8.0)
    branch = db.branch(second)
    db.record_usage(branch, model="m", input_tokens=10, estimated_cost_usd=0.5)
    told = report(db)
    assert told["costs"]["cost"] == told["overview"]["estimated_cost"] == pytest.approx(14.75)
    assert told["costs"]["auxiliary"] == pytest.approx(0.25)
    family, other = told["conversations"]["costliest"]
    assert (family["id"], family["name"], family["source"]) == ("first", "migration #2", "telegram")
    assert (family["sessions"], family["cost"]) == (3, pytest.approx(14.25))
    assert family["cost_in_all"] == pytest.approx(db.usage_of("first", family=True).total.estimated_cost_usd)
    assert family["cost_in_all"] == pytest.approx(15.25)
    assert (other["id"], other["cost"]) == (branch, pytest.approx(0.5))
    assert told["conversations"]["total"] == 2


def test_an_unknown_cost_is_never_zero(db: SessionDB) -> None:
    db.create_session("silent", "cli", model="local/m")
    db.record_usage("silent", model="local/m", input_tokens=100)
    told = report(db)
    assert told["overview"]["unknown_cost_sessions"] == 1
    assert (told["overview"]["estimated_cost"], told["overview"]["actual_cost"]) == (None, None)
    assert (told["costs"]["cost"], told["costs"]["cost_status"]) == (None, "unknown")
    assert (told["models"][0]["cost"], told["models"][0]["has_pricing"]) == (None, False)
    assert told["daily"][0]["cost"] is None
    assert told["overview"]["models_without_pricing"] == ["m"]
    db.record_usage("silent", model="paid/p", input_tokens=1, estimated_cost_usd=0.5)
    told = report(db)
    assert (told["costs"]["cost"], told["costs"]["cost_status"]) == (0.5, "partial")
    assert told["overview"]["models_with_pricing"] == ["p"]


def test_an_answer_without_a_cost_is_unknown_and_no_answer_costs_nothing(db: SessionDB) -> None:
    db.create_session("unanswered", "cli")
    db.append_message("unanswered", "user", "hello?")
    told = report(db)
    assert (told["costs"]["cost"], told["costs"]["cost_status"]) == (0.0, "none")
    assert told["overview"]["unknown_cost_sessions"] == 0
    db.append_message("unanswered", "assistant", "hello")
    assert report(db)["overview"]["unknown_cost_sessions"] == 1


def test_bills_estimates_and_subscriptions_are_distinguished(db: SessionDB) -> None:
    uses = {
        "billed": {"estimated_cost_usd": 1.0, "actual_cost_usd": 1.5, "cost_status": "actual"},
        "estimated": {"estimated_cost_usd": 2.0, "cost_status": "estimated"},
        "included": {"estimated_cost_usd": 9.0, "cost_status": "included"},
        "free": {"estimated_cost_usd": 0.0, "cost_status": "estimated"},
        "unknown": {"estimated_cost_usd": 0.0, "cost_status": "unknown"},
    }
    for name, told_of in uses.items():
        db.create_session(name, "cli")
        db.record_usage(name, model=name, input_tokens=1, **told_of)  # type: ignore[arg-type]
        db.create_session(f"columns {name}", "cron")
        db.update_token_counts(f"columns {name}", input_tokens=1, model=name, **told_of)  # type: ignore[arg-type]
    told = report(db)
    statuses = {one["model"]: (one["cost"], one["cost_status"]) for one in told["models"]}
    assert statuses == {
        "billed": (3.0, "actual"),
        "estimated": (4.0, "estimated"),
        "included": (0.0, "included"),
        "free": (0.0, "estimated"),
        "unknown": (None, "unknown"),
    }
    overview = told["overview"]
    assert (overview["estimated_cost"], overview["actual_cost"]) == (pytest.approx(6.0), pytest.approx(3.0))
    assert (overview["unknown_cost_sessions"], overview["included_cost_sessions"]) == (2, 2)
    assert (told["costs"]["cost"], told["costs"]["cost_status"]) == (pytest.approx(7.0), "partial")


def test_columns_count_only_beyond_their_rows(db: SessionDB) -> None:
    db.create_session("both", "cli", model="m")
    db.record_usage("both", model="other", input_tokens=10, estimated_cost_usd=1.0)
    db.update_token_counts("both", input_tokens=5, estimated_cost_usd=0.5)
    told = report(db)
    by_model = {one["model"]: (one["sessions"], one["total_tokens"], one["cost"]) for one in told["models"]}
    assert by_model == {"other": (1, 10, 1.0), "m": (1, 5, pytest.approx(0.5))}
    assert told["overview"]["total_tokens"] == 15


# Tools and skills


def test_a_tool_was_used_as_often_as_it_was_called_or_answered(db: SessionDB) -> None:
    db.create_session("s", "cli")
    for _ in range(3):
        db.append_message("s", "assistant", None, tool_calls=[call("terminal"), call("web")])
    for _ in range(5):
        db.append_message("s", "tool", "ok", tool_name="web")
    db.append_message("s", "tool", "ok", tool_name="lonely")
    db.append_message("s", "user", "ok", tool_name="not a tool's answer")
    db.append_message("s", "assistant", None, tool_calls=[{"name": "flat", "arguments": {}}])
    told = {one["tool"]: one["count"] for one in report(db)["tools"]}
    assert told == {"web": 5, "terminal": 3, "flat": 1, "lonely": 1}
    assert sum(one["percentage"] for one in report(db)["tools"]) == pytest.approx(100)


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        ("not json", []),
        ("[]", []),
        ("null", []),
        ("5", []),
        ('[1, null, "x", {"function": {"name": "a"}}]', ["a"]),
        ('{"function": {"name": "a"}}', ["a"]),
        ('[{"function": {"name": 5}, "name": "b"}]', ["b"]),
        ('[{"function": {"name": ""}}]', []),
        ('[{"function": {"name": "a", "arguments": {"deep": [[[]]]}}}, {"name": "b"}]', ["a", "b"]),
        ('[{"function": {"name": "a", "weight": NaN}}]', ["a"]),
    ],
)
def test_calls_that_another_program_wrote_are_counted_as_far_as_they_can_be_read(
    db: SessionDB, stored: str, names: list[str]
) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "assistant", "x")
    change_rows(db, "UPDATE messages SET tool_calls = ?", stored)
    assert [one["tool"] for one in report(db)["tools"]] == names


def test_skills_are_those_named_in_calls_to_view_or_manage_them(db: SessionDB) -> None:
    db.create_session("s", "cli")
    at = time.time() - 50
    for step, made in enumerate(
        [
            call("skill_view", name="pdf"),
            call("skill_manage", name="pdf", action="edit"),
            call("skill_view", name="git"),
            {"function": {"name": "skill_view", "arguments": {"name": "pdf"}}},
            call("skill_view"),
            {"function": {"name": "skill_view", "arguments": "not json"}},
            call("terminal", name="not a skill"),
        ]
    ):
        db.append_message("s", "assistant", None, tool_calls=[made], timestamp=at + step)
    told = report(db)["skills"]
    assert told["summary"] == {"distinct_skills": 2, "total_views": 3, "total_manages": 1, "total_actions": 4}
    assert told["top_skills"] == [
        {
            "skill": "pdf",
            "view_count": 2,
            "manage_count": 1,
            "total_count": 3,
            "percentage": 75.0,
            "last_used_at": at + 3,
        },
        {
            "skill": "git",
            "view_count": 1,
            "manage_count": 0,
            "total_count": 1,
            "percentage": 25.0,
            "last_used_at": at + 2,
        },
    ]


# Scopes


def test_a_person_gets_a_report_on_their_own_sessions_only(db: SessionDB) -> None:
    ann, bob = db.scoped(Principal("telegram", "ann")), db.scoped(Principal("telegram", "bob"))
    for store, model, times in ((ann, "hers", 1), (bob, "his", 3)):
        for _ in range(times):
            mine = store.create_session()
            store.append_message(mine, "assistant", None, tool_calls=[call(f"tool of {model}")])
            store.record_usage(mine, model=model, input_tokens=7, estimated_cost_usd=1.0)
    db.create_session("local", "telegram")
    assert report(db)["overview"]["total_sessions"] == 5
    told = report(ann)
    assert told["overview"]["total_sessions"] == told["overview"]["total_messages"] == 1
    assert [one["model"] for one in told["models"]] == ["hers"]
    assert [one["tool"] for one in told["tools"]] == ["tool of hers"]
    assert told["costs"]["cost"] == 1.0
    assert report(db.scoped(Principal("discord", "ann")))["empty"]


# Comparison with a recount

PRICED = st.one_of(st.none(), st.integers(0, 500).map(lambda cents: cents / 100))
CALLS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["a/m1", "m1", "m2", None]),
        "purpose": st.sampled_from(["main", "auxiliary"]),
        "input_tokens": st.integers(0, 1000),
        "output_tokens": st.integers(0, 1000),
        "cache_read_tokens": st.integers(0, 50),
        "estimated_cost_usd": PRICED,
        "actual_cost_usd": PRICED,
        "cost_status": st.sampled_from([None, "estimated", "included"]),
    }
)
SESSIONS = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["cli", "telegram", "cron"]),
        "model": st.sampled_from([None, "x/m1", "m3"]),
        "age": st.floats(0, 60),
        "length": st.one_of(st.none(), st.integers(-100, 100_000)),
        "calls": st.lists(CALLS, max_size=3),
        "said": st.lists(st.sampled_from(["user", "assistant", "terminal", "web"]), max_size=6),
        "called": st.lists(st.sampled_from(["terminal", "web", "todo"]), max_size=4),
        "trashed": st.integers(0, 9).map(lambda n: n == 0),
        "rewound": st.booleans(),
    }
)


@settings(max_examples=scale_examples(160), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SESSIONS, max_size=6), st.sampled_from([1, 7, 30]), st.sampled_from([None, "cli"]))
def test_any_store_is_counted_as_by_hand(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[str, Any]], days: int, source: str | None
) -> None:
    now = time.time()
    with SessionDB(tmp_path_factory.mktemp("insights") / "state.db", durability="normal") as db:
        for at, one in enumerate(made):
            _store(db, f"s{at}", one, now)
        told = report(db, days, source)
    counted = [
        one
        for one in made
        if one["age"] < days - 0.01 and not one["trashed"] and source in (None, one["source"])
    ]
    if any(abs(one["age"] - days) <= 0.01 for one in made):
        return  # at the boundary, the exact time decides
    assert told["empty"] == (not counted)
    if counted:
        _compare(told, counted)


def _store(db: SessionDB, name: str, one: dict[str, Any], now: float) -> None:
    start = now - one["age"] * DAY
    db.create_session(name, one["source"], model=one["model"], started_at=start)
    if one["length"] is not None:
        change_rows(db, "UPDATE sessions SET ended_at = ? WHERE id = ?", start + one["length"], name)
    for role in one["said"]:
        tool = None if role in ("user", "assistant") else role
        db.append_message(name, "tool" if tool else role, "x", tool_name=tool)
    for tool in one["called"]:
        db.append_message(name, "assistant", None, tool_calls=[call(tool)])
    if one["rewound"]:
        taken_back = db.append_message(name, "user", "again")
        db.append_message(name, "assistant", None, tool_calls=[call("rewound")])
        db.rewind_to_message(name, taken_back)
    for used in one["calls"]:
        db.record_usage(name, **used)
    if one["trashed"]:
        db.trash_session(name)


def _compare(told: dict[str, Any], made: list[dict[str, Any]]) -> None:
    overview, calls = told["overview"], [used for one in made for used in one["calls"]]
    said = Counter(role for one in made for role in one["said"])
    called = Counter(tool for one in made for tool in one["called"])
    assert overview["total_sessions"] == len(made)
    assert overview["user_messages"] == said["user"]
    assert overview["assistant_messages"] == said["assistant"] + called.total()
    assert overview["tool_messages"] == said["terminal"] + said["web"]
    assert overview["total_messages"] == said.total() + called.total()
    assert overview["total_tool_calls"] == called.total()
    assert {one["tool"]: one["count"] for one in told["tools"]} == {
        tool: most for tool in ("terminal", "web", "todo") if (most := max(said[tool], called[tool]))
    }
    tokens = Counter[str]()
    for used in calls:
        tokens.update({name: count for name, count in used.items() if name.endswith("_tokens")})
    assert overview["total_tokens"] == tokens.total()
    for name in ("input_tokens", "output_tokens", "cache_read_tokens"):
        assert overview[f"total_{name}"] == tokens[name]
        assert sum(model[name] for model in told["models"]) == tokens[name]
        assert sum(platform[name] for platform in told["platforms"]) == tokens[name]
    lengths = [one["length"] for one in made if (one["length"] or 0) > 0]
    assert overview["total_hours"] * 3600 == pytest.approx(sum(lengths))

    known = [(cost, used) for used in calls if (cost := _cost(used)) is not None]
    unknown = [
        one
        for one in made
        if any(_cost(used) is None for used in one["calls"])
        or (not one["calls"] and ("assistant" in one["said"] or one["called"] or one["rewound"]))
    ]
    assert overview["unknown_cost_sessions"] == len(unknown)
    if known or not unknown:
        assert told["costs"]["cost"] == pytest.approx(sum(cost for cost, _used in known))
    else:
        assert told["costs"]["cost"] is None
    for lines in (told["models"], told["platforms"], told["daily"]):
        assert sum(line["cost"] or 0 for line in lines) == pytest.approx(told["costs"]["cost"] or 0)
    assert sum(line["sessions"] for line in told["daily"]) == len(made)
    assert sum(day["count"] for day in told["activity"]["by_day"]) == len(made)
    assert sum(hour["count"] for hour in told["activity"]["by_hour"]) == len(made)
    names = {(one["model"] or "unknown").rpartition("/")[2] for one in made}
    names |= {(used["model"] or "unknown").rpartition("/")[2] for used in calls}
    # A session without a model gets the model of its first call.
    assert {model["model"] for model in told["models"]} | {"unknown"} == names | {"unknown"}


def _cost(used: dict[str, Any]) -> float | None:
    """Return the cost of a call by the documented rules. The first of these rules that applies decides:
    billed, included, estimated, unknown."""
    if used["actual_cost_usd"] is not None:
        return float(used["actual_cost_usd"])
    if used["cost_status"] == "included":
        return 0.0
    estimate = used["estimated_cost_usd"]
    return None if estimate is None else float(estimate)
