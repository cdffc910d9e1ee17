"""Messages to people arrive once and in order. If the delivery of a message is unknown, the person is told."""

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


def states(gateway: LocalGateway) -> list[str]:
    return [row[0] for row in read_rows(gateway.db, "SELECT state FROM outbox ORDER BY id")]


async def test_a_message_that_did_not_arrive_is_sent_again_in_order() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", Unreachable("no net"), times=1)
        await gateway.says(ANN, "first")
        await gateway.says(ANN, "second")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        gateway.app.delivery.retry_now("telegram")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: first", "you said: second"]


HOLDS_THE_LOCK = """
import sys
from hermes_state import SessionDB
with SessionDB() as db:
    def hold(_):
        print("ready", flush=True)
        sys.stdin.readline()
    db._engine.write(hold, share=False)
"""


async def test_unsent_messages_are_sent_by_the_next_gateway() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.01)) as gateway:
        await gateway.asks(ANN, "hello")
        (key,) = {row[0] for row in read_rows(gateway.db, "SELECT session_key FROM outbox")}
        news = OutgoingMessage(ANN, "news")
        gateway.db.outbox.enqueue(key, "telegram", news.to_dict(), "news")
        with another_program(HOLDS_THE_LOCK, "") as release:
            gateway.app.delivery.wake(key, "telegram")
            ending = asyncio.create_task(gateway.restart())
            await asyncio.sleep(0.5)  # longer than the time limit for deliveries at the end
            await asyncio.to_thread(release)
        await ending
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: hello", "news"]


async def test_a_message_that_is_being_sent_when_the_gateway_ends_is_reported_by_the_next() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.01)) as gateway:
        await gateway.asks(ANN, "hello")
        (key,) = {row[0] for row in read_rows(gateway.db, "SELECT session_key FROM outbox")}
        gateway.platform.slow = 60
        await gateway.app.delivery.post(key, OutgoingMessage(ANN, "news"), "news")
        await gateway.until(lambda: len(gateway.platform.calls_of("send")) == 2)
        gateway.platform.slow = 0
        await gateway.restart()
        await gateway.asks(ANN, "and now?")
        assert gateway.heard(ANN) == ["you said: hello", UNKNOWN, "you said: and now?"]
        assert states(gateway) == ["sent", "unknown", "sent", "sent"]


async def test_one_chat_that_cannot_be_reached_does_not_hold_up_another() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", RateLimited("slow down", 600), times=1)
        await gateway.says(ANN, "first")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        await gateway.says(BOB, "hello")
        await gateway.until(lambda: gateway.heard(BOB) == ["you said: hello"])
        assert gateway.heard(ANN) == []
        gateway.app.delivery.retry_now("telegram")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: first"]


async def test_a_rate_limited_delivery_waits_as_long_as_requested() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", RateLimited("slow down", 0.3), times=2)
        await gateway.asks(ANN, "hello")
        first, second, third = gateway.platform.calls_of("send")
        assert second.at - first.at >= 0.3
        assert third.at - second.at >= 0.3


async def test_an_undeliverable_message_is_given_up_and_the_next_is_sent() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", Undeliverable("we were thrown out"))
        await gateway.asks(ANN, "first")
        assert await gateway.asks(ANN, "second") == ["you said: second"]
        assert states(gateway) == ["failed", "sent"]


@pytest.mark.parametrize(
    "problem", [DeliveryUnknown("no answer came"), ZeroDivisionError("a mistake of ours")]
)
@pytest.mark.parametrize("arrives", [True, False])
async def test_an_unknown_delivery_is_not_repeated_and_reported_once(
    problem: Exception, arrives: bool
) -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", problem, arrives=arrives)
        replies = await gateway.asks(ANN, "hello")
        assert replies == [*(["you said: hello"] if arrives else []), UNKNOWN]
        assert "unknown" in (await gateway.asks(ANN, "/why"))[0]
        assert await gateway.asks(ANN, "/resend") == ["you said: hello", "↻ 1 message sent again."]


async def test_resend_sends_exactly_the_answer_whose_delivery_is_unknown() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", DeliveryUnknown("no answer came"))
        assert await gateway.asks(ANN, "first") == [UNKNOWN]
        assert await gateway.asks(ANN, "second") == ["you said: second"]
        assert await gateway.asks(ANN, "/resend") == ["you said: first", "↻ 1 message sent again."]
        assert await gateway.asks(ANN, "/resend") == ["you said: second"]
        assert "unknown" not in states(gateway)


