"""The fake adapter implements the adapter protocol correctly, so that tests with it are meaningful."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hermes.gateway.adapter import (
    Capabilities,
    DeliveryUnknown,
    RateLimited,
    Receipt,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from tests.gateway.fake_adapter import FakeAdapter

ANN = Source("telegram", "42", user_id="42")


async def accepted(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
    return Receipt("accepted", event.text)


async def test_messages_are_delivered_while_the_adapter_is_connected() -> None:
    adapter = FakeAdapter()
    with pytest.raises(Unreachable):
        await adapter.hear(Event(ANN, "too early", 1.0))
    async with adapter.connected(accepted):
        assert await adapter.hear(Event(ANN, "hello", 1.0)) == ("accepted", "hello")
    with pytest.raises(Unreachable):
        await adapter.hear(Event(ANN, "too late", 1.0))


async def test_a_connection_that_is_lost_can_be_made_again() -> None:
    adapter = FakeAdapter()
    async with adapter.connected(accepted):
        adapter.disconnect()
        await asyncio.sleep(0)
        with pytest.raises(Unreachable):
            await adapter.hear(Event(ANN, "nobody there", 1.0))
    async with adapter.connected(accepted):
        assert (await adapter.hear(Event(ANN, "again", 1.0))).state == "accepted"


async def test_the_adapter_shows_and_edits_messages() -> None:
    adapter = FakeAdapter()
    sent = await adapter.send(ANN, "one", idempotency_key="a")
    assert sent is not None
    await adapter.edit(ANN, sent, "two")
    assert adapter.texts == ["two"]
    with pytest.raises(Undeliverable):
        await adapter.edit(ANN, "unknown", "three")


async def test_the_adapter_fails_as_often_as_requested() -> None:
    adapter = FakeAdapter()
    adapter.fail("send", RateLimited("slow down", 3), times=2)
    for _ in range(2):
        with pytest.raises(RateLimited):
            await adapter.send(ANN, "one", idempotency_key="a")
    await adapter.send(ANN, "one", idempotency_key="a")
    assert (adapter.texts, len(adapter.calls_of("send"))) == (["one"], 3)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_an_unknown_delivery_is_seen_twice_unless_the_adapter_is_idempotent(idempotent: bool) -> None:
    adapter = FakeAdapter(can=Capabilities(idempotent=idempotent))
    adapter.fail("send", DeliveryUnknown("no answer"), arrives=True)
    with pytest.raises(DeliveryUnknown):
        await adapter.send(ANN, "one", idempotency_key="a")
    await adapter.send(ANN, "one", idempotency_key="a")
    assert adapter.texts == (["one"] if idempotent else ["one", "one"])


async def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(Undeliverable):
        await FakeAdapter(can=Capabilities(max_length=3)).send(ANN, "four", idempotency_key="a")
