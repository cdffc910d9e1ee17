"""A signal arrives at any point at which the interpreter can handle it, in a thread that leads or follows a
group commit.

The signal handler either raises an exception (Ctrl-C, a timeout of any class) or uses the store itself. No
thread waits for ever. Every acknowledged write is stored once. The interrupted caller can find out whether
its own write was stored.
"""

from __future__ import annotations

import dis
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from hermes import append_files, errors
from hermes.store.spool import spool, spool_writer
from hermes.store.sqlite import (
    connection,
    connection_set,
    engine,
    fork_safety,
    group_commit,
    opener,
    process_fairness,
    reader_pool,
    transactions,
)
from hermes.store.sqlite.engine import SqliteEngine
from hermes.store.sqlite.wal import file_guard, observed_log
from hermes_state import SessionDB
from tests.survival.processes import impatient

pytestmark = pytest.mark.full

WATCHED = tuple(
    str(module.__file__)
    for module in (
        engine,
        group_commit,
        transactions,
        connection_set,
        reader_pool,
        file_guard,
        observed_log,
        fork_safety,
        connection,
        process_fairness,
    )
)
NOTICING = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}
"""Instructions after which the interpreter checks for signals."""
FOLLOWERS = ("first", "second", "third")
MOST = 400


class TimeIsUp(Exception):
    """An exception that a handler of SIGALRM may raise."""


@cache
def instructions(code: CodeType) -> dict[int, str]:
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


def until_now() -> None:
    """Release the holder of the lock after all threads have joined the queue."""


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage before the test and not during it. A store that an earlier test left open would
    otherwise be closed inside a traced call, and Python ignores an exception that is raised there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Interruption:
    """A trace function that calls the handler at the n-th point at which the interpreter could handle a real
    signal."""

    def __init__(
        self,
        number: int,
        handler: Callable[[], object],
        watched: tuple[str, ...] = WATCHED,
        *,
        uses_store: bool = False,
    ) -> None:
        self._left = number
        self._watched = watched
        self.uses_store = uses_store
        self._handler = handler
        self.let_holder_go: Callable[[], object] = until_now
        self._before: dict[int, int] = {}
        # The interpreter handles signals at the start of a call of a Python function, not at its end.
        self._back_in: int | None = None
        self.where = ""

    def trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename not in self._watched or self.where:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            self._before.pop(id(frame), None)
        elif event == "return":
            self._back_in = id(frame.f_back)
        elif event == "opcode":
            before = self._before.get(id(frame))
            self._before[id(frame)] = frame.f_lasti
            noticing = before is not None and instructions(frame.f_code).get(before) in NOTICING
            back, self._back_in = self._back_in == id(frame), None
            if noticing and not back:
                self._left -= 1
                if not self._left:
                    self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                    self.let_holder_go()
                    self._handler()
        return self.trace


def until(true: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.0002)


