"""Many chats are used at the same time. Work is limited, chats take turns, and starts with old work and kills
during deliveries lose nothing.

The scenarios are small versions of those in `bench/gateway_bench.py`, with a separate gateway process whose
limits are 4.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench import gateway_bench as bench

from hermes import clock
from hermes.agent.models.call_limit import Slots
from hermes.agent.models.model import Finished, Piece, Request, Text
from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.work_limits import WorkLimits
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, Platform, settings_of

LIMITS = {
    "turns_at_once": 4,
    "model_calls_at_once": 4,
    "deliveries_at_once": 4,
    "attachments_at_once": 4,
}
CHATS = 300
CLEAN = {"lost": 0, "processed twice": 0, "unanswered": 0, "delivered twice": 0}


def make_people(count: int) -> list[Source]:
    return [Source("telegram", f"{number}", user_id=f"{number}") for number in range(100, 100 + count)]


class TestSlots:
    async def test_work_waits_in_the_order_of_arrival(self) -> None:
        slots, order = Slots(1), list[int]()

        async def work(number: int) -> None:
            async with slots:
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(5)))
        assert order == [0, 1, 2, 3, 4]
        assert (slots.in_use, slots.waiting) == (0, 0)

    async def test_a_cancelled_waiter_takes_no_slot(self) -> None:
        slots = Slots(1)
        await slots.acquire()
        waiting = [asyncio.create_task(slots.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        slots.release()  # in the same step, before the cancelled task has run
        await asyncio.gather(*waiting[:2], return_exceptions=True)
        assert slots.in_use == 1
        waiting[1].result()
        slots.release()
        await waiting[2]
        slots.release()
        assert (slots.in_use, slots.waiting) == (0, 0)

    async def test_more_slots_let_waiters_in_at_once(self) -> None:
        slots = Slots(1)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.resize(2)
        await waiting
        assert slots.in_use == 2

    async def test_a_function_is_called_with_its_slot_in_the_same_order(self) -> None:
        slots, order = Slots(1), list[str]()
        await slots.acquire()

        def start(name: str, is_needed: bool = True) -> bool:
            order.append(name)
            return is_needed

        slots.call_when_free("one", lambda: start("one", is_needed=False))
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.call_when_free("two", lambda: start("two"))
        slots.call_when_free("two", lambda: start("two again"))
        assert slots.waiting == 3
        slots.release()
        await waiting
        assert (order, slots.in_use) == (["one"], 1)
        slots.release()
        assert (order, slots.in_use, slots.waiting) == (["one", "two"], 1, 0)

    async def test_work_that_does_not_start_takes_no_slot(self, caplog: pytest.LogCaptureFixture) -> None:
        slots = Slots(1)

        def fail() -> bool:
            raise ValueError("it is broken")

        slots.call_when_free("one", fail)
        assert slots.in_use == 0
        assert "it is broken" in caplog.text

    async def test_turns_use_all_slots_again_when_no_receipt_waits(self) -> None:
        limits, started = WorkLimits(settings_of(turns_at_once=8)), list[int]()
        limits.receipts.resize(1)
        await limits.receipts.acquire()
        receipt = asyncio.create_task(limits.receipts.acquire())
        await asyncio.sleep(0)

        def start(number: int) -> bool:
            started.append(number)
            return True

        for number in range(8):
            limits.turns.call_when_free(f"{number}", partial(start, number))
        assert len(started) == 2
        limits.receipts.release()
        await receipt
        limits.receipts.release()
        assert len(started) == 8

    async def test_throttled_slots_are_handed_out_in_part(self) -> None:
        slots, started, is_throttled = Slots(8), list[int](), True
        slots.is_throttled = lambda: is_throttled

        def start(number: int) -> bool:
            started.append(number)
            return True

        for number in range(10):
            slots.call_when_free(f"{number}", partial(start, number))
        assert started == [0, 1]
        is_throttled = False
        slots.hand_out()
        assert started == list(range(8))


class CountingPlatform(Platform):
    """A platform that records how many messages are being sent at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.sending = self.most = 0

    async def send(self, to: Source, text: str, **how: Any) -> str | None:
        self.sending += 1
        self.most = max(self.most, self.sending)
        await asyncio.sleep(0.002)
        try:
            return await super().send(to, text, **how)
        finally:
            self.sending -= 1


