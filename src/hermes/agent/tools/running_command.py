"""A running command: its process group, its output up to a limit, and its end.

A separate thread reads the output, so a process can outlive the turn and the event loop that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from hermes.agent.tool import ToolFailed
from hermes.text import make_readable

CHUNK = 65_536
SIGNALLED = 128
PATIENCE_S = 7.0
"""How long a process group may take to end after SIGTERM before it is killed. Usually it takes a third of a
second.

The limit is longer than the time that the launcher needs to kill processes that restart themselves. If the
launcher were killed earlier, such processes would keep running, and changed git settings would not be
restored.
"""


class Output:
    """The first and the last bytes of an output. The bytes between them are dropped, so that memory use is
    limited."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_most, self._tail_most = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._lock = threading.Lock()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        with self._lock:
            self.total += len(chunk)
            room = self._head_most - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            if len(self._tail) > 2 * self._tail_most:  # trimming at every chunk would be slow
                del self._tail[: -self._tail_most]

    def text(self) -> str:
        return self.since(0)[0]

    def raw(self) -> str:
        """Return the first bytes of the output as text. Control sequences are not removed."""
        with self._lock:
            return bytes(self._head).decode("utf-8", "surrogateescape")

    def since(self, place: int) -> tuple[str, int]:
        """Return the text of the output from byte `place` on, and the total number of output bytes so far. If bytes
        between the first and the last ones were dropped, a note in the text says how many."""
        with self._lock:
            head, tail, total = bytes(self._head[place:]), bytes(self._tail[-self._tail_most :]), self.total
            kept = min(len(tail), total - place)
            left_out = total - place - len(head) - kept
        tail = tail[len(tail) - kept :]
        if left_out <= 0:
            return clean_output(head + tail), total
        return "\n".join(
            filter(None, (clean_output(head), f"[... {left_out:,} bytes left out ...]", clean_output(tail)))
        ), total


class RunningCommand:
    def __init__(
        self, command: str, program: list[str], folder: Path, environment: dict[str, str], output: Output
    ) -> None:
        """`command` is the text for display, `program` the whole command line."""
        self.command, self.output, self.began = command, output, monotonic()
        self.ended_after: float | None = None
        self._ended = threading.Event()
        self._tell: list[Callable[[], None]] = []
        try:
            self._process = subprocess.Popen(
                program,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            raise ToolFailed(f"the command could not be started: {problem}") from problem
        threading.Thread(target=self._follow, name="output of a command", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def over(self) -> bool:
        """Whether the shell has ended and no child process still holds the output open."""
        return self._ended.is_set()

    @property
    def is_shell_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def seconds(self) -> float:
        return monotonic() - self.began if self.ended_after is None else self.ended_after

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def call_when_over(self, tell: Callable[[], None]) -> None:
        """Register a function to call when the command has ended. The function can be called in any
        thread."""
        self._tell.append(tell)
        if self.over:
            tell()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the command. Return whether it has ended."""
        return self._ended.wait(seconds)

    def signal(self, number: int) -> None:
        """Send the signal `number` to all processes in the process group of the shell."""
        try:
            os.killpg(self.pid, number)  # a process group exists as long as it has a process
        except (ProcessLookupError, PermissionError):
            pass

    def kill(self, patience_s: float = PATIENCE_S) -> None:
        """End the process group with SIGTERM, then with SIGKILL.

        Do nothing if the command has ended, because its process id can belong to another process by now.
        """
        if self.over:
            return
        self.signal(signal.SIGTERM)
        self.wait(patience_s)
        self.signal(signal.SIGKILL)
        self.wait(patience_s)

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while chunk := os.read(pipe.fileno(), CHUNK):
                self.output.add(chunk)
        self._process.wait()
        self.ended_after = monotonic() - self.began
        self._ended.set()
        for tell in list(self._tell):
            tell()


def clean_output(output: bytes) -> str:
    """Return the output for the model: without control sequences, and with only the last state of redrawn
    lines."""
    lines = output.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return make_readable("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)).rstrip()


def format_exit(code: int | None) -> str:
    """Return the exit status as text, such as `exit code 3` or `ended by SIGKILL`.

    If the shell reports that a signal ended its child, the text is, for example, `exit code 143, SIGTERM`.
    """
    if code is None:
        return "running"
    number = -code if code < 0 else code - SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "" if code >= 0 else f"signal {number}"
    if code < 0:
        return f"ended by {name}"
    return f"exit code {code}, {name}" if name else f"exit code {code}"
