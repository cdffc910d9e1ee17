"""A pseudo-terminal that the test controls: its input, its output, and its answers to cursor-position
requests."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tests import warm_command

ENTER, INTERRUPT, LEAVE, DOWN = "\r", "\x03", "\x04", "\x1b[B"
REQUEST, POSITION = b"\x1b[6n", b"\x1b[20;3R"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
PATIENCE_S = 60.0
WARM = ("hermes.cli.main", "tests.chat.echo")
"""Modules that `warm_command` starts."""
END_OF_OUTPUT = b"\x00end of output\x00"


class Process(Protocol):
    """A process of `subprocess` or of `warm_command`."""

    @property
    def pid(self) -> int: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def poll(self) -> int | None: ...
    def send_signal(self, number: int) -> None: ...
    def kill(self) -> None: ...


def mark_end(process: Process, terminal: int) -> None:
    """Write `END_OF_OUTPUT` to the terminal after the process has ended. The mark then follows all output of
    the process.

    A reader that stops at the mark gets the whole output. A reader that stops when the terminal is closed can
    miss the end, because the kernel can report the close before it has passed on the last output.
    """
    process.wait()
    os.write(terminal, END_OF_OUTPUT)


def read_output(process: Process, ours: int, theirs: int) -> bytes:
    """Read the output of a process from a pseudo-terminal until the process ends, then close both ends of the
    terminal."""
    marker = threading.Thread(target=mark_end, args=(process, theirs))
    marker.start()
    output = b""
    while not output.endswith(END_OF_OUTPUT):
        output += os.read(ours, 65_536)
    marker.join()
    os.close(theirs)
    os.close(ours)
    return output.removesuffix(END_OF_OUTPUT)


def split_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the module and the arguments of a command line such as `python -W error -m MODULE ARGUMENT`. The module
    is empty in any other command line."""
    flags = list(words[:4])
    if flags[0] != sys.executable or "-m" not in flags:
        return "", words
    at = flags.index("-m") + 1
    return words[at], words[at + 1 :]


class Terminal:
    """A command that runs in a pseudo-terminal. Cursor-position requests are answered immediately unless
    `answers` is off."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        answers: bool = True,
        term: str = "xterm",
        typed_before: str = "",
        redirection: str = "",
    ) -> None:
        self.answers = answers
        self.raw = b""
        self._requests = 0
        self._ours, self._its = pty.openpty()
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self.before = self.mode
        if typed_before:
            self.types(typed_before)
        self.process = self._start(words, {"TERM": term, "NO_COLOR": "1"}, redirection)
        self._marking = threading.Thread(target=mark_end, args=(self.process, self._its), daemon=True)
        self._marking.start()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _start(self, words: Sequence[str], environment: dict[str, str], redirection: str) -> Process:
        module, arguments = split_command(words)
        if module in WARM and not redirection:
            streams = (self._its, self._its, self._its)
            return warm_command.start(
                arguments, streams, environment=environment, module=module, own_terminal=True
            )
        name = shlex.quote(os.ttyname(self._its))
        # A session leader that opens a terminal receives its Ctrl-C.
        return subprocess.Popen(
            ["sh", "-c", f"exec {shlex.join(words)} <{name} >{name} 2>&1 {redirection}"],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._its)

    @property
    def output(self) -> str:
        """All output so far, without control sequences that only move the cursor."""
        return ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def types(self, *keys: str) -> None:
        os.write(self._ours, "".join(keys).encode())

    def answer(self) -> None:
        """Answer the oldest pending cursor-position request now. Answer every later request when it
        arrives."""
        self.answers = True
        os.write(self._ours, POSITION)

    def sees(self, *texts: str) -> None:
        until(lambda: all(text in self.output for text in texts), lambda: f"{texts} not in:\n{self.output}")

    def sees_behind(self, earlier: str, text: str) -> None:
        """Wait until `text` appears after the last occurrence of `earlier`."""
        until(lambda: text in self.output.rpartition(earlier)[2], lambda: self.output)

    def is_asked(self, times: int) -> None:
        """Wait until `times` cursor-position requests have arrived."""
        until(lambda: self._requests >= times, lambda: f"{self._requests} requests:\n{self.output}")

    def is_asked_behind(self, text: str) -> None:
        """Wait until a cursor-position request arrives after the last occurrence of `text`."""
        until(lambda: self.raw.rfind(REQUEST) > self.raw.rfind(text.encode()), lambda: self.output)

    @property
    def requests(self) -> int:
        return self._requests

    def is_raw(self) -> None:
        """Wait until the program reads single keys (raw mode)."""
        until(lambda: not self.mode[3] & (termios.ICANON | termios.ISIG), lambda: self.output)

    def ends(self) -> int:
        """Wait until the process has ended and all of its output is in `raw`. Return its exit code."""
        until(lambda: not self._reading.is_alive(), lambda: self.output)
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._marking.join()
        self._reading.join()
        os.close(self._its)
        os.close(self._ours)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while not self.raw.endswith(END_OF_OUTPUT):
            data = os.read(self._ours, 65_536)
            found = (self.raw[-3:] + data).count(REQUEST)
            if self.answers:
                os.write(self._ours, POSITION * found)
            self.raw += data
            self._requests += found
        self.raw = self.raw.removesuffix(END_OF_OUTPUT)


def until(is_so: Callable[[], bool], describe: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, describe()
        time.sleep(0.02)
