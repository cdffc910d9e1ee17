"""The connections to platforms: each is kept up by itself, and one that breaks never stops another."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hermes import clock, errors, secrets
from hermes.gateway.adapter import Adapter, Limited, Misconfigured, Receive

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
UP, MISCONFIGURED = "up", "misconfigured"


class PlatformState(NamedTuple):
    name: str
    state: str
    """connecting, up, down (it is tried again), misconfigured (until somebody mends that) or closed."""
    since: float
    error: str | None = None
    """What went wrong last."""


class Connections:
    def __init__(
        self, adapters: Mapping[str, Adapter], receive: Receive, tell: Callable[[PlatformState], None]
    ) -> None:
        """`tell` hears of each change of state."""
        self._adapters, self._receive, self._tell = adapters, receive, tell
        self.states = {name: PlatformState(name, "connecting", clock.now()) for name in adapters}
        self._running: list[asyncio.Task[None]] = []
        self.hopeless = asyncio.Event()
        """Set when nothing is connected and nothing will be, until somebody mends the settings."""

    def open(self) -> None:
        for name, adapter in self._adapters.items():
            self._running.append(asyncio.create_task(self._keep(name, adapter), name=f"platform {name}"))

    def leave_out(self, name: str, why: str) -> None:
        """One of which not even an adapter could be made; those who look should see why."""
        self._become(name, MISCONFIGURED, why)

    async def stop_receiving(self) -> None:
        """Nothing more comes in; what is under way can still be sent."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def close(self) -> None:
        await self.stop_receiving()
        for name, adapter in self._adapters.items():
            try:
                await adapter.close()
            except Exception as problem:  # the others have to be closed, too
                log.error("%s: %s", name, secrets.redact(repr(problem)), exc_info=True)
            self._become(name, "closed")

    async def _keep(self, name: str, adapter: Adapter) -> None:
        pause = FIRST_PAUSE_S

        def ready() -> None:
            nonlocal pause
            pause = FIRST_PAUSE_S
            if self.states[name].state != UP:  # an adapter may say so again
                self._become(name, UP)

        while True:
            try:
                await adapter.run(self._receive, ready)
                why, wait = "the connection ended", pause
            except Misconfigured as problem:
                self._become(name, MISCONFIGURED, str(problem))
                return
            except Limited as problem:
                why, wait = str(problem), problem.seconds
            except (errors.HermesError, OSError) as problem:
                why, wait = str(problem), pause
            except Exception as problem:
                log.error("%s: %s", name, secrets.redact(repr(problem)), exc_info=True)
                why, wait = f"unexpected {type(problem).__name__}: {problem}", pause
            self._become(name, "down", why)
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _become(self, name: str, state: str, why: str | None = None) -> None:
        now = PlatformState(name, state, clock.now(), None if why is None else secrets.redact(why))
        self.states[name] = now
        self._tell(now)
        if all(one.state == MISCONFIGURED for one in self.states.values()):
            self.hopeless.set()