class Round:
    """One round: the main thread waits in the queue with other threads and is interrupted."""

    def __init__(
        self, db: SessionDB, tag: str, interruption: Interruption, *, place: int, apart: bool
    ) -> None:
        self._db, self._tag, self._place = db, tag, place
        self._queue = cast(SqliteEngine, db._engine)._queue
        self._begun, self._may_end, self._over = threading.Event(), threading.Event(), threading.Event()
        self.raised: BaseException | None = None
        self.others: list[BaseException] = []
        self.stored_at_once = 0
        if interruption.uses_store:  # the handler must not wait for the holder
            interruption.let_holder_go = self._may_end.set
        holder = threading.Thread(target=lambda: db._engine.write(self._hold, share=False), daemon=True)
        self._line = [self._thread(db.append_message, "s", "user", f"{tag} {name}") for name in FOLLOWERS]
        if apart:  # a write that is not part of a group commit
            self._line.append(self._thread(db.set_session_title, "s", tag))
        holder.start()
        assert self._begun.wait(60)
        for length, thread in enumerate(self._line[:place], 1):
            thread.start()
            self._wait_for(length)
        usher = threading.Thread(target=self._join_behind, daemon=True)
        usher.start()
        self._append(interruption)
        for thread in (usher, holder, *self._line):
            thread.join(60)
            assert not thread.is_alive(), f"interrupted at {interruption.where}, others wait for ever"

    def _append(self, interruption: Interruption) -> None:
        sys.settrace(interruption.trace)
        try:
            self._db.append_message("s", "user", f"{self._tag} main")
        except (KeyboardInterrupt, TimeIsUp, errors.StoreError) as problem:
            self.raised = problem
        finally:
            sys.settrace(None)
        with suppress(errors.StoreClosed):  # a handler may close the store at this moment
            self.stored_at_once = texts_of(self._db, self._tag).count(f"{self._tag} main")
        self._over.set()

    def _thread(self, verb: Callable[..., object], *args: object) -> threading.Thread:
        def call() -> None:
            try:
                verb(*args)
            except BaseException as problem:  # noqa: BLE001 - looked at by the test
                self.others.append(problem)

        return threading.Thread(target=call, daemon=True)

    def _hold(self, _writer: object) -> None:
        self._begun.set()
        self._may_end.wait(60)

    def _wait_for(self, length: int) -> None:
        until(lambda: len(self._queue._waiting) >= length or self._over.is_set(), 5)

    def _join_behind(self) -> None:
        for length, thread in enumerate(self._line[self._place :], self._place + 1):
            self._wait_for(length)
            thread.start()
        self._wait_for(len(self._line) + 1)
        self._may_end.set()


def is_closed(db: SessionDB) -> bool:
    return cast(SqliteEngine, db._engine)._connections.is_closed


def is_readable(db: SessionDB) -> bool:
    try:
        return db.get_session("s") is not None
    except errors.StoreBusy:
        return False


def texts_of(db: SessionDB, tag: str) -> list[str]:
    return [row["content"] for row in db.get_messages("s") if row["content"].startswith(f"{tag} ")]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeIsUp])
@pytest.mark.parametrize("place", [0, 1], ids=["leading", "following"])
@pytest.mark.parametrize("apart", [False, True], ids=["all share", "one does not"])
def test_a_thread_in_the_queue_is_interrupted_anywhere(
    home: Path, place: int, apart: bool, kind: type[BaseException]
) -> None:
    def strike() -> None:
        raise kind

    with SessionDB() as db:
        db.create_session("s", "cli")
        for number in range(1, MOST):
            interruption = Interruption(number, strike)
            tag = f"round{number}"
            result = Round(db, tag, interruption, place=place, apart=apart)
            texts = texts_of(db, tag)
            once = [text for text in texts if not text.endswith(" main")]
            assert not result.others, interruption.where
            assert sorted(once) == sorted(f"{tag} {name}" for name in FOLLOWERS), interruption.where
            assert texts.count(f"{tag} main") == result.stored_at_once <= 1, interruption.where
            assert isinstance(result.raised, kind) == bool(interruption.where), interruption.where
            if not interruption.where:
                break
        assert (30 if place == 0 else 10) < number < MOST - 1  # every point was covered
        assert db.verify().ok


