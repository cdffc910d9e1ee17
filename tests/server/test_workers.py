"""Keys share the worker threads fairly. No key waits for the requests of another."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from hermes.server.workers import Workers


async def test_a_key_with_much_to_do_leaves_threads_for_others() -> None:
    workers, go_on = Workers(threads=3, per_key=2), Event()
    busy = [asyncio.create_task(workers.run("a", go_on.wait)) for _ in range(10)]
    assert await workers.run("b", sum, [1, 2]) == 3
    assert not any(one.done() for one in busy)
    go_on.set()
    assert await asyncio.gather(*busy) == [True] * 10
    workers.close()


async def test_waiting_requests_start_in_turn_one_of_each_key() -> None:
    workers, go_on = Workers(threads=1), Event()
    begun: list[str] = []
    first = asyncio.create_task(workers.run("a", go_on.wait))
    await asyncio.sleep(0)
    order = ("a1", "a2", "a3", "b1", "c1", "b2")
    waiting = [asyncio.create_task(workers.run(name[0], begun.append, name)) for name in order]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *waiting)
    assert begun == ["a1", "b1", "c1", "a2", "b2", "a3"]
    workers.close()


async def test_a_cancelled_request_does_not_occupy_a_thread() -> None:
    workers, go_on = Workers(threads=1), Event()
    running = asyncio.create_task(workers.run("a", go_on.wait))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(workers.run("a", go_on.wait))
    await asyncio.sleep(0)
    for task in (waiting, running):  # the running request keeps its thread until it ends
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    later = asyncio.create_task(workers.run("b", sum, [1, 2]))
    await asyncio.sleep(0)
    assert not later.done()
    go_on.set()
    assert await later == 3
    workers.close()


async def test_an_error_gives_the_thread_back() -> None:
    workers = Workers(threads=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await workers.run("a", divmod, 1, 0)
    assert await workers.run("a", sum, [1, 2]) == 3
    workers.close()