async def test_work_at_once_is_limited() -> None:
    platform = CountingPlatform()
    gateway = LocalGateway(settings_of(**LIMITS), platform)
    calls = most_calls = 0

    async def stream(request: Request) -> AsyncIterator[Piece]:
        nonlocal calls, most_calls
        calls += 1
        most_calls = max(most_calls, calls)
        await asyncio.sleep(0.002)
        calls -= 1
        yield Text("yes")
        yield Finished("stop")

    gateway.brain.stream = stream  # type: ignore[method-assign]
    people = make_people(40)
    async with gateway:
        await asyncio.gather(*(gateway.says(person, "hello") for person in people))
        await gateway.until(lambda: all(gateway.heard(person) for person in people))
    assert 1 < most_calls <= 4
    assert 1 < platform.most <= 4


async def test_a_chat_with_many_messages_does_not_hold_up_another() -> None:
    async with LocalGateway(settings_of(**{**LIMITS, "turns_at_once": 1})) as gateway:
        await gateway.says(ANN, "hold first")
        await gateway.holds("first")
        for number in range(20):
            await gateway.says(ANN, f"{number}")
        await gateway.says(BOB, "hello")
        gateway.let_go("first")
        await gateway.until(lambda: gateway.heard(BOB))
        assert len(gateway.heard(ANN)) < 10
        await gateway.quiet()
        assert len(gateway.heard(ANN)) == 21


async def test_waiting_chats_have_no_session_yet_and_are_resumed_by_the_next_process() -> None:
    people = make_people(5)
    gateway = LocalGateway(settings_of(**{**LIMITS, "turns_at_once": 1}, drain_seconds=0.0))
    async with gateway:
        await gateway.says(ANN, "hold first")
        await gateway.holds("first")
        await asyncio.gather(*(gateway.says(person, "hello") for person in people))
        assert gateway.app.limits.describe()["turns"] == {"most": 1, "in_use": 1, "waiting": 5}
        assert gateway.db.session_count() == 1
        gateway.let_go("first")
        await gateway.restart()
        await gateway.until(lambda: all(gateway.heard(person) for person in people))
        assert gateway.db.session_count() == 6
        assert all(gateway.talk(person) == ["hello", "you said: hello"] for person in people)


@pytest.mark.parametrize("event", ["nothing", "another chat changes its owner", "restart"])
async def test_a_private_chat_belongs_to_the_person_whose_first_message_waits(event: str) -> None:
    bob_in_anns_chat = BOB._replace(chat_id=ANN.chat_id)
    async with LocalGateway(settings_of(turns_at_once=1, drain_seconds=0.0)) as gateway:
        await gateway.says(BOB, "hold first", number="1")
        await gateway.holds("first")
        await gateway.says(ANN, "my secret", number="2")
        if event == "restart":
            await gateway.restart()
        elif event != "nothing":
            gateway.app.router.forget("another chat")
        await gateway.says(bob_in_anns_chat, "what did she say?", number="3")
        gateway.let_go("first")
        await gateway.quiet()
        assert gateway.talk(ANN) == ["my secret", "you said: my secret"]


async def test_a_deleted_message_is_not_answered_although_its_chat_is_new() -> None:
    async with LocalGateway(settings_of(turns_at_once=1)) as gateway:
        await gateway.says(BOB, "hold first", number="1")
        await gateway.holds("first")
        await gateway.says(ANN, "hunter2", number="2")
        place = Source("telegram", ANN.chat_id, chat_type="group", user_id=ANN.user_id, message_id="2")
        receipt = await gateway.platform.hear(Event(place, "", clock.now(), edits="2", removes=True), ())
        assert receipt.state == "accepted"
        gateway.let_go("first")
        await gateway.quiet()
        assert gateway.heard(ANN) == []
        assert "hunter2" not in gateway.brain.request_text


