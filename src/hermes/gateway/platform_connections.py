"""Connections to platforms. Each is maintained independently, so a failing one does not affect the others."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from hermes import clock, errors, secrets
from hermes.gateway.adapter import Adapter, Misconfigured, RateLimited, Receive

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
CONNECTING, UP, MISCONFIGURED = "connecting", "up", "misconfigured"


class PlatformState(NamedTuple):
    name: str
    state: str
    """One of connecting, up, down (will be retried), misconfigured (not retried until the settings are fixed)
    or closed."""
    since: float
    error: str | None = None
    """The last error."""


class Connections:
    def __init__(
        self, adapters: Mapping[str, Adapter], receive: Receive, on_change: Callable[[PlatformState], None]
    ) -> None:
        """Create the object that keeps the gateway connected to its platforms. `on_change` is called after each
        change of the state of a connection."""
        self._adapters, self._receive, self._tell = adapters, receive, on_change
        self.states = {name: PlatformState(name, CONNECTING, clock.now()) for name in adapters}
        self._changed = asyncio.Event()
        self._keeps_hope = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self.hopeless = asyncio.Event()
        """Set when all platforms are misconfigured, so that none can be connected."""

    def open(self) -> None:
        for name in self._adapters:
            self._start(name)

    def connect(self, name: str) -> None:
        """Connect a platform that was added or changed while the gateway runs."""
        self.hopeless.clear()
        self._set_state(name, CONNECTING)
        self._start(name)

    async def wait_for_result(self, name: str, seconds: float) -> None:
        """Wait for at most `seconds` until the platform `name` is connected or its connection has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.states[name].state == CONNECTING:
                    self._changed.clear()
                    await self._changed.wait()

    async def disconnect(self, name: str) -> None:
        """Stop receiving messages from a platform. Messages can still be sent to it."""
        task = self._running.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def forget(self, name: str) -> None:
        """Remove the state of a disconnected platform, so that it is no longer reported."""
        self.states.pop(name, None)

    def _start(self, name: str) -> None:
        work = self._maintain(name, self._adapters[name])
        self._running[name] = asyncio.create_task(work, name=f"platform {name}")

    def add_broken(self, name: str, why: str) -> None:
        """Register a platform whose adapter could not be created, so that its error is visible."""
        self._set_state(name, MISCONFIGURED, why)

    async def stop_receiving(self) -> None:
        """Stop receiving messages from all platforms. Messages can still be sent."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def close(self) -> None:
        await self.stop_receiving()
        for name, adapter in self._adapters.items():
            try:
                await adapter.close()
            except Exception as problem:  # close the others too
                log.error("%s: %s", name, secrets.redact(repr(problem)), exc_info=True)
            self._set_state(name, "closed")

    async def _maintain(self, name: str, adapter: Adapter) -> None:
        pause = FIRST_PAUSE_S

        def ready() -> None:
            nonlocal pause
            pause = FIRST_PAUSE_S
            if self.states[name].state != UP:  # an adapter may call it repeatedly
                self._set_state(name, UP)

        while True:
            try:
                await adapter.run(self._receive, ready)
                why, wait = "the connection ended", pause
            except Misconfigured as problem:
                self._set_state(name, MISCONFIGURED, str(problem))
                return
            except RateLimited as problem:
                why, wait = str(problem), problem.seconds
            except (errors.HermesError, OSError) as problem:
                why, wait = str(problem), pause
            except Exception as problem:
                log.error("%s: %s", name, secrets.redact(repr(problem)), exc_info=True)
                why, wait = f"unexpected {type(problem).__name__}: {problem}", pause
            self._set_state(name, "down", why)
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _set_state(self, name: str, state: str, why: str | None = None) -> None:
        now = PlatformState(name, state, clock.now(), None if why is None else secrets.redact(why))
        self.states[name] = now
        self._changed.set()
        self._tell(now)
        self._check_hope()

    @contextmanager
    def keep_hope(self) -> Iterator[None]:
        """Within the `with` block, do not set the event `hopeless`, even if no platform can be connected. A reload
        uses this, because it may reconnect a misconfigured platform with its old options."""
        self._keeps_hope = True
        try:
            yield
        finally:
            self._keeps_hope = False
            self._check_hope()

    def _check_hope(self) -> None:
        is_hopeless = all(platform.state == MISCONFIGURED for platform in self.states.values())
        if is_hopeless and not self._keeps_hope:
            self.hopeless.set()
