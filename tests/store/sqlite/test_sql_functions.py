"""The SQL function that decides whether a tool result counts as a failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes.store.sqlite.sql_functions import is_failure

FAILED = [
    "Error: no such thing",
    "ValueError: bad",
    "requests.exceptions.ConnectionError: x",
    "E   AssertionError: 1 == 2",
    "Traceback (most recent call last):\n  File",
    "bash: foo: command not found",
    "fatal: not a git repository",
    "error[E0308]: mismatched types",
    '{"output": "", "exit_code": 1, "error": null}',
    '{"error": "timeout"}',
    '{"success": false}',
    '[{"is_error": true}]',
    "done\nCommand exited with exit code 2",
    "x" * 20_000 + "\nError: at the end",
]


FINE = [
    "0 errors, 0 warnings",
    "how error handling works",
    '{"output": "ok", "exit_code": 0, "error": null}',
    '{"error": "", "success": true}',
    "exit code 0",
    "no exceptions were found",
    "",
]


@pytest.mark.parametrize("text", FAILED)
def test_a_failure_is_recognised(text: str) -> None:
    assert is_failure(text)


@pytest.mark.parametrize("text", FINE)
def test_other_results_are_not_failures(text: str) -> None:
    assert not is_failure(text)


def test_a_value_that_is_not_text_is_not_a_failure() -> None:
    check: Callable[..., bool] = is_failure
    assert not check(None)
    assert not check(5)
