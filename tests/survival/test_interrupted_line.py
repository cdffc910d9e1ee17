"""Ctrl-C wherever the interpreter may notice it, in a thread that leads a commit others have joined, or follows.

Nobody waits for ever, and what the others were told is stored is there once.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from hermes.store.sqlite import commit, core, guard
from hermes.store.sqlite.core import SqliteCore
from hermes_state import SessionDB

WATCHED = tuple(str(module.__file__) for module in (commit, core, guard))
NOTICING = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}
"""Instructions after which the interpreter looks whether a signal has come."""
FOLLOWERS = ("first", "second", "third")
MOST = 300


@cache
def instructions(code: CodeType) -> dict[int, str]:
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


class Interruption:
    """To be traced with: raises KeyboardInterrupt at the n-th place where that may really happen."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._before: dict[int, int] = {}
        self._back_in: int | None = (
            None  # a call of one of our own functions looks when it begins, not when it ends
        )
        self.where = ""

    def trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename not in WATCHED or self.where:
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
                    raise KeyboardInterrupt
        return self.trace


def until(true: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.0002)


def round_of(db: SessionDB, tag: str, interruption: Interruption, *, place: int, apart: bool) -> bool:
    """Let the main thread stand in line with others, and interrupt it; whether it was."""
    queue = cast(SqliteCore, db._engine)._queue
    begun, may_end, over = threading.Event(), threading.Event(), threading.Event()

    def hold(_writer: object) -> None:
        begun.set()
        may_end.wait(10)

    def wait_for(length: int) -> None:
        until(lambda: len(queue._waiting) >= length or over.is_set(), 5)

    def join_behind() -> None:
        for length, one in enumerate(others[place:], place + 1):
            wait_for(length)
            one.start()
        wait_for(len(others) + 1)
        may_end.set()

    holder = threading.Thread(target=lambda: db._engine.write(hold, share=False), daemon=True)
    others = [
        threading.Thread(target=db.append_message, args=("s", "user", f"{tag} {name}"), daemon=True)
        for name in FOLLOWERS
    ]
    if apart:  # one that does not share its commit
        others.append(threading.Thread(target=db.set_session_title, args=("s", tag), daemon=True))
    holder.start()
    assert begun.wait(10)
    for length, one in enumerate(others[:place], 1):
        one.start()
        wait_for(length)
    usher = threading.Thread(target=join_behind, daemon=True)
    usher.start()
    interrupted = False
    sys.settrace(interruption.trace)
    try:
        db.append_message("s", "user", f"{tag} main")
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(None)
        over.set()
    usher.join(10)
    for thread in (holder, usher, *others):
        thread.join(10)
        assert not thread.is_alive(), f"interrupted at {interruption.where}, others wait for ever"
    return interrupted


@pytest.mark.parametrize("place", [0, 1], ids=["leading", "following"])
@pytest.mark.parametrize("apart", [False, True], ids=["all share", "one does not"])
def test_one_in_line_is_interrupted_anywhere(home: Path, place: int, apart: bool) -> None:
    with SessionDB() as db:
        db.create_session("s", "cli")
        for number in range(1, MOST):
            interruption = Interruption(number)
            tag = f"round{number}"
            interrupted = round_of(db, tag, interruption, place=place, apart=apart)
            said = [row["content"] for row in db.get_messages("s") if row["content"].startswith(f"{tag} ")]
            once = [text for text in said if not text.endswith(" main")]
            assert sorted(once) == sorted(f"{tag} {name}" for name in FOLLOWERS), interruption.where
            assert said.count(f"{tag} main") <= 1, interruption.where
            if not interrupted:
                break
        assert (40 if place == 0 else 10) < number < MOST - 1  # the whole way was walked
        assert db.verify().ok
