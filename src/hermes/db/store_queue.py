"""Runs the store calls of an event loop in batches.

A call from the event loop to the store needs a thread, because it may wait for the disk. Handing each call to a thread
of its own would take longer than the call itself. Therefore the queue has one thread for all calls. The thread runs the
calls that have arrived since the last batch, and reports their results to the loop together.

A second thread waits for the disk, so that the next batch can run meanwhile. Commits reach the disk in the order in
which they were made. Therefore only a call whose result is reported outside the process has to wait for the disk. Use
`call_store` for such a call, and `call_store_early` for the steps between such calls.

A call must be short, because all other calls wait for it. Searches, exports and other long work use
`asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from hermes.store.engine import Outcome

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

P = ParamSpec("P")
T = TypeVar("T")

MOST_IN_A_BATCH = 64
LONGEST_UNSYNCED_S = 0.2
"""Maximum time until the writes of `call_store_early` are synced to disk if no other call needs a sync, in seconds."""

_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, StoreQueue] = WeakKeyDictionary()


async def call_store(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short store call outside the event loop. When this returns, the writes of the call are on disk.

    If the loop has a `StoreQueue`, the call is part of its next batch. Otherwise it runs with
    `asyncio.to_thread`. If the task is cancelled, the call is still completed.
    """
    queue = _queues.get(asyncio.get_running_loop())
    if queue is None:
        return await asyncio.to_thread(work, *args, **kwargs)
    return await queue.submit(partial(work, *args, **kwargs) if args or kwargs else work)


async def call_store_early(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short store call as `call_store` does, but do not wait for the disk.
    A later `call_store` that writes returns only when the writes of this call are on disk, too.
    """
    queue = _queues.get(asyncio.get_running_loop())
    if queue is None:
        return await asyncio.to_thread(work, *args, **kwargs)
    return await queue.submit(partial(work, *args, **kwargs) if args or kwargs else work, early=True)


class _Call(NamedTuple):
    work: Callable[[], Any]
    done: asyncio.Future[Any]
    early: bool


class _Finished(NamedTuple):
    done: asyncio.Future[Any]
    result: Any
    problem: BaseException | None


class StoreQueue:
    def __init__(self, db: SessionDB) -> None:
        """Create the queue of the running event loop. `call_store` and `call_store_early` use it from then on."""
        self._loop, self._db = asyncio.get_running_loop(), db
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._unsynced: SimpleQueue[list[_Finished] | None] = SimpleQueue()
        self._threads = (
            threading.Thread(target=self._run_calls, name="store calls", daemon=True),
            threading.Thread(target=self._run_syncs, name="store sync", daemon=True),
        )
        for thread in self._threads:
            thread.start()
        _queues[self._loop] = self

    def submit(self, work: Callable[[], T], *, early: bool = False) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(work, done, early))
        return done

    @property
    def waiting(self) -> int:
        """The number of store calls that were submitted and are not in a batch yet."""
        return self._calls.qsize()

    async def close(self) -> None:
        """Run the store calls that were submitted so far, then end the threads of the queue. Later calls run with
        `asyncio.to_thread`."""
        if _queues.get(self._loop) is self:
            del _queues[self._loop]
        self._calls.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    # ---------------------------------------------------------------- the threads

    def _run_calls(self) -> None:
        is_open = True
        while is_open:
            batch: list[_Call] = []
            call = self._calls.get()
            while call is not None:
                batch.append(call)
                if len(batch) >= MOST_IN_A_BATCH or self._calls.empty():
                    break
                call = self._calls.get()
            is_open = call is not None
            self._run(batch)
        self._unsynced.put(None)

    def _run(self, batch: list[_Call]) -> None:
        finished: list[_Finished] = []
        unsynced: list[_Finished] = []
        has_written = False
        try:
            outcomes = self._db.run_together([call.work for call in batch])
        except BaseException as defect:  # noqa: BLE001 - of the store: the thread must go on
            outcomes = [Outcome(None, defect, False)] * len(batch)
        for call, (result, problem, wrote) in zip(batch, outcomes, strict=True):
            has_written = has_written or wrote
            (unsynced if wrote and not call.early else finished).append(_Finished(call.done, result, problem))
        if has_written:
            self._unsynced.put(unsynced)
        self._report(finished)

    def _run_syncs(self) -> None:
        unsynced = self._unsynced.get()
        while unsynced is not None:
            outcomes = list(unsynced)
            following: list[_Finished] | None = []
            try:
                while len(outcomes) < MOST_IN_A_BATCH:
                    following = self._unsynced.get(timeout=0 if outcomes else LONGEST_UNSYNCED_S)
                    if following is None:
                        break
                    outcomes += following
            except Empty:
                following = []
            try:
                self._db.sync()
            except Exception as problem:  # noqa: BLE001 - raised in the tasks that wait for it
                outcomes = [outcome._replace(problem=outcome.problem or problem) for outcome in outcomes]
            self._report(outcomes)
            if following is None:
                return
            unsynced = self._unsynced.get()

    def _report(self, outcomes: list[_Finished]) -> None:
        if outcomes:
            try:
                self._loop.call_soon_threadsafe(_set_results, outcomes)
            except RuntimeError:  # the loop was closed: nobody waits for the results
                pass


def _set_results(outcomes: list[_Finished]) -> None:
    for done, result, problem in outcomes:
        if done.done():
            continue
        if problem is None:
            done.set_result(result)
        else:
            done.set_exception(problem)
