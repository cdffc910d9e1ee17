"""The rate gate of a batch run: if the provider refuses a model request because there were too many, or if it cannot be
reached, all workers wait.

The gate closes for the time that the provider asks for (`Retry-After`), or for a pause that doubles each time. Then a
single request tests whether the provider accepts requests again. The others follow only if it does. A refused request
is repeated. It does not count as a failed attempt of its prompt. If the gate closes `MOST_CLOSURES` times without an
answer to any request in between, all requests fail.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from time import monotonic
from typing import NamedTuple, cast

from hermes.agent.models.model import (
    Model,
    Piece,
    ProviderBusy,
    Request,
    Retrying,
    Unreachable,
    takes_pictures,
)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MOST_CLOSURES = 8
"""After so many closures without an answer in between, the provider is considered unavailable."""
MOST_UNREACHABLE = 3
"""A request for which the provider could not be reached so often fails, if the provider answered others meanwhile."""
GIVEN_UP = "the provider does not answer"


class Ticket(NamedTuple):
    """The right to make one model request, which the gate gives to a worker."""

    closures: int
    """The number of closures before the request."""
    is_test: bool


class RateGate:
    def __init__(self, first_pause: float = FIRST_PAUSE_S) -> None:
        self._first_pause = first_pause
        self._opens_at = 0.0
        self._closures = 0
        self._is_limited = self._is_testing = False
        self._changed = asyncio.Event()
        self.refused = 0
        """How many requests the provider refused."""
        self.in_a_row = 0
        """The number of closures since the last answer."""
        self._is_stopping = False
        self.on_close: Callable[[float, Exception], object] = lambda _seconds, _problem: None
        """Called with the seconds by which a closure delays all requests, and its reason."""

    @property
    def seconds_left(self) -> float:
        """The seconds until the gate opens again; 0 if it is open."""
        return max(0.0, self._opens_at - monotonic())

    @property
    def is_given_up(self) -> bool:
        """Whether the provider refused requests for so long that waiting does not help."""
        return self.in_a_row >= MOST_CLOSURES

    @property
    def is_hopeless(self) -> bool:
        """Whether a model request that the provider refused should fail instead of being repeated. This is so if the
        provider is given up, or if the batch run is being stopped."""
        return self.is_given_up or self._is_stopping

    def stop(self) -> None:
        """Make all requests fail that wait for the gate now or would have to wait later. Requests that find the gate
        open are still made."""
        self._is_stopping = True
        self._signal()

    async def enter(self) -> Ticket:
        """Wait until a model request may be made, and return a ticket for it. Raise `ProviderBusy` if the provider is
        given up, or if the request would have to wait while the batch run is being stopped."""
        while True:
            must_wait = self._opens_at > monotonic() or (self._is_limited and self._is_testing)
            if self.is_given_up or (must_wait and self._is_stopping):
                raise ProviderBusy(GIVEN_UP)
            if (pause := self._opens_at - monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
            elif not self._is_limited:
                return Ticket(self._closures, False)
            elif not self._is_testing:
                self._is_testing = True
                return Ticket(self._closures, True)
            else:
                await self._changed.wait()

    def succeed(self, ticket: Ticket) -> None:
        """Report that the provider answers the request of `ticket`, which opens the gate for all requests. An answer to
        a request that was made before the last closure is ignored."""
        if ticket.closures == self._closures:
            self.in_a_row = 0
            self._is_limited = False
            self._signal()

    def leave(self, ticket: Ticket) -> None:
        """Report that the request of `ticket` has ended. If it was the test request and it neither succeeded nor was
        refused, another request becomes the test."""
        if ticket.is_test and ticket.closures == self._closures:
            self._is_testing = False
            self._signal()

    def close(self, ticket: Ticket, problem: Exception, seconds: float | None = None) -> float:
        """Close the gate, because the provider refused the request of `ticket`. All requests wait for `seconds`, or for
        the usual pause if it is None. `problem` is the provider's error. Return the seconds until the gate opens.

        Several requests that were made at the same time may be refused one after the other. They count as one closure.
        """
        self.refused += 1
        if ticket.closures == self._closures:
            self._closures += 1
            self.in_a_row += 1
            self._is_limited, self._is_testing = True, False
        if seconds is None:
            usual = self._first_pause * 2.0 ** (self.in_a_row - 1) * random.uniform(0.75, 1.0)
            seconds = min(usual, LONGEST_PAUSE_S) if ticket.closures == self._closures - 1 else 0.0
        now = monotonic()
        before, self._opens_at = max(self._opens_at, now), max(self._opens_at, now + seconds)
        if self._opens_at > before:
            self.on_close(self._opens_at - before, problem)
        self._signal()
        return self._opens_at - now

    def _signal(self) -> None:
        """Wake all waiting requests, so that they check the state of the gate again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class GatedModel:
    """A model whose requests wait for the rate gate. All prompts of a batch share it."""

    def __init__(self, model: Model, gate: RateGate) -> None:
        self._model, self._gate = model, gate
        self.name, self.provider, self.base_url = model.name, model.provider, model.base_url

    @property
    def context_window(self) -> int:
        return self._model.context_window

    @property
    def takes_pictures(self) -> bool:
        return takes_pictures(self._model)

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        unreachable = 0
        while True:
            ticket, is_begun = await self._gate.enter(), False
            problem: ProviderBusy | Unreachable
            try:
                pieces = cast("AsyncGenerator[Piece, None]", self._model.stream(request))
                async with aclosing(pieces):
                    async for piece in pieces:
                        if not is_begun and not isinstance(piece, Retrying):
                            is_begun = True
                            self._gate.succeed(ticket)
                        yield piece
                return
            except Unreachable as lost:
                if is_begun:
                    raise
                problem, unreachable = lost, unreachable + 1
                pause = self._gate.close(ticket, lost)
                if unreachable >= MOST_UNREACHABLE and self._gate.in_a_row < unreachable:
                    raise
            except ProviderBusy as busy:
                if not busy.is_rate_limit and busy.retry_after is None:
                    raise
                problem, pause = busy, self._gate.close(ticket, busy, busy.retry_after)
            finally:
                self._gate.leave(ticket)
            if self._gate.is_hopeless:
                raise problem
            yield Retrying(str(problem), pause, problem)

    async def close(self) -> None:
        await self._model.close()
