"""Starts processes that run `workers.py`, sends them commands, waits for them and kills them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

WORKERS = Path(__file__).with_name("workers.py")
LONG = os.environ.get("HERMES_LONG", "") not in ("", "0")


def impatient(db: Any, seconds: float) -> None:
    """Set the time limit for the write lock. In a spooling handle, the limit is set on the engine that it
    wraps."""
    getattr(db._engine, "_engine", db._engine)._connections.deadline = seconds


class Refused(Exception):
    """The exception that a command raised in a worker."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["trace"])
        self.message: str = answer["error"]
        self.kinds: list[str] = answer["kinds"]


class Worker:
    """A worker process. It is killed at the end of the `with` block if it still runs."""

    def __init__(self, program: Path = WORKERS) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        self._process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: object, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._in, self._out):
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def start(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting for the answer."""
        self._in.write((json.dumps({"do": command, **arguments}) + "\n").encode())
        self._in.flush()

    def ask(self, command: str, **arguments: Any) -> Any:
        self.start(command, **arguments)
        return self.result()

    def line(self) -> dict[str, Any]:
        """Return the next line of output. Return {} if the process is dead and all of its output was read."""
        text = self._out.readline()
        if not text.endswith(b"\n"):
            return {}
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise Refused(answer)
        return answer

    def lines(self) -> Iterator[dict[str, Any]]:
        """Return all lines up to the end of the command or of the process."""
        while answer := self.line():
            yield answer
            if "done" in answer:
                return

    def result(self) -> Any:
        for answer in self.lines():
            if "done" in answer:
                return answer["done"]
        raise AssertionError(f"the worker died with {self._process.wait()}")

    def wait_for(self, key: str) -> Any:
        for answer in self.lines():
            if key in answer:
                return answer[key]
        raise AssertionError(f"the worker never said {key!r}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """End the process normally: close its input and wait for its exit."""
        self._in.close()
        self._process.wait()

    def is_alive(self) -> bool:
        return self._process.poll() is None


def check_said(messages: list[dict[str, Any]], acknowledged: dict[int, int], tag: str) -> None:
    """Check the numbered messages of one worker: every acknowledged message is stored once and in order, and
    at most one further message is stored."""
    texts = [row["content"].split()[0] for row in messages]
    assert texts == [f"{tag}n{n}" for n in range(len(texts))]
    assert len(acknowledged) <= len(texts) <= len(acknowledged) + 1
    assert {n: messages[n]["id"] for n in acknowledged} == acknowledged
