"""Runs `hermes` in a pseudo-terminal and a separate process. Tests type input and read the output."""

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
from collections.abc import Mapping

from tests.gateway.conformance.gateway_process import HERMES
from tests.gateway.conformance.stage import until
from tests.terminal import END_OF_OUTPUT, mark_end

ENTER, INTERRUPT, LEAVE = "\r", "\x03", "\x04"
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
WHERE_IS_THE_CURSOR, HERE = b"\x1b[6n", b"\x1b[1;1R"


class Terminal:
    def __init__(self, environment: Mapping[str, str], *words: str) -> None:
        self._ours, self._its = pty.openpty()
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        flags = termios.tcgetattr(self._its)
        flags[0] &= ~termios.ICRNL  # so that Enter has the same key code when it is typed ahead
        termios.tcsetattr(self._its, termios.TCSANOW, flags)
        name = shlex.quote(os.ttyname(self._its))
        # a process that opens a terminal in a new session receives its Ctrl-C
        self._process = subprocess.Popen(
            ["sh", "-c", f"exec {shlex.join([*HERMES, *words])} <{name} >{name} 2>&1"],
            stdin=subprocess.DEVNULL,
            env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
        )
        self._shown = b""
        self._marking = threading.Thread(target=mark_end, args=(self._process, self._its), daemon=True)
        self._marking.start()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def output(self) -> str:
        """All output so far, without control sequences that only move the cursor."""
        return ESCAPES.sub("", self._shown.decode("utf-8", "replace")).replace("\r", "")

    def says(self, text: str, keys: str = ENTER) -> None:
        os.write(self._ours, f"{text}{keys}".encode())

    def sees(self, text: str) -> None:
        until(
            lambda: text in self.output or not self._reading.is_alive(),
            lambda: self.output,
        )
        assert text in self.output

    def ended(self) -> int:
        code = self._process.wait(60)
        self._reading.join()
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._marking.join()
        self._reading.join()
        os.close(self._its)
        os.close(self._ours)

    def _read(self) -> None:
        while not self._shown.endswith(END_OF_OUTPUT):
            data = os.read(self._ours, 65_536)
            requests = (self._shown[-3:] + data).count(WHERE_IS_THE_CURSOR)
            self._shown += data
            os.write(self._ours, HERE * requests)
        self._shown = self._shown.removesuffix(END_OF_OUTPUT)
