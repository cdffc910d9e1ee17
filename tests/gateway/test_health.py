"""Health and readiness checks over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hermes import __version__, clock
from hermes.errors import StoreFull, make_error
from hermes.gateway.ops import health
from hermes.gateway.ops.health import HealthSources, QueueSizes, health_app
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.platform_connections import PlatformState
from hermes.secrets import join_example
from hermes_state import SessionDB
from tests.gateway.loopback_server import client_of, served

SINCE = 1_700_000_000.0
KEY = join_example("sk-", "0123456789abcdef" * 2)


class Gateway:
    """A gateway with a state that the test sets."""

    def __init__(self) -> None:
        self.platforms: Sequence[PlatformState] = [PlatformState("telegram", "up", SINCE)]
        self.problem: Exception | None = None
        self.stuck = False
        self.metrics = GatewayMetrics(["telegram", "matrix"])

    async def write(self) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        if self.problem:
            raise self.problem

    async def waiting(self) -> QueueSizes:
        await self.write()
        return QueueSizes(inbox=3, outbox=1)

    @property
    def watched(self) -> HealthSources:
        return HealthSources(clock.now() - 60, lambda: self.platforms, self.write, self.waiting, self.metrics)


async def test_a_healthy_gateway() -> None:
    async with served(health_app(Gateway().watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
    data = answer.json()
    assert answer.status_code == 200
    assert 60 <= data.pop("uptime_seconds") < 600
    assert data == {
        "status": "ok",
        "version": __version__,
        "store": {"writable": True, "error": None},
        "waiting": {"inbox": 3, "outbox": 1},
        "platforms": {"telegram": {"state": "up", "since": clock.format_iso(SINCE), "error": None}},
    }


async def test_a_platform_that_is_down_is_reported_in_one_line_without_secrets() -> None:
    gateway = Gateway()
    gateway.platforms = [
        PlatformState("telegram", "up", SINCE),
        PlatformState("matrix", "down", SINCE, f"refused: {KEY} is not known\nTraceback"),
    ]
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["platforms"]["matrix"]["error"] == "refused: [redacted API key] is not known"


async def test_a_store_that_cannot_be_written_to_makes_it_unready_but_not_dead() -> None:
    gateway = Gateway()
    gateway.problem = make_error(StoreFull, f"there is no room on the disk for {KEY}")
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
        ready = await client.get("/readyz")
        numbers = await client.get("/metrics")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert ready.status_code == 503
    assert ready.json() == {
        "ready": False,
        "reasons": ["the store cannot be written: there is no room on the disk for [redacted API key]"],
    }
    assert answer.json()["waiting"] is None
    assert answer.json()["store"] == {
        "writable": False,
        "error": "there is no room on the disk for [redacted API key]",
    }
    assert numbers.status_code == 200
    assert "\nhermes_inbox_waiting" not in numbers.text


async def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE_S", 0.05)
    gateway = Gateway()
    gateway.stuck = True
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
        ready = await client.get("/readyz")
    assert (answer.status_code, ready.status_code) == (200, 503)
    assert answer.json()["store"]["error"] == "the store did not respond within 0.05 seconds"


async def test_the_gateway_is_ready_if_every_platform_is_connected_and_it_is_not_shutting_down() -> None:
    gateway, ending = Gateway(), False
    watched = gateway.watched._replace(is_draining=lambda: ending)
    async with served(health_app(watched)) as address, client_of(address) as client:
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})
        gateway.platforms = [PlatformState("telegram", "down", SINCE, f"refused: {KEY}\nTraceback")]
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (
            503,
            ["telegram: down (refused: [redacted API key])"],
        )
        gateway.platforms = [PlatformState("telegram", "up", SINCE)]
        ending = True
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["the gateway is shutting down"])


async def test_the_metrics_are_current() -> None:
    gateway = Gateway()
    gateway.platforms = [
        PlatformState("telegram", "up", SINCE),
        PlatformState("matrix", "connecting", SINCE),
    ]
    gateway.metrics.received.add("telegram", "accepted")
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        first = await client.get("/metrics")
        gateway.platforms = [PlatformState("telegram", "down", SINCE), PlatformState("matrix", "up", SINCE)]
        second = await client.get("/metrics")
    assert first.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert _up(first.text) == {"telegram": 1, "matrix": 0}
    assert _up(second.text) == {"telegram": 0, "matrix": 1}
    assert "\nhermes_inbox_waiting 3\n" in first.text
    assert "\nhermes_outbox_waiting 1\n" in first.text
    assert '\nhermes_messages_received_total{platform="telegram",state="accepted"} 1\n' in first.text


async def test_other_paths_and_methods_are_refused() -> None:
    async with served(health_app(Gateway().watched)) as address, client_of(address) as client:
        for method, path, status in (("GET", "/", 404), ("POST", "/healthz", 405)):
            answer = await client.request(method, path)
            assert (answer.status_code, set(answer.json())) == (status, {"error"})


async def test_concurrent_requests_write_to_the_store_once() -> None:
    """Concurrent requests share one write. Anybody can send requests, and a write is expensive. If the store
    hangs, only one thread is blocked."""
    gateway, writes, go_on = Gateway(), 0, asyncio.Event()

    async def write() -> None:
        nonlocal writes
        writes += 1
        await go_on.wait()

    watched = gateway.watched._replace(write=write)
    async with served(health_app(watched)) as address, client_of(address) as client:
        asked = [asyncio.create_task(client.get("/healthz")) for _ in range(20)]
        async with asyncio.timeout(60):
            while not writes:
                await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*asked)
        answers.append(await client.get("/healthz"))
    assert {answer.status_code for answer in answers} == {200}
    assert writes == 1


async def test_errors_and_paths_are_not_shown() -> None:
    gateway = Gateway()
    gateway.problem = make_error(StoreFull, "there is no room for /home/ann/.hermes/state.db")
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
        assert answer.json()["store"]["error"] == "there is no room for state.db"
    gateway.problem = ZeroDivisionError("in /home/ann/secret.py")
    async with served(health_app(gateway.watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
        assert (answer.status_code, answer.json()) == (500, {"error": "Internal Server Error"})


async def test_a_real_store_that_was_made_read_only(home: Path) -> None:
    SessionDB().close()
    store = SessionDB(read_only=True)

    async def write() -> None:
        await asyncio.to_thread(store.set_meta, "hermes:health", "1")

    gateway = Gateway()
    watched = gateway.watched._replace(write=write)
    async with served(health_app(watched)) as address, client_of(address) as client:
        answer = await client.get("/healthz")
        ready = await client.get("/readyz")
    store.close()
    assert ready.status_code == 503
    assert answer.json()["store"]["writable"] is False
    assert "\n" not in answer.json()["store"]["error"]


def _up(text: str) -> dict[str, float]:
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {one.labels["platform"]: one.value for one in families["hermes_platform_up"].samples}
