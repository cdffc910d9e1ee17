"""The daily limit of a person: which calls count, who is exempt, when it resets, and what people are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine

from hermes.gateway.sessions.daily_limit import find_day
from hermes.gateway.settings import GatewaySettings, ResetPolicy
from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, calls, says, usage
from tests.gateway.local_gateway import ANN, BOB, in_group, in_thread, settings_of
from tests.gateway.served_gateway import ServedGateway

EVENING = datetime(2026, 5, 4, 20, 0, tzinfo=UTC)
HOUR = 3600.0


@pytest.fixture(autouse=True)
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(EVENING, tick=True) as traveller:
        yield traveller


def limited(**changed: Any) -> GatewaySettings:
    return settings_of(
        **{"daily_cost_limit_usd": 0.5, "reset": ResetPolicy(timezone="Europe/Berlin"), **changed},
        platform={"owners": frozenset({"1"})},
    )


def dear(text: str = "an answer") -> Reply:
    """An answer that costs 0.30 dollars and 1200 tokens at the prices of `served_gateway`."""
    return says(text, used=usage(prompt_tokens=1_000, completion_tokens=200))


TOLD = "◌ You have used your limit for today ($0.50); it resets tomorrow 00:00."


async def test_a_person_over_the_limit_is_told_once_per_message_when_it_resets(
    home: Path, model_server: ModelServer, clock: time_machine.Traveller
) -> None:
    async with ServedGateway(home, model_server, settings=limited()) as gateway:
        model_server.will(*[dear()] * 6)
        for _ in range(2):
            assert await gateway.asks(BOB, "hello") == ["an answer"]
        assert await gateway.asks(BOB, "hello again") == [TOLD]
        assert await gateway.asks(BOB, "/retry") == ["↻ Once more: “hello”", TOLD]
        assert len(model_server.requests) == 2
        assert "hello again" not in gateway.talk(BOB)
        clock.shift(1.9 * HOUR)  # 21:54 in UTC, 23:54 in Berlin
        assert await gateway.asks(BOB, "now?") == [TOLD]
        clock.shift(0.2 * HOUR)
        assert await gateway.asks(BOB, "now?") == ["an answer"]


async def test_all_conversations_of_a_person_count_and_those_of_others_do_not(
    home: Path, model_server: ModelServer
) -> None:
    async with ServedGateway(home, model_server, settings=limited()) as gateway:
        model_server.will(*[dear()] * 6)
        await gateway.asks(BOB, "hello")
        await gateway.asks(BOB, "/new")
        await gateway.asks(in_group(BOB), "hello")
        assert await gateway.asks(BOB, "hello") == [TOLD]
        assert await gateway.asks(in_group(BOB), "hello") == [TOLD]
        other = BOB._replace(chat_id="3", user_id="3", user_name="Cem")
        assert await gateway.asks(other, "hello") == ["an answer"]


async def test_a_deleted_conversation_still_counts(home: Path, model_server: ModelServer) -> None:
    async with ServedGateway(home, model_server, settings=limited(daily_cost_limit_usd=0.3)) as gateway:
        model_server.will(dear(), dear())
        await gateway.asks(BOB, "hello")
        gateway.db.trash_session(gateway.session_of(BOB))
        (told,) = (await gateway.asks(BOB, "hello"))[-1:]
        assert told.startswith("◌ You have used your limit for today ($0.30)")


@pytest.mark.parametrize(("limit_owners", "answered"), [(False, True), (True, False)])
async def test_owners_are_exempt_unless_a_setting_says_otherwise(
    home: Path, model_server: ModelServer, limit_owners: bool, answered: bool
) -> None:
    settings = limited(limit_owners=limit_owners, daily_cost_limit_usd=0.3)
    async with ServedGateway(home, model_server, settings=settings) as gateway:
        model_server.will(dear(), dear())
        await gateway.asks(ANN, "hello")
        assert (await gateway.asks(ANN, "hello") == ["an answer"]) is answered


async def test_a_shared_chat_has_its_own_limit(home: Path, model_server: ModelServer) -> None:
    async with ServedGateway(home, model_server, settings=limited(daily_cost_limit_usd=0.3)) as gateway:
        model_server.will(dear(), dear())
        await gateway.asks(in_thread(ANN), "hello")
        (told,) = await gateway.asks(in_thread(BOB), "hello")
        assert told == "◌ This chat has used its limit for today ($0.30); it resets tomorrow 00:00."
        assert await gateway.asks(BOB, "hello") == ["an answer"]


async def test_tokens_can_be_limited_for_models_without_a_price(
    home: Path, model_server: ModelServer
) -> None:
    settings = limited(daily_cost_limit_usd=0, daily_token_limit=1_200)
    async with ServedGateway(home, model_server, settings=settings) as gateway:
        model_server.will(dear())
        await gateway.asks(BOB, "hello")
        (told,) = await gateway.asks(BOB, "hello")
        assert told == "◌ You have used your limit for today (1,200 tokens); it resets tomorrow 00:00."


async def test_titles_and_subagents_count(home: Path, model_server: ModelServer) -> None:
    async with ServedGateway(home, model_server, settings=limited(), title=True) as gateway:
        model_server.will(dear(), dear("A short title"))
        await gateway.asks(BOB, "hello")
        await gateway.until(lambda: gateway.db.get_session_title(gateway.session_of(BOB)))
        assert await gateway.asks(BOB, "hello") == [TOLD]
        cem = BOB._replace(chat_id="3", user_id="3", user_name="Cem")
        model_server.will(
            calls(("c1", "delegate_task", json.dumps({"goal": "look"}))),
            dear(),
            dear("done"),
            dear("A title"),
        )
        assert await gateway.asks(cem, "ask another") == ["done"]
        assert await gateway.asks(cem, "hello") == [TOLD]


async def test_the_status_says_what_is_left(home: Path, model_server: ModelServer) -> None:
    settings = limited(daily_token_limit=5_000)
    async with ServedGateway(home, model_server, settings=settings) as gateway:
        model_server.will(dear(), dear())
        await gateway.asks(BOB, "hello")
        (status,) = await gateway.asks(BOB, "/status")
        assert "Left for today: $0.20 of $0.50, 3,800 of 5,000 tokens (until tomorrow 00:00)" in status
        await gateway.asks(in_group(BOB), "hello")
        assert "Left for today" not in (await gateway.asks(in_group(BOB), "/status"))[0]
        assert "Left for today" not in (await gateway.asks(ANN, "/status"))[0]


async def test_nothing_is_compressed_beyond_the_limit(home: Path, model_server: ModelServer) -> None:
    async with ServedGateway(home, model_server, settings=limited(daily_cost_limit_usd=0.3)) as gateway:
        model_server.will(dear())
        await gateway.asks(BOB, "hello")
        (told,) = await gateway.asks(BOB, "/compress")
        assert told.startswith("You have used your limit for today")


# ---------------------------------------------------------------- the store and the day


def test_the_store_sums_only_calls_of_the_owner_since_a_time(db: SessionDB) -> None:
    from hermes.store.people import Principal

    bob = db.scoped(Principal("telegram", "2", "2"))
    mine, other = bob.create_session(), db.scoped(Principal("telegram", "3", "3")).create_session()
    bob.record_usage(mine, model="m", input_tokens=5, output_tokens=1, estimated_cost_usd=1.0, at=50.0)
    bob.record_usage(mine, model="m", input_tokens=7, cache_read_tokens=2, estimated_cost_usd=2.0, at=100.0)
    bob.record_usage(mine, model="m", output_tokens=1, estimated_cost_usd=9.0, actual_cost_usd=4.0, at=101.0)
    db.record_usage(other, model="m", input_tokens=100, estimated_cost_usd=100.0, at=101.0)
    owner = Principal("telegram", "2").person
    assert bob.usage_of_owner(owner, 100.0) == db.usage_of_owner(owner, 100.0) == (2, 10, 6.0)
    assert bob.usage_of_owner(Principal("telegram", "3").person, 0.0) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("now", "begin", "end"),
    [
        ("2026-05-04T22:30", "2026-05-04T22:00", "2026-05-05T22:00"),
        ("2026-03-29T10:00", "2026-03-28T23:00", "2026-03-29T22:00"),  # clocks go forward
        ("2026-10-25T23:30", "2026-10-25T23:00", "2026-10-26T23:00"),  # the day after a day of 25 hours
    ],
)
def test_a_day_begins_at_midnight_in_the_time_zone(now: str, begin: str, end: str) -> None:
    def at(text: str) -> float:
        return datetime.fromisoformat(f"{text}+00:00").timestamp()

    assert find_day(at(now), ZoneInfo("Europe/Berlin")) == (at(begin), at(end))
    assert find_day(at(begin), ZoneInfo("Europe/Berlin"))[0] == at(begin)