async def test_a_failing_platform_is_logged_once_and_once_when_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from hermes.gateway.adapter import Unreachable

    async with LocalGateway() as gateway:
        gateway.platform.fail("send", Unreachable("no net"), times=5)
        await asyncio.gather(*(gateway.says(person, "hello") for person in make_people(5)))
        await gateway.until(lambda: len(gateway.platform.calls_of("send")) >= 5)
        gateway.app.delivery.retry_now("telegram")
        with caplog.at_level("INFO"):
            await gateway.quiet()
    lines = [record.getMessage() for record in caplog.records]
    assert sum("not delivered to telegram yet" in line for line in lines) == 1
    assert sum("work again, after 5 failed attempt(s)" in line for line in lines) == 1


# ---------------------------------------------------------------- a gateway process


OpenPlatform = Callable[..., Awaitable[bench.Platform]]


@pytest.fixture
async def open_platform(tmp_path: Path) -> AsyncIterator[OpenPlatform]:
    """Return a function that opens a platform. The platforms are closed after the test."""
    opened: list[bench.Platform] = []

    async def open_one(**how: Any) -> bench.Platform:
        opened.append(platform := bench.Platform(tmp_path, bench.ROOT, **{**LIMITS, **how}))
        await platform.open()
        return platform

    yield open_one
    for platform in opened:
        await platform.close()


@pytest.mark.full
async def test_a_crowd_is_answered_once(open_platform: OpenPlatform, tmp_path: Path) -> None:
    platform = await open_platform()
    await platform.start_gateway()
    messages = bench.messages_of(CHATS, 2, "a")
    random.Random(21).shuffle(messages)
    for message in messages:
        platform.deliver(message)
    await bench.settled(platform, lambda: sum(platform.arrived.values()) >= len(messages))
    assert await platform.end() < 20  # much longer than on an idle machine
    figures = bench.check_store(tmp_path, platform, messages)
    assert figures == {**CLEAN, "delivery unknown": 0}


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_kill_leaves_few_answers_unknown_and_none_twice(
    open_platform: OpenPlatform, tmp_path: Path, seed: int
) -> None:
    platform = await open_platform(seconds=0.05)
    await platform.start_gateway()
    messages = bench.messages_of(CHATS, 1, "k")
    random.Random(seed).shuffle(messages)
    for message in messages:
        platform.deliver(message)
    until = random.Random(seed).randrange(20, CHATS // 2)
    await bench.settled(platform, lambda: sum(platform.arrived.values()) >= until)
    await platform.kill()
    await platform.start_gateway()
    platform.deliver_unacknowledged(messages)
    await bench.settled(platform, lambda: sum(map(bool, platform.arrived.values())) >= len(messages), 5.0)
    await platform.end()
    figures = bench.check_store(tmp_path, platform, messages)
    unknown = figures.pop("delivery unknown")
    assert figures == CLEAN
    assert unknown <= LIMITS["deliveries_at_once"]


@pytest.mark.full
async def test_sigterm_with_many_chats_waiting_loses_nothing(
    open_platform: OpenPlatform, tmp_path: Path
) -> None:
    platform = await open_platform(seconds=0.02)
    await platform.start_gateway()
    messages = bench.messages_of(CHATS, 2, "t")
    for message in messages:
        platform.deliver(message)
    await bench.settled(platform, lambda: len(platform.acked) >= len(messages))
    assert await platform.end() < 20  # much longer than on an idle machine
    assert sum(platform.arrived.values()) < len(messages)
    await platform.start_gateway()
    platform.deliver_unacknowledged(messages)
    await bench.settled(platform, lambda: sum(platform.arrived.values()) >= len(messages))
    await platform.end()
    assert bench.check_store(tmp_path, platform, messages) == {**CLEAN, "delivery unknown": 0}


@pytest.mark.full
async def test_a_full_outbox_does_not_delay_the_start(open_platform: OpenPlatform, tmp_path: Path) -> None:
    platform = await open_platform(seconds=0.05)
    await platform.fill_outbox(2_000)
    await platform.start_gateway()
    assert sum(platform.arrived.values()) < 1_000
    message = bench.messages_of(1, 1, "new")[0]
    platform.deliver(message)
    await bench.settled(platform, lambda: bool(platform.acked))
    assert platform.acked
    await platform.end()
