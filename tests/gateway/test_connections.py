"""Platforms connect and reconnect automatically. A platform that fails does not stop another."""

from __future__ import annotations

import asyncio

import pytest

from hermes.gateway import platform_connections
from hermes.gateway.adapter import Misconfigured, RateLimited, Receipt, Unreachable
from hermes.gateway.inbound_events import Event
from hermes.gateway.platform_connections import Connections, PlatformState
from hermes.gateway.settings import PlatformSettings
from tests.gateway.fake_adapter import FakeAdapter
from tests.gateway.local_gateway import ANN, LocalGateway, Platform, settings_of


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_connections, "FIRST_PAUSE_S", 0.01)


async def _receive(_event: Event, _offered: object) -> Receipt:
    return Receipt("ignored")


class Watched:
    def __init__(self, **adapters: FakeAdapter) -> None:
        self.changes: list[tuple[str, str]] = []
        self.connections = Connections(adapters, _receive, self._tell)

    def _tell(self, now: PlatformState) -> None:
        self.changes.append((now.name, now.state))

    async def until(self, *changes: tuple[str, str]) -> None:
        async with asyncio.timeout(60):
            while self.changes != list(changes):
                await asyncio.sleep(0.005)


async def test_a_connection_that_is_lost_is_made_again() -> None:
    adapter = FakeAdapter("telegram")
    watched = Watched(telegram=adapter)
    watched.connections.open()
    await watched.until(("telegram", "up"))
    adapter.disconnect()
    await watched.until(("telegram", "up"), ("telegram", "down"), ("telegram", "up"))
    assert watched.connections.states["telegram"].error is None
    await watched.connections.close()
    assert adapter.is_closed


async def test_the_gateway_gives_up_only_if_no_platform_can_be_connected() -> None:
    wrong, good = FakeAdapter("telegram"), FakeAdapter("matrix")
    wrong.fail("run", Misconfigured("no such bot"))
    watched = Watched(telegram=wrong, matrix=good)
    watched.connections.add_broken("webhook", "its secret is short")
    watched.connections.open()
    await watched.until(("webhook", "misconfigured"), ("telegram", "misconfigured"), ("matrix", "up"))
    assert not watched.connections.hopeless.is_set()
    good.fail("run", Misconfigured("not any more"))
    good.disconnect()
    async with asyncio.timeout(60):
        await watched.connections.hopeless.wait()
    assert watched.connections.states["webhook"].error == "its secret is short"
    await watched.connections.close()


@pytest.mark.parametrize(
    "problem", [Unreachable("no net"), RateLimited("slow down", 0.01), OSError("no"), KeyError("x")]
)
async def test_any_failure_is_retried(problem: Exception) -> None:
    adapter = FakeAdapter("telegram")
    adapter.fail("run", problem, times=2)
    watched = Watched(telegram=adapter)
    watched.connections.open()
    await watched.until(("telegram", "down"), ("telegram", "down"), ("telegram", "up"))
    await watched.connections.close()


async def test_a_misconfigured_platform_is_not_retried_and_the_reason_shows_no_secret() -> None:
    adapter = FakeAdapter("telegram")
    adapter.fail("run", Misconfigured("the token 123456789:AAHfiqksKZ8WmR2zMM7kZzIVQzN1x4fCxyz is refused"))
    watched = Watched(telegram=adapter)
    watched.connections.open()
    await watched.until(("telegram", "misconfigured"))
    error_text = watched.connections.states["telegram"].error or ""
    assert "refused" in error_text
    assert "AAHfiqks" not in error_text
    await watched.connections.close()


async def test_an_adapter_that_cannot_be_closed_does_not_keep_others_open() -> None:
    class Stubborn(FakeAdapter):
        async def close(self) -> None:
            raise ZeroDivisionError("a mistake of ours")

    other = FakeAdapter("matrix")
    watched = Watched(telegram=Stubborn("telegram"), matrix=other)
    watched.connections.open()
    await watched.connections.close()
    assert other.is_closed


async def test_a_broken_platform_next_to_a_good_one() -> None:
    broken = Platform("matrix")
    broken.fail("run", Unreachable("no net"), times=1000)
    settings = settings_of()
    settings = settings.replace(
        platforms={**settings.platforms, "matrix": PlatformSettings("matrix", allow_all=True)}
    )
    async with LocalGateway(settings, matrix=broken) as gateway:
        assert await gateway.asks(ANN, "hello") == ["you said: hello"]
        states = gateway.app.connections.states
        assert states["telegram"].state == "up"
        assert states["matrix"].state == "down"
