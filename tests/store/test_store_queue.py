"""The queue of store calls of an event loop: its batches, results and errors, and its waits for the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes import errors
from hermes.db.store_queue import StoreQueue, call_store, call_store_early
from hermes_state import SessionDB


class CountingStore:
    """A store that records its syncs and the thread of each sync."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self.batches: list[threading.Thread] = []
        self.syncs = 0
        self.problem: Exception | None = None

    def run_together(self, calls: Any) -> Any:
        self.batches.append(threading.current_thread())
        return self._db.run_together(calls)

    def sync(self) -> None:
        self.syncs += 1
        if self.problem is not None:
            raise self.problem
        self._db.sync()


@asynccontextmanager
async def open_queue(store: Any) -> AsyncIterator[StoreQueue]:
    queue = StoreQueue(store)
    try:
        yield queue
    finally:
        await queue.close()


async def test_calls_of_many_tasks_share_thread_changes_and_syncs(db: SessionDB) -> None:
    store = CountingStore(db)
    async with open_queue(store):
        await asyncio.gather(*(call_store(db.create_session, f"s{number}", "cli") for number in range(200)))
    assert len({thread.name for thread in store.batches}) == 1
    assert len(store.batches) < 20
    assert 1 <= store.syncs < 20
    assert db.session_count() == 200


async def test_an_error_fails_only_its_own_call(db: SessionDB) -> None:
    async with open_queue(db):
        results = await asyncio.gather(
            call_store(db.create_session, "a", "cli"),
            call_store(db.append_message, "missing", "user", "x"),
            call_store(db.create_session, "b", "cli"),
            return_exceptions=True,
        )
    assert [results[0], results[2]] == ["a", "b"]
    assert isinstance(results[1], errors.UnknownSession)


async def test_reads_do_not_wait_for_the_disk(db: SessionDB) -> None:
    store = CountingStore(db)
    async with open_queue(store):
        await call_store(db.session_count)
    assert store.syncs == 0


async def test_an_early_call_returns_before_the_sync_and_is_synced_later(db: SessionDB) -> None:
    store = CountingStore(db)
    store.problem = errors.make_error(errors.StoreFailed, "the disk is broken")
    async with open_queue(store):
        assert await call_store_early(db.create_session, "a", "cli") == "a"
    assert store.syncs == 1


async def test_a_failed_sync_fails_the_calls_that_wait_for_it(db: SessionDB) -> None:
    store = CountingStore(db)
    store.problem = errors.make_error(errors.StoreFailed, "the disk is broken")
    async with open_queue(store):
        with pytest.raises(errors.StoreFailed, match="the disk is broken"):
            await call_store(db.create_session, "a", "cli")


async def test_the_call_of_a_cancelled_task_is_completed(db: SessionDB) -> None:
    going, release = threading.Event(), threading.Event()

    def block() -> None:
        going.set()
        release.wait(10)

    async with open_queue(db):
        first = asyncio.ensure_future(call_store(block))
        await asyncio.to_thread(going.wait, 10)
        second = asyncio.ensure_future(call_store(db.create_session, "late", "cli"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        release.set()
        await first
    assert db.get_session("late") is not None


async def test_without_a_queue_calls_use_threads(db: SessionDB) -> None:
    assert await call_store(db.create_session, "a", "cli") == "a"
    assert await call_store_early(db.session_count) == 1


def test_calls_that_run_together_report_whether_they_wrote(db: SessionDB) -> None:
    outcomes = db.run_together([lambda: db.create_session("a", "cli"), db.session_count])
    db.sync()
    assert [outcome.has_written for outcome in outcomes] == [True, False]
    assert db.session_count() == 1
