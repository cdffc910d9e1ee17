"""Record which functions of the sources each test calls, in pytest and in every process that a test starts.

A `sitecustomize.py` on the module path calls `start` in each new process. Every process appends the first call of a
function in a test to the same file. A process knows the test from the environment variable that pytest sets. A line
consists of the id of the test, a tab, and the function: its file and its qualified name. The file is opened for each
line, so that no descriptor stays open and nothing is lost if the process is killed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import CodeType
from typing import Any

CURRENT_TEST = "PYTEST_CURRENT_TEST"
_monitoring: Any = getattr(sys, "monitoring", None)
"""Part of Python since 3.12."""


def start(record: str, sources: str) -> None:
    """Append the calls of functions below the folder `sources` to the file `record`, until the process ends."""
    if _monitoring is None:
        raise SystemExit("mutation: recording calls needs Python 3.12 or newer (--python)")
    starts = _monitoring.events.PY_START
    folder = f"{sources}{os.sep}"

    def note_start(code: CodeType, offset: int) -> object:
        """Record the called function. `DISABLE` means that its next call is not reported, until `forget_calls`."""
        test = os.environ.get(CURRENT_TEST)
        if test is not None and code.co_filename.startswith(folder):
            function = code.co_qualname.partition(".<locals>")[0]
            with suppress(OSError):  # a sandbox, a full disk or a limit of the test
                _append(
                    record, f"{test.rpartition(' ')[0]}\t{code.co_filename.removeprefix(folder)}:{function}\n"
                )
        return _monitoring.DISABLE

    _monitoring.use_tool_id(_monitoring.PROFILER_ID, "mutation")
    _monitoring.register_callback(_monitoring.PROFILER_ID, starts, note_start)
    _monitoring.set_events(_monitoring.PROFILER_ID, starts)
    os.register_at_fork(after_in_child=forget_calls)


def forget_calls() -> None:
    """Report functions again that were already called: another test begins."""
    _monitoring.restart_events()


def _append(file: str, line: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
