"""The whole gateway starts, answers and stops without losing anything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hermes.gateway.adapter import Unreachable
from hermes.gateway.app import make_adapters
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, full_disk, in_thread, settings_of


async def test_a_message_is_answered() -> None:
    async with LocalGateway() as gateway:
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]
        assert gateway.talk(ANN) == ["hello", "you said: hello"]


async def test_conversations_continue_after_a_restart() -> None:
    async with LocalGateway() as gateway:
        for who in (ANN, BOB, in_thread(ANN)):
            await gateway.asks(who, "hello")
        before = [gateway.session_of(who) for who in (ANN, BOB, in_thread(ANN))]
        await gateway.restart()
        for who in (ANN, BOB, in_thread(ANN)):
            await gateway.asks(who, "again")
        assert [gateway.session_of(who) for who in (ANN, BOB, in_thread(ANN))] == before
        assert len(gateway.talk(ANN)) == 4


async def test_a_shutdown_finishes_running_answers_and_starts_no_others() -> None:
    async with LocalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.says(ANN, "not begun")
        closing = asyncio.create_task(gateway.app.close())
        await gateway.until(lambda: not gateway.platform.is_connected)
        with pytest.raises(Unreachable):
            await gateway.says(BOB, "too late")
        gateway.let_go("on")
        await closing
        assert gateway.heard(ANN) == ["well, you said: hold on"]
        assert [entry.event["text"] for entry in gateway.db.inbox.list_waiting()] == ["not begun"]
        assert gateway.platform.is_closed


async def test_a_chat_begins_nothing_more_while_another_is_answered() -> None:
    async with LocalGateway() as gateway:
        for source, name in ((ANN, "ann"), (BOB, "bob")):
            await gateway.says(source, f"hold {name}")
            await gateway.holds(name)
        await gateway.says(ANN, "not begun")
        session = gateway.session_of(ANN)
        closing = asyncio.create_task(gateway.app.close())
        await gateway.until(lambda: not gateway.platform.is_connected)
        gateway.let_go("ann")
        await gateway.until(lambda: gateway.db.leases.find_holder(session) is None)
        assert [entry.event["text"] for entry in gateway.db.inbox.list_waiting()] == ["hold bob", "not begun"]
        gateway.let_go("bob")
        await closing
        assert gateway.heard(ANN) == ["well, you said: hold ann"]


async def test_a_shutdown_does_not_wait_for_ever() -> None:
    async with LocalGateway(settings_of(drain_seconds=0.05)) as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        await gateway.app.close()
        assert [entry.event["text"] for entry in gateway.db.inbox.list_waiting()] == ["hold on"]
        assert gateway.db.leases.find_holder(gateway.session_of(ANN)) is None


async def test_an_idle_gateway_holds_no_lease() -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        await gateway.until(lambda: gateway.db.leases.find_holder(gateway.session_of(ANN)) is None)


async def test_the_mirrors_are_written_behind_the_store(home: Path) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        session = gateway.session_of(ANN)
    index = json.loads((home / "sessions" / "sessions.json").read_text())
    assert [entry["session_id"] for entry in index.values()] == [session]
    assert "you said: hello" in (home / "sessions" / f"{session}.jsonl").read_text()


async def test_a_full_disk_does_not_stop_the_gateway_permanently() -> None:
    async with LocalGateway() as gateway:
        with full_disk():
            await asyncio.sleep(0.1)
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]
        assert all(not task.done() for task in gateway.app._background)


async def test_a_message_stored_by_another_version_blocks_neither_the_start_nor_its_chat() -> None:
    async with LocalGateway() as gateway:
        key = (await gateway.says(ANN, "hello")).session_key
        assert key is not None
        await gateway.quiet()
        gateway.db.inbox.accept(key, "telegram", {"said": "in another shape"})
        gateway.db.inbox.accept("agent:main:telegram:dm:404", "telegram", {})
        await gateway.restart()
        assert (await gateway.says(ANN, "and on")).state == "accepted"
        await gateway.until(lambda: gateway.heard(ANN) == ["you said: hello", "you said: and on"])


def test_an_adapter_that_cannot_be_made_stops_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Telegram's library needs another package for SOCKS
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    more = {"telegram": {"bot_token": "1:a"}, "webhook": {"secret": "s" * 16}}
    platforms = {name: PlatformSettings(name, more=told) for name, told in more.items()}
    made, broken = make_adapters(GatewaySettings(platforms=platforms))
    assert list(made) == ["webhook"]
    assert broken == {"telegram": "unexpected RuntimeError"}


@pytest.mark.parametrize("later", range(4))
async def test_a_shutdown_succeeds_while_updates_arrive(later: int, home: Path) -> None:
    status = home / "gateway" / "status.json"
    async with LocalGateway() as gateway:
        status.unlink(missing_ok=True)
        keeping = asyncio.create_task(gateway.app._update_status())
        await gateway.until(status.exists)
        await asyncio.sleep(0.05)  # the adapter is polling by now
        gateway.app._state_changed.set()
        for _ in range(later):
            await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.wait([keeping], timeout=60)
        assert keeping.cancelled()
