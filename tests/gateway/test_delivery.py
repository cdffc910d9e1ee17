"""What is to be said to a person arrives, in order, once; and where that cannot be known, they are told."""

from __future__ import annotations

import asyncio

import pytest

from hermes.gateway.adapter import (
    AdapterError,
    Capabilities,
    DeliveryUnknown,
    RateLimited,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.delivery import UNKNOWN, OutgoingMessage
from tests.gateway.local_gateway import (
    ANN,
    BOB,
    LocalGateway,
    Platform,
    another_program,
    full_disk,
    settings_of,
)
from tests.stored_rows import read_rows


def states(world: LocalGateway) -> list[str]:
    return [row[0] for row in read_rows(world.db, "SELECT state FROM outbox ORDER BY id")]


async def test_what_did_not_arrive_is_sent_again_and_keeps_its_place() -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", Unreachable("no net"), times=1)
        await world.says(ANN, "first")
        await world.says(ANN, "second")
        await world.until(lambda: world.platform.told("send"))
        world.gateway.delivery.retry_now("telegram")
        await world.quiet()
        assert world.heard(ANN) == ["you said: first", "you said: second"]


HOLDS_THE_LOCK = """
import sys
from hermes_state import SessionDB
with SessionDB() as db:
    def hold(_):
        print("ready", flush=True)
        sys.stdin.readline()
    db._engine.write(hold, share=False)
"""


async def test_what_was_not_handed_over_when_the_gateway_ended_is_sent_by_the_next() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.01)) as world:
        await world.asks(ANN, "hello")
        (key,) = {row[0] for row in read_rows(world.db, "SELECT session_key FROM outbox")}
        news = OutgoingMessage(ANN, "news")
        world.db.outbox.enqueue(key, "telegram", news.to_dict(), "news")
        with another_program(HOLDS_THE_LOCK, "") as release:
            world.gateway.delivery.wake(key)
            ending = asyncio.create_task(world.restart())
            await asyncio.sleep(0.5)  # longer than the time that deliveries are given to end
            await asyncio.to_thread(release)
        await ending
        await world.quiet()
        assert world.heard(ANN) == ["you said: hello", "news"]


async def test_one_chat_that_cannot_be_reached_does_not_hold_up_another() -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", RateLimited("slow down", 600), times=1)
        await world.says(ANN, "first")
        await world.until(lambda: world.platform.told("send"))
        await world.says(BOB, "hello")
        await world.until(lambda: world.heard(BOB) == ["you said: hello"])
        assert world.heard(ANN) == []
        world.gateway.delivery.retry_now("telegram")
        await world.quiet()
        assert world.heard(ANN) == ["you said: first"]


async def test_who_is_limited_waits_as_long_as_the_platform_says() -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", RateLimited("slow down", 0.3), times=2)
        await world.asks(ANN, "hello")
        first, second, third = world.platform.told("send")
        assert second.at - first.at >= 0.3
        assert third.at - second.at >= 0.3


async def test_what_will_never_arrive_is_given_up_and_the_next_is_sent() -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", Undeliverable("we were thrown out"))
        await world.asks(ANN, "first")
        assert await world.asks(ANN, "second") == ["you said: second"]
        assert states(world) == ["failed", "sent"]


@pytest.mark.parametrize(
    "problem", [DeliveryUnknown("no answer came"), ZeroDivisionError("a mistake of ours")]
)
@pytest.mark.parametrize("arrives", [True, False])
async def test_what_may_have_arrived_is_not_sent_twice_but_told_once(
    problem: Exception, arrives: bool
) -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", problem, arrives=arrives)
        told = await world.asks(ANN, "hello")
        assert told == [*(["you said: hello"] if arrives else []), UNKNOWN]
        assert "unknown" in (await world.asks(ANN, "/why"))[0]
        assert await world.asks(ANN, "/resend") == ["you said: hello"]


async def test_that_a_notice_is_in_doubt_is_not_told() -> None:
    async with LocalGateway() as world:
        world.platform.fail("send", DeliveryUnknown("no answer came"), times=2)
        assert await world.asks(ANN, "hello") == []
        assert states(world) == ["unknown", "unknown"]


@pytest.mark.parametrize("problem", [DeliveryUnknown("no answer came"), Unreachable("no net")])
async def test_where_it_does_not_show_what_is_in_doubt_is_sent_again(problem: AdapterError) -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(idempotent=True))) as world:
        world.platform.fail("send", problem, arrives=True)
        await world.says(ANN, "hello")
        await world.until(lambda: world.platform.told("send"))
        await world.until(lambda: "sending" not in states(world))
        world.gateway.delivery.retry_now("telegram")
        await world.quiet()
        assert world.heard(ANN) == ["you said: hello"]
        assert len(world.platform.told("send")) == 2


async def test_a_long_answer_comes_in_parts_in_order() -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(max_length=100))) as world:
        words = " ".join(f"word{number}" for number in range(60))
        parts = await world.asks(ANN, words)
        assert len(parts) > 4
        assert all(len(part) <= 100 for part in parts)
        assert " ".join(parts).split() == f"you said: {words}".split()


async def test_what_was_sent_is_known_to_be_sent_also_if_the_store_has_no_room_just_then() -> None:
    async with LocalGateway() as world:
        world.platform.slow = 0.2
        await world.says(ANN, "hello")
        await world.until(lambda: world.platform.told("send"))
        with full_disk():
            await world.until(lambda: world.heard(ANN))
            await asyncio.sleep(0.05)
        await world.quiet()
        world.platform.slow = 0.0
        assert await world.asks(ANN, "again") == ["you said: again"]
        assert states(world) == ["sent", "sent"]


async def test_what_is_answered_while_the_gateway_ends_is_still_sent() -> None:
    async with LocalGateway() as world:
        await world.says(ANN, "hold on")
        await world.says(BOB, "hold on")
        await world.until(lambda: len(world.brain.held) == 2)
        closing = asyncio.create_task(world.gateway.close())
        await world.until(lambda: not world.platform.is_connected)
        world.let_go("on")
        await closing
        assert world.heard(ANN) == world.heard(BOB) == ["well, you said: hold on"]
        assert world.db.inbox.list_waiting() == []


async def test_what_could_not_be_sent_is_sent_by_the_next_process() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.5)) as world:
        world.platform.fail("send", Unreachable("no net"), times=1)
        await world.says(ANN, "hello")
        await world.until(lambda: states(world) == ["queued"] and world.platform.told("send"))
        await world.restart()
        await world.quiet()
        assert world.heard(ANN) == ["you said: hello"]


async def test_what_is_for_a_platform_that_is_not_connected_waits_and_hurts_nobody() -> None:
    async with LocalGateway() as world:
        letter = OutgoingMessage(Source("matrix", "!a"), "hello").to_dict()
        world.db.outbox.enqueue("agent:main:matrix:dm:!a", "matrix", letter, "once")
        await world.restart()

        def waits() -> float:
            (entry,) = [one for one in world.db.outbox.list_waiting() if one.platform == "matrix"]
            return 0.0 if entry.error is None else entry.changed_at

        await world.until(waits)
        tried = waits()
        world.gateway.delivery.retry_now("telegram")
        await world.says(ANN, "hello")
        await world.until(lambda: world.heard(ANN) == ["you said: hello"])
        assert waits() == tried
