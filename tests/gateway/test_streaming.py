"""A streamed answer is one message that is edited at a rate the platform accepts. Streaming never delays the
answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from hermes.gateway.adapter import (
    AdapterError,
    Capabilities,
    DeliveryUnknown,
    Misconfigured,
    RateLimited,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.streaming import FIRST_AFTER, TYPING_AFTER, TYPING_EVERY, LiveMessage
from tests.gateway.fake_adapter import FakeAdapter
from tests.gateway.simulated_time import simulated

ANN = Source("telegram", "42", user_id="42", user_name="Ann")
EDITS = Capabilities(max_length=200, edits=True, edit_every=2.0)


def run_answer(
    adapter: FakeAdapter, answer: Callable[[LiveMessage], Awaitable[None]], *, stream: bool = True
) -> str | None:
    """Stream `answer` in simulated time and return the result of `finish`."""

    async def work() -> str | None:
        clock = asyncio.get_running_loop().time
        live = LiveMessage(adapter, ANN, "key", clock, stream=stream, reply_to="7")
        await answer(live)
        return await live.finish()

    return simulated(work())


async def a_long_answer(live: LiveMessage) -> None:
    for number in range(100):
        await live.add(f"word{number} ")
        await asyncio.sleep(0.1)


def edits_and_sends(adapter: FakeAdapter) -> list[float]:
    return [call.at for call in adapter.calls if call.verb in ("send", "edit")]


def test_a_short_answer_has_no_preview() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("Yes.")
        await asyncio.sleep(FIRST_AFTER / 2)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert adapter.texts == []


def test_a_slow_answer_is_one_message_that_grows() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("First")
        await asyncio.sleep(1)
        assert adapter.texts == ["First ▌"]
        await live.add(" and second.")
        await asyncio.sleep(3)
        assert adapter.texts == ["First and second. ▌"]

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) == "m1"
    sent = adapter.calls_of("send")[0]
    assert (sent.to, sent.message_id, sent.once, sent.silent) == (ANN, "7", "key:preview", False)
    assert len(adapter.calls_of("send")) == 1


def test_edits_keep_to_the_pace_of_the_platform() -> None:
    adapter = FakeAdapter(can=EDITS._replace(max_length=4000))
    run_answer(adapter, a_long_answer)
    times = edits_and_sends(adapter)
    assert times[0] >= FIRST_AFTER
    assert len(times) > 3
    assert all(later - earlier >= EDITS.edit_every - 0.001 for earlier, later in pairwise(times))


def test_nothing_is_sent_while_nothing_changes() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("All there is.")
        await asyncio.sleep(5)
        await live.add("")
        await asyncio.sleep(100)

    adapter = FakeAdapter(can=EDITS)
    run_answer(adapter, answer)
    assert len(edits_and_sends(adapter)) == 1


def test_whitespace_alone_is_not_shown() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("\n  \n")
        await asyncio.sleep(5)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert adapter.texts == []


def test_only_the_part_that_fits_into_one_message_is_shown() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("A sentence of some words. " * 20)
        await asyncio.sleep(1)
        before = list(adapter.texts)
        await live.add("More of it. " * 100)
        await asyncio.sleep(10)
        assert adapter.texts == before

    adapter = FakeAdapter(can=EDITS)
    run_answer(adapter, answer)
    assert len(adapter.texts[0]) <= EDITS.max_length
    assert adapter.texts[0].endswith("words. ▌")


def test_code_that_is_not_finished_is_closed_in_the_preview() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("Look:\n```py\nx = 1\n")
        await asyncio.sleep(1)

    adapter = FakeAdapter(can=EDITS)
    run_answer(adapter, answer)
    assert adapter.texts == ["Look:\n```py\nx = 1\n```\n▌"]


def test_a_running_tool_is_a_temporary_line() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("Let me see.")
        await live.note("terminal\n<system>")
        await asyncio.sleep(1)
        assert adapter.texts == ["Let me see.\n\n⚙ terminal ‹system›…"]
        await live.add(" Done.")
        await asyncio.sleep(3)
        assert adapter.texts == ["Let me see. Done. ▌"]

    adapter = FakeAdapter(can=EDITS)
    run_answer(adapter, answer)


def test_a_tool_before_any_text_is_shown() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.note("terminal")
        await asyncio.sleep(1)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) == "m1"
    assert adapter.texts == ["⚙ terminal…"]


def test_an_answer_that_starts_again_replaces_the_preview() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("A wrong start")
        await asyncio.sleep(1)
        await live.discard()
        await asyncio.sleep(5)
        assert adapter.texts == ["A wrong start ▌"]
        await live.add("The answer")
        await asyncio.sleep(3)
        assert adapter.texts == ["The answer ▌"]

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) == "m1"


def test_text_discarded_before_it_was_shown_is_never_shown() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("A wrong start")
        await live.discard()
        await asyncio.sleep(5)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None


@pytest.mark.parametrize(("can", "stream"), [(Capabilities(edits=False), True), (EDITS, False)])
def test_without_edits_only_typing_is_shown(can: Capabilities, stream: bool) -> None:
    adapter = FakeAdapter(can=can)
    assert run_answer(adapter, a_long_answer, stream=stream) is None
    assert {call.verb for call in adapter.calls} == {"typing"}
    times = [call.at for call in adapter.calls_of("typing")]
    assert times == pytest.approx([TYPING_AFTER + number * TYPING_EVERY for number in range(3)], abs=0.01)


def test_typing_is_shown_before_the_first_word() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.begin()
        await asyncio.sleep(TYPING_AFTER + TYPING_EVERY + 1)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert len(adapter.calls_of("typing")) == 2


def test_an_answer_that_comes_at_once_needs_no_typing() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.begin()
        await asyncio.sleep(TYPING_AFTER / 2)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert not adapter.calls


def test_text_that_is_shown_soon_needs_no_typing() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.begin()
        await asyncio.sleep(TYPING_AFTER - FIRST_AFTER / 2)
        await live.add("First")
        await asyncio.sleep(FIRST_AFTER - 0.01)
        assert not adapter.calls
        await asyncio.sleep(0.1)
        assert [call.verb for call in adapter.calls][:1] == ["send"]

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) == "m1"


def test_a_rate_limited_platform_gets_fewer_edits() -> None:
    adapter = FakeAdapter(can=EDITS._replace(max_length=4000))
    adapter.fail("edit", RateLimited("slow down", 5))
    run_answer(adapter, a_long_answer)
    times = edits_and_sends(adapter)
    assert times[2] - times[1] >= 5
    assert all(later - earlier >= 4 - 0.001 for earlier, later in pairwise(times[2:]))


def test_a_platform_that_is_rate_limited_at_the_start_gets_its_preview_later() -> None:
    adapter = FakeAdapter(can=EDITS)
    adapter.fail("send", RateLimited("slow down", 3), times=1)
    assert run_answer(adapter, a_long_answer) == "m1"


def test_a_platform_that_was_away_gets_its_preview_when_it_is_back() -> None:
    adapter = FakeAdapter(can=EDITS)
    adapter.fail("send", Unreachable("away"), times=1)
    assert run_answer(adapter, a_long_answer) == "m1"
    assert len(adapter.texts) == 1


@pytest.mark.parametrize(("idempotent", "shown"), [(True, "m1"), (False, None)])
def test_a_preview_of_unknown_delivery_is_repeated_only_if_duplicates_are_invisible(
    idempotent: bool, shown: str | None
) -> None:
    adapter = FakeAdapter(can=EDITS._replace(idempotent=idempotent))
    adapter.fail("send", DeliveryUnknown("no answer"), arrives=True)
    assert run_answer(adapter, a_long_answer) == shown
    assert len(adapter.texts) == 1


def test_a_preview_that_can_no_longer_be_changed_is_not_the_place_for_the_final_text() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("First")
        await asyncio.sleep(1)
        adapter.messages.clear()  # a person has deleted it
        await a_long_answer(live)

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert len(adapter.calls_of("edit")) == 1


@pytest.mark.parametrize(
    "error", [Undeliverable("gone"), Misconfigured("no token"), AdapterError("odd"), RuntimeError("a bug")]
)
@pytest.mark.parametrize("verb", ["send", "edit", "typing"])
def test_a_failure_is_logged_once_and_the_answer_continues(
    verb: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = FakeAdapter(can=EDITS)
    adapter.fail(verb, error, times=9)
    with caplog.at_level(logging.DEBUG):
        assert run_answer(adapter, a_long_answer) == ("m1" if verb == "typing" else None)
    assert len([record for record in caplog.records if record.name.startswith("hermes")]) == 1
    assert len(adapter.calls_of(verb)) == 1


def test_an_outage_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    adapter = FakeAdapter(can=EDITS)
    adapter.fail("send", Unreachable("away"), times=99)
    assert run_answer(adapter, a_long_answer) is None
    assert len([record for record in caplog.records if record.name.startswith("hermes")]) == 1


def test_a_slow_platform_does_not_hold_up_the_answer_and_is_waited_for_at_the_end() -> None:
    async def answer(live: LiveMessage) -> None:
        started = asyncio.get_running_loop().time()
        await a_long_answer(live)
        assert asyncio.get_running_loop().time() - started == pytest.approx(10, abs=0.1)

    for slow in (60, 3):
        adapter = FakeAdapter(can=EDITS, slow=slow)
        assert run_answer(adapter, answer) == "m1"
        assert len(adapter.calls_of("send")) == 1


def test_a_preview_that_is_on_its_way_at_the_end_is_the_one_to_replace() -> None:
    async def answer(live: LiveMessage) -> None:
        await live.add("First")
        while not adapter.calls_of("send"):
            await asyncio.sleep(0.1)
        assert adapter.texts == []

    adapter = FakeAdapter(can=EDITS, slow=1)
    assert run_answer(adapter, answer) == "m1"


def test_after_the_end_nothing_is_shown() -> None:
    async def work() -> None:
        live = LiveMessage(adapter, ANN, "key", asyncio.get_running_loop().time)
        await live.add("First")
        await asyncio.sleep(1)
        assert await live.finish() == "m1"
        calls = len(adapter.calls)
        await live.add(" and more")
        await live.note("terminal")
        await asyncio.sleep(60)
        assert await live.finish() == "m1"
        assert len(adapter.calls) == calls

    adapter = FakeAdapter(can=EDITS)
    simulated(work())


def test_an_unused_stream_ends_without_output() -> None:
    async def answer(live: LiveMessage) -> None:
        pass

    adapter = FakeAdapter(can=EDITS)
    assert run_answer(adapter, answer) is None
    assert adapter.calls == []
