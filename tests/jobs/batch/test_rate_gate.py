"""The rate gate: after a refusal all requests wait, then one of them tests whether the provider answers again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from hermes.agent.models.model import Finished, Piece, ProviderBusy, Request, Retrying, Text, Unreachable
from hermes.jobs.batch.rate_gate import MOST_CLOSURES, GatedModel, RateGate

REQUEST = Request([{"role": "user", "content": "hello"}])


def busy(retry_after: float | None = None, *, is_rate_limit: bool = True) -> ProviderBusy:
    problem = ProviderBusy("slow down")
    problem.retry_after, problem.is_rate_limit = retry_after, is_rate_limit
    return problem


class Provider:
    """A model that refuses requests with the errors in `problems`, and counts the requests at the same time."""

    name, provider, base_url, context_window = "m", "p", None, 8_000

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0

    async def stream(self, _request: Request) -> AsyncIterator[Piece]:
        self.times.append(monotonic())
        problem = self.problems.pop(0) if self.problems else None
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.05)
            if problem is not None:
                raise problem
            yield Text("hello")
            yield Finished("stop")
        finally:
            self.at_once -= 1

    async def close(self) -> None:
        """Do nothing."""


async def ask(model: GatedModel) -> list[Piece]:
    return [piece async for piece in model.stream(REQUEST)]


def test_a_refused_request_is_repeated_when_the_provider_allows_it() -> None:
    async def story() -> None:
        provider, gate = Provider(busy(0.3)), RateGate()
        pieces = await ask(GatedModel(provider, gate))
        assert [type(piece) for piece in pieces] == [Retrying, Text, Finished]
        assert provider.times[1] - provider.times[0] >= 0.3
        assert (gate.refused, gate.in_a_row, gate.seconds_left) == (1, 0, 0.0)

    asyncio.run(story())


def test_after_a_refusal_a_single_request_tests_the_provider() -> None:
    async def story() -> None:
        provider, gate = Provider(*[busy(0.2)] * 5), RateGate()
        model = GatedModel(provider, gate)
        await asyncio.gather(*(ask(model) for _ in range(5)))
        assert provider.most_at_once == 5
        after = provider.times[5:]
        assert after[1] - after[0] >= 0.05, "the others wait for the answer to the first"
        assert len(after) == 5
        assert gate.refused == 5

    asyncio.run(story())


def test_without_a_time_the_pauses_double() -> None:
    async def story() -> None:
        provider, gate = Provider(busy(), busy(), busy()), RateGate(first_pause=0.1)
        await ask(GatedModel(provider, gate))
        first, second, third = (
            after - before for before, after in zip(provider.times, provider.times[1:], strict=False)
        )
        assert 0.1 < first < second < third

    asyncio.run(story())


def test_a_provider_that_refuses_everything_is_given_up() -> None:
    async def story() -> None:
        provider, gate = Provider(*[busy(0.0)] * 100), RateGate()
        with pytest.raises(ProviderBusy):
            await ask(GatedModel(provider, gate))
        assert gate.is_given_up
        assert len(provider.times) == MOST_CLOSURES

    asyncio.run(story())


def test_a_server_error_is_not_a_rate_limit() -> None:
    async def story() -> None:
        provider, gate = Provider(busy(is_rate_limit=False)), RateGate()
        with pytest.raises(ProviderBusy):
            await ask(GatedModel(provider, gate))
        assert (gate.refused, gate.seconds_left) == (0, 0.0)

    asyncio.run(story())


def test_an_endpoint_that_cannot_be_reached_is_tried_again_while_the_others_wait() -> None:
    async def story() -> None:
        provider, gate = Provider(Unreachable("no route")), RateGate(first_pause=0.3)
        model = GatedModel(provider, gate)
        first, second = await asyncio.gather(ask(model), ask(model))
        assert [type(piece) for piece in (*first[-1:], *second[-1:])] == [Finished, Finished]
        assert provider.times[2] - provider.times[0] >= 0.2

    asyncio.run(story())


def test_a_request_that_alone_gets_no_connection_fails() -> None:
    async def story() -> None:
        provider, gate = Provider(*[Unreachable("no answer within 300 s")] * 3), RateGate(first_pause=0.01)
        model = GatedModel(provider, gate)
        asking = asyncio.create_task(ask(model))
        while len(provider.times) < 3:
            gate.in_a_row = 0  # others get answers
            await asyncio.sleep(0.005)
        gate.in_a_row = 0
        with pytest.raises(Unreachable):
            await asking

    asyncio.run(story())


def test_when_the_provider_is_given_up_the_waiting_requests_fail_at_once() -> None:
    async def story() -> None:
        # the first closure is that of three requests at the same time, the others are those of test requests
        problems = [*[busy(0.0)] * (3 + MOST_CLOSURES - 2), busy(60.0)]
        provider, gate = Provider(*problems), RateGate()
        model = GatedModel(provider, gate)
        asked = await asyncio.wait_for(
            asyncio.gather(*(ask(model) for _ in range(3)), return_exceptions=True), 5
        )
        assert all(isinstance(outcome, ProviderBusy) for outcome in asked), asked

    asyncio.run(story())


def test_when_the_run_stops_no_request_waits_any_more() -> None:
    async def story() -> None:
        provider, gate = Provider(busy(60.0)), RateGate()
        model = GatedModel(provider, gate)
        asking = [asyncio.create_task(ask(model))]
        await asyncio.sleep(0.1)
        asking.append(asyncio.create_task(ask(model)))  # waits at the closed gate
        await asyncio.sleep(0.01)
        gate.stop()
        outcomes = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 5)
        assert all(isinstance(outcome, ProviderBusy) for outcome in outcomes), outcomes

    asyncio.run(story())


def test_a_cancelled_test_request_is_replaced_by_another() -> None:
    async def story() -> None:
        provider, gate = Provider(busy(0.1)), RateGate()
        model = GatedModel(provider, gate)
        first = asyncio.create_task(ask(model))
        await asyncio.sleep(0.17)  # the first request is the test request now
        second = asyncio.create_task(ask(model))
        await asyncio.sleep(0.01)
        first.cancel()
        assert len(await asyncio.wait_for(second, 2)) == 2

    asyncio.run(story())
