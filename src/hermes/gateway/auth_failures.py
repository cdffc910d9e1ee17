"""Limits on failed authentication: wrong keys, signatures and codes. Failures are counted and logged per address
or person, in bounded memory.

An address may fail `per_minute` times a minute. After more failures it must wait one minute. Each further wait is
twice as long, up to an hour, and after each wait the allowed number of failures is halved. An hour without a
failure clears the record. The caller decides whether a right key is accepted during a wait.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from hermes import audit_log, clock
from hermes.clock import MOST_REMEMBERED
from hermes.logs import get_logger

FIRST_WAIT_S, LONGEST_WAIT_S = clock.MINUTE, clock.HOUR
FORGOTTEN_AFTER_S = clock.HOUR

Kind = Literal["key", "signature", "code"]
Observe = Callable[[str, Kind], None]
"""Counts a failure for the metrics. Called with the platform and the kind of credential."""

_log = get_logger(__name__)


class _Record:
    __slots__ = ("at", "blocked_until", "failures", "left", "waits")

    def __init__(self, left: float, at: float) -> None:
        self.left, self.at = left, at
        self.waits = self.failures = 0
        self.blocked_until = 0.0


class AuthFailures:
    def __init__(
        self,
        per_minute: int,
        observe: Observe = lambda _platform, _kind: None,
        *,
        now: Callable[[], float] = clock.now,
        most: int = MOST_REMEMBERED,
    ) -> None:
        self._per_minute, self._observe, self._now, self._most = per_minute, observe, now, most
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def change(self, per_minute: int) -> None:
        """Set the allowed number of failures per minute. Failures that were recorded before still count."""
        self._per_minute = per_minute

    def get_wait(self, who: str) -> float:
        """Return how many seconds `who`, an address or a person, must wait. 0 means no wait."""
        record = self._records.get(make_group(who))
        return 0.0 if record is None else max(0.0, record.blocked_until - self._now())

    def add(self, platform: str, who: str, kind: Kind, problem: str) -> float:
        """Record a failure of `who`, an address or a person. Return how many seconds `who` must wait; 0 means no
        wait.
        `problem` describes the credential without revealing it. A line is logged for failures number 1, 2, 4, 8
        and so on, and for each new wait.
        """
        now, record = self._now(), self._take(make_group(who))
        record.failures += 1
        wait = max(0.0, record.blocked_until - now)
        if not wait:
            passed = max(0.0, now - record.at)
            most = max(1, self._per_minute >> record.waits)
            record.left = min(float(most), record.left + passed * most / 60)
            record.at = now
            if record.left >= 1:
                record.left -= 1
            else:
                wait = min(FIRST_WAIT_S * 2.0**record.waits, LONGEST_WAIT_S)
                record.waits += 1
                record.blocked_until, record.left = (
                    now + wait,
                    float(max(1, self._per_minute >> record.waits)),
                )
                _log.warning("%s: %s must wait %.0f s: %d failures", platform, who, wait, record.failures)
                audit_log.record(
                    "auth.blocked",
                    platform=platform,
                    address=who,
                    failures=record.failures,
                    seconds=int(wait),
                )
        self._observe(platform, kind)
        if not wait and record.failures & (record.failures - 1) == 0:
            _log.warning(
                "%s: refused a %s from %s (%s); %d so far", platform, kind, who, problem, record.failures
            )
        return wait

    def _take(self, group: str) -> _Record:
        record, now = self._records.pop(group, None), self._now()
        if record is None or now - max(record.at, record.blocked_until) > FORGOTTEN_AFTER_S:
            record = _Record(float(self._per_minute), now)
        self._records[group] = record
        if len(self._records) > self._most:
            self._records.popitem(last=False)
        return record


def make_group(who: str) -> str:
    """Return the key under which the failures of `who` are counted. For an IPv6 address it is the /64 network,
    because one host can use all addresses of it. Otherwise it is the address or the person."""
    try:
        address = ipaddress.ip_address(who.partition("%")[0])
    except ValueError:
        return who
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
