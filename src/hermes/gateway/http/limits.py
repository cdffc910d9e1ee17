"""Limits shared by all HTTP servers of one event loop: connections, body bytes, and wrong keys per address.

The API, the webhooks and the health endpoint share the limits. Together they must not use up the file descriptors
and the memory of the process. This module must not import the HTTP library.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from hermes.config.settings_schema import GatewaySection
from hermes.gateway.auth_failures import AuthFailures, Observe

MB = 1024 * 1024
SMALL_BODY = 64 * 1024
"""How many bytes of each body are not counted. With this, small requests succeed even while large ones use up the
limit."""
SPARE_DESCRIPTORS = 128
"""Minimum number of file descriptors that are reserved for the store, logs and model calls. At least a quarter of
all descriptors is reserved."""
FEWEST_CONNECTIONS = 16

IDLE, RECEIVING, BUSY = range(3)
"""Connection states: no request is open; a body is being received; a response is being created or sent."""


_DEFAULTS = GatewaySection()


class Limits(NamedTuple):
    """The values of the limits. Each field is the setting of the same name in the `gateway` section of config.yaml."""

    connections: int = _DEFAULTS.connections
    connections_per_address: int = _DEFAULTS.connections_per_address
    bodies_mb: int = _DEFAULTS.bodies_mb
    wrong_keys_per_minute: int = _DEFAULTS.wrong_keys_per_minute
    trusted_proxies: tuple[str, ...] = _DEFAULTS.trusted_proxies


class Connection(Protocol):
    @property
    def address(self) -> str: ...

    @property
    def state(self) -> int:
        """What the connection is doing: waiting for a request (`IDLE`), receiving a body (`RECEIVING`), or
        answering (`BUSY`)."""

    def evict(self) -> None:
        """Close the connection at once."""


class ConnectionTable:
    """All open connections, least recently used first.

    If there are too many, a new connection replaces the least recently used idle one. A client that only
    keeps connections open therefore cannot block others.
    """

    def __init__(self, most: int, per_address: int) -> None:
        self._most, self._per_address = most, per_address
        self._open: dict[Connection, None] = {}
        self._addresses: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def change(self, most: int, per_address: int) -> None:
        self._most, self._per_address = most, per_address

    def admit(self, connection: Connection) -> bool:
        """Register a connection. Return False if the limit is reached and no connection can be evicted."""
        address = connection.address
        if self._addresses[address] >= self._per_address and not self._evict(
            other for other in self._open if other.address == address
        ):
            return False
        if len(self._open) >= self._most and not self._evict(self._open):
            return False
        self._open[connection] = None
        self._addresses[address] += 1
        return True

    def touch(self, connection: Connection) -> None:
        """Make a connection the most recently used one. Called after each response on the connection."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]

    def _evict(self, candidates: Iterable[Connection]) -> bool:
        """Evict the least recently used idle connection. If none is idle, evict the least recently used one
        that is receiving a body. Return False if there is neither."""
        chosen: Connection | None = None
        for other in candidates:
            state = other.state
            if state == IDLE or (state == RECEIVING and chosen is None):
                chosen = other
            if state == IDLE:
                break
        if chosen is None:
            return False
        self.remove(chosen)
        chosen.evict()
        return True


class BodyPool:
    """Counts the request body bytes in memory over all connections. One holder (a key or an address) may use
    at most half of the limit."""

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self.share = most // 2
        """Maximum bytes of one holder."""
        self._by_holder: Counter[str] = Counter()

    def change(self, most: int) -> None:
        self._most, self.share = most, most // 2

    def take(self, holder: str, size: int) -> bool:
        if self._used + size > self._most or self._by_holder[holder] + size > self.share:
            return False
        self._used += size
        self._by_holder[holder] += size
        return True

    def give_back(self, holder: str, size: int) -> None:
        self._used -= size
        self._by_holder[holder] -= size
        if self._by_holder[holder] <= 0:
            del self._by_holder[holder]


class Guard:
    """The limit counters of one event loop."""

    def __init__(self, limits: Limits, observe: Observe = lambda _platform, _kind: None) -> None:
        """Start the counters at zero. `observe` is called for each failed authentication, for the metrics."""
        self.limits = limits
        self.connections = ConnectionTable(connection_limit(limits), limits.connections_per_address)
        self.bodies = BodyPool(limits.bodies_mb * MB)
        self.auth_failures = AuthFailures(limits.wrong_keys_per_minute, observe)

    def change(self, limits: Limits) -> None:
        """Change the limits of the running servers. Open connections and body bytes in memory stay counted."""
        self.limits = limits
        self.connections.change(connection_limit(limits), limits.connections_per_address)
        self.bodies.change(limits.bodies_mb * MB)
        self.auth_failures.change(limits.wrong_keys_per_minute)


def connection_limit(limits: Limits) -> int:
    """Return the configured number of connections, or fewer if the process has too few file descriptors."""
    descriptors = _soft_descriptor_limit()
    if descriptors is None:
        return limits.connections
    spare = max(SPARE_DESCRIPTORS, descriptors // 4)
    return min(limits.connections, max(FEWEST_CONNECTIONS, descriptors - spare))


_guards: WeakKeyDictionary[asyncio.AbstractEventLoop, Guard] = WeakKeyDictionary()


def set_limits(limits: Limits, observe: Observe = lambda _platform, _kind: None) -> None:
    """Set the limits for servers that start in this event loop from now on. `observe` is called for each failed
    authentication, for the metrics."""
    _guards[asyncio.get_running_loop()] = Guard(limits, observe)


def change_limits(limits: Limits) -> None:
    """Change the limits of the running servers of this event loop."""
    current_guard().change(limits)


def current_guard() -> Guard:
    loop = asyncio.get_running_loop()
    if loop not in _guards:
        _guards[loop] = Guard(Limits())
    return _guards[loop]


def _soft_descriptor_limit() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
