"""Runs the `hermes` command in a separate process, and saves the time to start Python and to import the
command.

A server process imports the command once. Each run is a fork of that process, with its own arguments,
environment, folder and standard streams. It ends like any other process. A test of the start itself, of
imports or of the command line of a process starts Python instead.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTERPRETER = ("PYTHON", "LC_", "LANG")
"""The start of Python itself depends on variables with these names."""
STARTED_WITH = {name: value for name, value in os.environ.items() if name.startswith(INTERPRETER)}


class WarmProcess:
    """One run of the command, with the interface of `subprocess.Popen` as far as tests need it."""

    def __init__(self, report: int) -> None:
        self._report = report
        self._reading = threading.Lock()
        self.pid = self._read_number()
        self.returncode: int | None = None

    def __del__(self) -> None:
        os.close(self._report)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._reading:
                if self.returncode is None:
                    self.returncode = os.waitstatus_to_exitcode(self._read_number())
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_number(self) -> int:
        digits = b""
        while not digits.endswith(b"\n"):
            digits += os.read(self._report, 1)
        return int(digits)


def run(
    words: Sequence[str],
    *,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    module: str = "hermes.cli.main",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends, and return its output. `environment` changes variables of that process.

    If it changes a variable that affects how Python starts, a new Python runs the command instead of a fork.
    """
    changes = environment or {}
    whole = {**os.environ, **changes}
    if {name: value for name, value in whole.items() if name.startswith(INTERPRETER)} != STARTED_WITH:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", module, *words],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            cwd=cwd,
            env=whole,
        )
    (its_input, our_input), (our_output, its_output), (our_errors, its_errors) = (os.pipe() for _ in range(3))
    try:
        process = start(
            words, (its_input, its_output, its_errors), environment=changes, cwd=cwd, module=module
        )
    finally:
        for descriptor in (its_input, its_output, its_errors):
            os.close(descriptor)
    output: dict[int, str] = {}

    def read(descriptor: int) -> None:
        with open(descriptor, encoding="utf-8") as file:
            output[descriptor] = file.read()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(our_input, "w", encoding="utf-8") as file:
            file.write(stdin)

    threads = [threading.Thread(target=read, args=(one,)) for one in (our_output, our_errors)]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout
    try:
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        process.wait(max(0, end - time.monotonic()))
    finally:
        process.kill()
    return subprocess.CompletedProcess(words, process.wait(), output[our_output], output[our_errors])


def start(
    words: Sequence[str],
    streams: tuple[int, int, int],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    module: str = "hermes.cli.main",
    own_terminal: bool = False,
) -> WarmProcess:
    """Start the command with these descriptors as its standard streams. With `own_terminal`, the process
    leads a new session. Its standard input then becomes its controlling terminal, so that it receives
    Ctrl-C."""
    mask = os.umask(0)
    os.umask(mask)
    ours, its = os.pipe()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as request:
        json.dump(
            {
                "module": module,
                "words": list(words),
                "environment": {**os.environ, **(environment or {})},
                "cwd": str(cwd or Path.cwd()),
                "umask": mask,
                "own_terminal": own_terminal,
            },
            request,
        )
        request.seek(0)
        socket.send_fds(_get_server(), [b"x"], [*streams, its, request.fileno()])
    os.close(its)
    return WarmProcess(ours)


@cache
def _get_server() -> socket.socket:
    """Return the connection to the server that this test process uses."""
    ours, its = socket.socketpair()
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.warm_server", str(its.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
        cwd=ROOT,
        env={**STARTED_WITH, "PATH": os.environ["PATH"]},
    )
    its.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
