"""A pytest plugin that records which tests call which functions of the sources.

    python -m pytest -p tools.mutation.coverage_map

The environment variable `HERMES_MAP_SOURCES` names the source folder, and `HERMES_MAP` the folder for the
records. Each xdist process writes one file there. A function is identified by its file and its qualified
name. Functions that run in child processes of a test are not recorded.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

SOURCES = os.environ.get("HERMES_MAP_SOURCES", "")
RECORDS = os.environ.get("HERMES_MAP", "")

_codes: set[CodeType] = set()
_calls_of_tests: dict[str, tuple[float, list[str]]] = {}
_not_passed: set[str] = set()


def _note_call(frame: FrameType, event: str, argument: object) -> None:
    """Record the called function. The interpreter calls this trace function at the start of every Python
    function. The result None turns off the tracing of lines."""
    _codes.add(frame.f_code)


if sys.version_info >= (3, 12):
    _MONITORING = sys.monitoring
    _TOOL = _MONITORING.PROFILER_ID
    _STARTS = _MONITORING.events.PY_START

    def _note_start(code: CodeType, offset: int) -> object:
        """Record the called function. The result `DISABLE` turns off further events of this function until
        `restart_events`."""
        _codes.add(code)
        return _MONITORING.DISABLE

    def _start_recording() -> None:
        if _MONITORING.get_tool(_TOOL) is None:
            _MONITORING.use_tool_id(_TOOL, "mutation")
            _MONITORING.register_callback(_TOOL, _STARTS, _note_start)
        _MONITORING.restart_events()
        _MONITORING.set_events(_TOOL, _STARTS)

    def _stop_recording() -> None:
        _MONITORING.set_events(_TOOL, _MONITORING.events.NO_EVENTS)

else:  # several times slower, because the trace function runs at every call

    def _start_recording() -> None:
        threading.settrace(_note_call)
        sys.settrace(_note_call)

    def _stop_recording() -> None:
        sys.settrace(None)
        threading.settrace(None)


def _list_calls() -> list[str]:
    start = f"{SOURCES}/"
    return sorted(
        {
            f"{code.co_filename.removeprefix(start)}:{code.co_qualname.partition('.<locals>')[0]}"
            for code in _codes.copy()
            if code.co_filename.startswith(start)
        }
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _codes.clear()
    started = time.perf_counter()
    _start_recording()
    try:
        return (yield)
    finally:
        _stop_recording()
        _calls_of_tests[item.nodeid] = (time.perf_counter() - started, _list_calls())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Drop the records of a test that fails or is skipped. Such a test cannot show that a mutant is killed,
    because it does not pass without the mutant."""
    if report.outcome != "passed":
        _not_passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    passed = {test: calls for test, calls in _calls_of_tests.items() if test not in _not_passed}
    if RECORDS and passed:
        Path(RECORDS, f"{os.getpid()}.json").write_text(json.dumps(passed), encoding="utf-8")
