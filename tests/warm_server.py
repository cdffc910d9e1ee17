"""The server of `tests/warm_command.py`: a process that has imported the command and forks itself for each
run.

    python -W error -m tests.warm_server DESCRIPTOR

A request consists of five descriptors: the three standard streams, a pipe for the id of the process and its
exit status, and a JSON file with the module, its arguments, the environment, the folder and the umask.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import termios
import threading
import time
from typing import Any, NoReturn

import hermes

LEFT_OUT = ("hermes.browser", "hermes.server", "hermes.gateway.platforms", "hermes.__main__")
"""Few commands need these packages, and every fork copies what is loaded."""
LARGE = ("openai.resources.chat.completions", "openai.resources.models", "tree_sitter_bash")
"""Packages that take long to import."""
DESCRIPTORS = 5


def preload() -> None:
    """Import the modules that commands import only when they need them."""
    for module in pkgutil.walk_packages(hermes.__path__, "hermes."):
        if not module.name.startswith(LEFT_OUT):
            importlib.import_module(module.name)
    for name in LARGE:
        importlib.import_module(name)
    gc.freeze()


def serve(connection: socket.socket) -> dict[str, Any]:
    """Fork a process for each request until the other end closes the connection. In the parent, this function
    never returns. In each new process, it returns the request."""
    wake_up, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), wake_up], [], [])
        if wake_up in ready:
            os.read(wake_up, 4096)
            report_ended(running)
        if connection.fileno() not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(connection, 1, DESCRIPTORS)
        if not data:
            sys.exit()
        *streams, report, request = descriptors
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            for descriptor in (wake_up, signalled, report, *running.values()):
                os.close(descriptor)
            use_streams(streams)
            with open(request, encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
            return content
        running[pid] = report
        os.write(report, b"%d\n" % pid)
        for descriptor in (*streams, request):
            os.close(descriptor)


def report_ended(running: dict[int, int]) -> None:
    for pid, report in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del running[pid]
            os.write(report, b"%d\n" % status)
            os.close(report)


def use_streams(descriptors: list[int]) -> None:
    """Make these descriptors the standard streams, as Python does when it starts."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    modes: tuple[tuple[str, str, str], ...] = (
        ("stdin", "r", "strict"),
        ("stdout", "w", "strict"),
        ("stderr", "w", "backslashreplace"),
    )
    for number, (name, mode, errors) in enumerate(modes):
        is_by_line = name == "stderr" or os.isatty(number)
        binary = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - open until the process ends
        stream = io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=is_by_line)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(request: dict[str, Any]) -> int | str | None:
    """Run the function `main` of a module, and return its exit code."""
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    if request["own_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    module = importlib.import_module(request["module"])
    sys.argv = [str(module.__file__), *request["words"]]
    try:
        code: int = module.main()
        return code
    except SystemExit as error:
        return error.code


def end(code: int | str | None) -> NoReturn:
    """End this process as Python does, but do not free its memory. To free all modules takes longer than most
    commands."""
    if not isinstance(code, int):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    preload()
    end(run(serve(socket.socket(fileno=int(sys.argv[1])))))