@pytest.mark.parametrize("place", [0, 1], ids=["leading", "following"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_handler_writes_reads_and_searches_anywhere(
    home: Path, place: int, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call in a handler completes or is refused at once. Every acknowledged write is stored once, and
    nothing else is stored."""
    if journal == "delete":
        monkeypatch.setattr(opener, "journal_for", lambda _path: ("delete", "nfs"))
    refused = 0
    with SessionDB() as db, SessionDB() as other:
        db.create_session("s", "cli")
        for number in range(1, MOST):
            tag = f"round{number}"
            stored: list[str] = []

            def save(tag: str = tag, stored: list[str] = stored) -> None:
                nonlocal refused
                for handle, text in ((db, f"{tag} handler"), (other, f"{tag} other handle")):
                    started = time.monotonic()
                    if not is_readable(handle):
                        assert journal == "delete"  # a commit with a rollback journal waits for other readers
                        refused += 1
                        continue
                    try:
                        handle.append_message("s", "user", text)
                        stored.append(text)
                    except errors.StoreBusy:
                        refused += 1
                    handle.search_messages("round")
                    # much less than the 30 seconds of a wait for a lock
                    assert time.monotonic() - started < 20

            interruption = Interruption(number, save, uses_store=True)
            result = Round(db, tag, interruption, place=place, apart=False)
            assert (result.raised, result.others) == (None, []), interruption.where
            expected = [*stored, f"{tag} main", *(f"{tag} {name}" for name in FOLLOWERS)]
            assert sorted(texts_of(db, tag)) == sorted(expected), interruption.where
            if not interruption.where:
                break
        assert (30 if place == 0 else 10) < number < MOST - 1
        assert (place == 0) == (refused > 0)  # refused only if it interrupts the transaction itself
        assert refused < number
        assert db.verify().ok


@pytest.mark.parametrize("place", [0, 1], ids=["leading", "following"])
def test_a_handler_closes_the_store_anywhere(home: Path, place: int) -> None:
    """A signal handler interrupts a write at any point and calls `close`. The store is closed as soon as that
    write has ended. Every write of the round is either stored or raises `StoreClosed`."""
    for number in range(1, MOST):
        db = SessionDB()
        db.create_session("s", "cli")
        tag = f"round{number}"
        interruption = Interruption(number, db.close, uses_store=True)
        result = Round(db, tag, interruption, place=place, apart=False)
        if not interruption.where:
            db.close()
            break
        until(partial(is_closed, db), 60)
        with pytest.raises(errors.StoreClosed):
            db.get_session("s")
        failed = [*result.others, *([] if result.raised is None else [result.raised])]
        assert all(isinstance(problem, errors.StoreClosed) for problem in failed), interruption.where
        with SessionDB() as again:
            assert len(texts_of(again, tag)) == len(FOLLOWERS) + 1 - len(failed), interruption.where
    assert (30 if place == 0 else 10) < number < MOST - 1


def test_a_handler_writes_while_the_spool_is_used(home: Path) -> None:
    """The store cannot accept the writes of the interrupted call and of the handler. Both are spooled, and
    each is stored once later."""
    watched = tuple(str(module.__file__) for module in (spool, append_files, spool_writer))
    expected: list[str] = []
    kept: list[Path | None] = []
    with SessionDB(spool=True) as db:
        db.create_session("s", "cli")
        for phase in ("keeping", "storing"):
            for number in range(1, MOST):

                def keep(text: str) -> None:
                    try:
                        db.append_message("s", "user", text)
                    except errors.StoreBusy as problem:
                        kept.append(problem.spooled)
                    expected.append(text)

                def save(keep: Callable[[str], None] = keep, text: str = f"{phase} {number} handler") -> None:
                    started = time.monotonic()
                    keep(text)
                    # much less than the 30 seconds of a wait for a lock
                    assert time.monotonic() - started < 20

                impatient(db, 0.01)
                blocker = db.raw()
                blocker.execute("BEGIN IMMEDIATE")
                interruption = Interruption(number, save, watched)
                if phase == "storing":
                    keep(f"{phase} {number} before")
                    blocker.execute("COMMIT")
                sys.settrace(interruption.trace)
                try:
                    keep(f"{phase} {number} main")
                finally:
                    sys.settrace(None)
                if blocker.in_transaction:
                    blocker.execute("COMMIT")
                impatient(db, 10)
                keep(f"{phase} {number} after")
                if not interruption.where:
                    break
            assert 20 < number < MOST - 1
        assert sorted(row["content"] for row in db.get_messages("s")) == sorted(expected)
        assert None not in kept
