"""A pytest plugin that writes the duration of each test that passes, and separates the recorded calls of tests.

    python -m pytest -p tools.mutation.coverage_map

The environment variable `HERMES_DURATIONS` names the folder for the durations. Each xdist process writes one file
there. A test that fails without a mutant or is skipped cannot show that a mutant is killed, so it is left out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tools.mutation.recorder import forget_calls

VARIABLE = "HERMES_DURATIONS"

_durations: dict[str, float] = {}
_not_passed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    forget_calls()
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        _durations[item.nodeid] = time.perf_counter() - started


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        _not_passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    passed = {test: duration for test, duration in _durations.items() if test not in _not_passed}
    if VARIABLE in os.environ and passed:
        file = Path(os.environ[VARIABLE], f"{os.getpid()}.json")
        file.write_text(json.dumps(passed), encoding="utf-8")
