"""Failed authentication. An address that fails too often must wait, twice as long each time. A trusted proxy
names the address of the client.
"""

from __future__ import annotations

import logging

import pytest

from hermes import audit_log, clock
from hermes.gateway.auth_failures import AuthFailures, make_group
from hermes.gateway.http.client_address import choose_address, parse_networks
from tests.server.api_gateway import KEY, open_api_gateway


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_that_fails_too_often_waits_twice_as_long_each_time() -> None:
    time, seen = Time(), list[str]()
    failures = AuthFailures(4, lambda _platform, kind: seen.append(kind), now=time)
    waits = []
    for _ in range(9):
        while not (wait := failures.add("api-server", "192.0.2.1", "key", "x")):
            pass
        waits.append(wait)
        assert failures.get_wait("192.0.2.1") == wait
        assert failures.add("api-server", "192.0.2.1", "key", "x") == wait  # the wait does not begin again
        time.now += wait
        assert failures.get_wait("192.0.2.1") == 0
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert set(seen) == {"key"}
    assert failures.add("api-server", "192.0.2.2", "key", "x") == 0
    time.now += clock.HOUR + 1
    assert [failures.add("api-server", "192.0.2.1", "key", "x") for _ in range(5)] == [0, 0, 0, 0, 60]


def test_a_failure_now_and_then_never_has_to_wait() -> None:
    time = Time()
    failures = AuthFailures(2, now=time)
    for _ in range(200):
        assert failures.add("api-server", "192.0.2.1", "key", "x") == 0
        time.now += 30


def test_any_number_of_addresses_takes_bounded_memory_and_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = AuthFailures(1_000_000, most=100)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            failures.add("api-server", "192.0.2.1", "key", "unknown, fingerprint 0123")
    assert len(caplog.records) == 10  # the powers of two up to 512
    assert "api-server: refused a key from 192.0.2.1 (unknown, fingerprint 0123); 512 so far" in caplog.text
    for number in range(1000):
        failures.add("api-server", f"10.0.{number // 250}.{number % 250}", "key", "x")
    assert len(failures._records) == 100


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("telegram:7", "telegram:8", False),
    ],
)
def test_the_addresses_of_one_host_are_counted_together(one: str, other: str, same: bool) -> None:
    assert (make_group(one) == make_group(other)) is same


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.9", ["203.0.113.5"], "192.0.2.9"),  # this proxy is not trusted
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("::ffff:127.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        # the first address was written by the client
        ("127.0.0.1", ["198.51.100.1, 203.0.113.5"], "203.0.113.5"),
        ("127.0.0.1", ["203.0.113.5, 10.1.2.3"], "203.0.113.5"),
        ("127.0.0.1", ["203.0.113.5", "10.1.2.3"], "203.0.113.5"),
        ("127.0.0.1", ["203.0.113.5, nonsense"], "127.0.0.1"),
        ("127.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("127.0.0.1", ["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
    ],
)
def test_only_a_trusted_proxy_can_name_the_client(peer: str, forwarded: list[str], address: str) -> None:
    trusted = parse_networks(("127.0.0.1", "10.0.0.0/8"))
    assert choose_address(peer, forwarded, trusted) == address


async def test_wrong_keys_are_logged_without_the_key_counted_and_slowed_down_per_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = "this is not the key of anybody"
    async with open_api_gateway(wrong_keys_per_minute=2, trusted_proxies=("127.0.0.1",)) as gateway:
        statuses = []
        for address in ("203.0.113.5", "203.0.113.5", "203.0.113.5", "203.0.113.6"):
            async with gateway.http(wrong, **{"X-Forwarded-For": address}) as client:
                answer = await client.get("/v1/models")
                statuses.append((answer.status_code, answer.headers.get("retry-after")))
        assert statuses == [(401, None), (401, None), (429, "60"), (401, None)]
        async with gateway.http(**{"X-Forwarded-For": "203.0.113.5"}) as client:
            assert (await client.get("/v1/models")).status_code == 200  # the right key is always accepted
        metrics = gateway.app.context.metrics.render()
        assert 'hermes_auth_failures_total{surface="api-server",kind="key"} 4' in metrics
    assert "refused a key from 203.0.113.6 (unknown, fingerprint " in caplog.text
    assert "203.0.113.5 must wait 60 s: 3 failures" in caplog.text
    assert wrong not in caplog.text
    assert KEY not in caplog.text
    (entry,) = [entry for entry in audit_log.read() if entry["action"] == "auth.blocked"]
    assert entry["details"]["address"] == "203.0.113.5"
