"""The real command, started in a process of its own, in the test's own home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

COMMAND = [sys.executable, "-W", "error", "-m", "hermes.cli.main"]

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hermes() -> Hermes:
    """`hermes("sessions", "list")`: runs it to the end; stdin is empty unless given."""

    def run(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            env={**os.environ, **environment},
        )

    return run
