"""A pseudo-terminal that the test plays: what is typed, what is shown, and whether it says where its cursor is."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

ENTER, INTERRUPT, LEAVE, DOWN = "\r", "\x03", "\x04", "\x1b[B"
REQUEST, POSITION = b"\x1b[6n", b"\x1b[20;3R"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
PATIENCE_S = 30.0


class Terminal:
    """Runs a command. It answers cursor-position requests at once, unless `answers` is turned off."""

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
        name = shlex.quote(os.ttyname(self._its))
        # A session leader that opens a terminal gets its Ctrl-C.
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec {shlex.join(words)} <{name} >{name} 2>&1 {redirection}"],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TERM": term, "NO_COLOR": "1"},
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._its)

    @property
    def shown(self) -> str:
        """All that was ever shown, without what only moves the cursor."""
        return ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def types(self, *keys: str) -> None:
        os.write(self._ours, "".join(keys).encode())

    def answer(self) -> None:
        """Say where the cursor is, once, and from now on whenever asked."""
        self.answers = True
        os.write(self._ours, POSITION)

    def sees(self, *texts: str) -> None:
        until(lambda: all(text in self.shown for text in texts), lambda: f"{texts} not in:\n{self.shown}")

    def sees_behind(self, earlier: str, text: str) -> None:
        """Wait until the text is shown after the last of something earlier."""
        until(lambda: text in self.shown.rpartition(earlier)[2], lambda: self.shown)

    def is_asked(self, times: int) -> None:
        """Wait until so many cursor-position requests came."""
        until(lambda: self._requests >= times, lambda: f"{self._requests} requests:\n{self.shown}")

    def is_asked_behind(self, text: str) -> None:
        """Wait until a cursor-position request came after the last of this text."""
        until(lambda: self.raw.rfind(REQUEST) > self.raw.rfind(text.encode()), lambda: self.shown)

    @property
    def requests(self) -> int:
        return self._requests

    def is_raw(self) -> None:
        """Wait until the program reads key by key."""
        until(lambda: not self.mode[3] & (termios.ICANON | termios.ISIG), lambda: self.shown)

    def ends(self) -> int:
        until(lambda: self.process.poll() is not None, lambda: self.shown)
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._its)
        self._reading.join()
        os.close(self._ours)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # nobody has the other end any more
                return
            found = (self.raw[-3:] + data).count(REQUEST)
            if self.answers:
                os.write(self._ours, POSITION * found)
            self.raw += data
            self._requests += found


def until(is_so: Callable[[], bool], describe: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, describe()
        time.sleep(0.02)