async def test_stop_discards_messages_that_are_not_sent_yet() -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(max_length=100))) as gateway:
        gateway.platform.fail("send", Unreachable("no net"), times=1)
        await gateway.says(ANN, " ".join(f"word{number}" for number in range(60)))
        await gateway.until(lambda: gateway.platform.calls_of("send") and "sending" not in states(gateway))
        parts = states(gateway).count("queued")
        await gateway.says(ANN, "/stop")
        gateway.app.delivery.retry_now("telegram")
        await gateway.quiet()
        assert gateway.heard(ANN) == [f"⏹ {parts} messages will not be sent."]
        assert states(gateway) == ["failed"] * parts + ["sent"]
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]


async def test_an_unknown_delivery_of_a_notice_is_not_reported() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.fail("send", DeliveryUnknown("no answer came"), times=2)
        assert await gateway.asks(ANN, "hello") == []
        assert states(gateway) == ["unknown", "unknown"]


@pytest.mark.parametrize("problem", [DeliveryUnknown("no answer came"), Unreachable("no net")])
async def test_an_unknown_delivery_is_repeated_if_duplicates_are_invisible(problem: AdapterError) -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(idempotent=True))) as gateway:
        gateway.platform.fail("send", problem, arrives=True)
        await gateway.says(ANN, "hello")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        await gateway.until(lambda: "sending" not in states(gateway))
        gateway.app.delivery.retry_now("telegram")
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: hello"]
        assert len(gateway.platform.calls_of("send")) == 2


async def test_a_long_answer_comes_in_parts_in_order() -> None:
    async with LocalGateway(platform=Platform(can=Capabilities(max_length=100))) as gateway:
        words = " ".join(f"word{number}" for number in range(60))
        parts = await gateway.asks(ANN, words)
        assert len(parts) > 4
        assert all(len(part) <= 100 for part in parts)
        assert " ".join(parts).split() == f"you said: {words}".split()


async def test_a_sent_message_is_recorded_even_if_the_disk_is_full_at_first() -> None:
    async with LocalGateway() as gateway:
        gateway.platform.slow = 0.2
        await gateway.says(ANN, "hello")
        await gateway.until(lambda: gateway.platform.calls_of("send"))
        with full_disk():
            await gateway.until(lambda: gateway.heard(ANN))
            await asyncio.sleep(0.05)
        await gateway.quiet()
        gateway.platform.slow = 0.0
        assert await gateway.asks(ANN, "again") == ["you said: again"]
        assert states(gateway) == ["sent", "sent"]


async def test_answers_that_end_during_a_shutdown_are_sent() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.says(BOB, "hold on")
        await gateway.until(lambda: len(gateway.brain.held) == 2)
        closing = asyncio.create_task(gateway.app.close())
        await gateway.until(lambda: not gateway.platform.is_connected)
        gateway.let_go("on")
        await closing
        assert gateway.heard(ANN) == gateway.heard(BOB) == ["well, you said: hold on"]
        assert gateway.db.inbox.list_waiting() == []


async def test_a_message_that_could_not_be_sent_is_sent_by_the_next_process() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.5)) as gateway:
        gateway.platform.fail("send", Unreachable("no net"), times=1)
        await gateway.says(ANN, "hello")
        await gateway.until(lambda: states(gateway) == ["queued"] and gateway.platform.calls_of("send"))
        await gateway.restart()
        await gateway.quiet()
        assert gateway.heard(ANN) == ["you said: hello"]


async def test_messages_to_a_platform_that_is_not_connected_wait() -> None:
    async with LocalGateway() as gateway:
        letter = OutgoingMessage(Source("matrix", "!a"), "hello").to_dict()
        gateway.db.outbox.enqueue("agent:main:matrix:dm:!a", "matrix", letter, "once")
        await gateway.restart()

        await gateway.says(ANN, "hello")
        await gateway.until(lambda: gateway.heard(ANN) == ["you said: hello"])
        (entry,) = [one for one in gateway.db.outbox.list_waiting() if one.platform == "matrix"]
        assert entry.state == "queued"
