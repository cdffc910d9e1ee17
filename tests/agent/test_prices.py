"""The cost of a model call, and the source of the price."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hermes.agent.models.prices as prices_module
from hermes.agent.models.model import Used
from hermes.agent.models.openai import OpenAIModel
from hermes.agent.models.prices import Prices, find_window, make_price
from hermes_state import SessionDB

OPENAI, LOCAL = "https://api.openai.com/v1", "http://127.0.0.1:11434/v1"
LIST = json.loads(Path(prices_module.__file__).with_name("models.json").read_text(encoding="utf-8"))
USED = Used(input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=500_000)


def test_a_known_model_is_estimated_from_the_dated_list() -> None:
    cost, price_columns = make_price(OPENAI)("gpt-5", USED)
    assert cost == pytest.approx(1.25 + 1.0 + 0.0625)
    assert price_columns == {
        "estimated_cost_usd": cost,
        "cost_status": "estimated",
        "cost_source": "list",
        "pricing_version": LIST["version"],
    }


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5",
        "claude-opus-4.5",
        "claude-opus-4-5-20251101",
        "anthropic/claude-opus-4.5",
        "openrouter/anthropic/Claude-Opus-4.5",
    ],
)
def test_a_model_is_known_by_several_names(name: str) -> None:
    assert make_price("https://openrouter.ai/api/v1")(name, Used(1_000_000, 0))[0] == 5.0


@pytest.mark.parametrize("name", ["gpt-5-ultra", "gpt", "claude-opus-4.5:free", "my-gpt-5"])
def test_a_model_with_a_similar_name_is_unknown(name: str) -> None:
    assert make_price(OPENAI)(name, USED) == (None, {"cost_status": "unknown"})


def test_the_cost_from_the_provider_is_used() -> None:
    cost, price_columns = make_price(OPENAI, {"gpt-5": {"input": 99, "output": 99}})(
        "gpt-5", USED._replace(cost_usd=0.02)
    )
    assert (cost, price_columns["actual_cost_usd"], price_columns["cost_status"]) == (0.02, 0.02, "actual")


def test_configured_prices_take_precedence_over_the_list() -> None:
    cost, price_columns = make_price(OPENAI, {"GPT-5": {"input": 2, "output": 10, "cache_read": 0}})(
        "gpt-5", USED
    )
    assert cost == pytest.approx(3.0)
    assert (price_columns["cost_source"], price_columns["pricing_version"]) == ("config.yaml", "config")


def test_tokens_without_a_count_or_price_make_the_cost_unknown() -> None:
    assert make_price(OPENAI)("gpt-5", Used())[0] is None
    assert make_price(OPENAI)("gpt-5", Used(input_tokens=5))[0] is None
    assert (
        make_price(OPENAI, {"m": {"input": 1, "output": 1}})("m", Used(1, 1, cache_read_tokens=1))[0] is None
    )
    assert (
        make_price(OPENAI, {"m": {"input": 1, "output": 1}})("m", Used(1, 1, cache_read_tokens=0))[0]
        is not None
    )


@pytest.mark.parametrize("base_url", [LOCAL, "http://192.168.1.4:8000/v1", "http://box.local/v1", None])
def test_a_local_model_costs_nothing_and_the_reason_is_recorded(base_url: str | None) -> None:
    assert make_price(base_url)("qwen3:8b", Used(5, 5)) == (
        0.0,
        {"cost_status": "included", "cost_source": "local"},
    )


def test_a_local_proxy_of_a_provider_is_estimated() -> None:
    assert make_price(LOCAL)("gpt-5", Used(1_000_000, 0))[0] == 1.25


def test_each_model_is_priced_where_it_is() -> None:
    prices = Prices({"mine": {"input": 1, "output": 1}})
    local = prices.know(OpenAIModel("qwen3:8b", base_url=LOCAL))
    assert prices(local.name, Used(5, 5))[1]["cost_status"] == "included"
    assert prices("never-heard-of", Used(5, 5))[1]["cost_status"] == "unknown"
    assert prices("mine", Used(1_000_000, 0))[0] == 1.0


def test_the_cost_of_a_long_prompt_is_listed_or_unknown() -> None:
    price = make_price("https://openrouter.ai/api/v1")
    assert price("claude-haiku-5.5", Used(100_000, 0))[0] == pytest.approx(0.01)
    assert price("claude-haiku-5.5", Used(50_000, 0, cache_read_tokens=50_001))[0] == pytest.approx(
        0.0275, rel=1e-3
    )
    assert price("gpt-6-sol", Used(272_000, 0))[0] is not None
    assert price("gpt-6-sol", Used(272_001, 0))[0] is None


def test_a_price_that_has_run_out_is_not_used() -> None:
    for when, known in (
        (datetime(2026, 12, 31, 23, tzinfo=UTC), True),
        (datetime(2027, 1, 1, tzinfo=UTC), False),
    ):
        price = make_price("https://openrouter.ai/api/v1", at=when.timestamp())
        assert (price("gemini-3.8-flash", Used(1, 1))[0] is not None) == known


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7))
def test_costs_add_up(fresh: int, cached: int, made: int) -> None:
    price = make_price(OPENAI)
    whole = price("gpt-5", Used(fresh, made, cached))[0]
    parts = [price("gpt-5", one)[0] for one in (Used(fresh, 0), Used(0, made), Used(0, 0, cached))]
    assert whole == pytest.approx(sum(part or 0.0 for part in parts))


def test_every_line_of_the_list_says_from_where_and_when() -> None:
    assert len(LIST["models"]) >= 24
    for entry in LIST["models"].values():
        assert entry["source"].startswith("https://")
        assert date.fromisoformat(entry["read"]) <= date.fromisoformat(LIST["version"])
        assert 0 < entry["input"] <= entry["output"]
        assert entry.get("cache_read", 0) < entry["input"]


def test_the_context_windows_of_known_models() -> None:
    assert find_window("openai/gpt-4o-mini-2024-07-18") == 128_000
    assert find_window("nobody-knows-this") is None


def test_the_cost_is_in_the_form_that_the_store_accepts(db: SessionDB) -> None:
    db.create_session("s", "cli")
    for model, base_url in (("gpt-5", OPENAI), ("mystery", OPENAI), ("qwen3:8b", LOCAL)):
        price_columns = make_price(base_url)(model, USED)[1]
        db.record_usage("s", model=model, input_tokens=1_000_000, output_tokens=100_000, **price_columns)
    assert db.usage_of("s").total.estimated_cost_usd == pytest.approx(2.3125)
