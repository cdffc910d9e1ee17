"""Runs the real command in a separate process, with the home of the test."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from hermes_state import SessionDB
from tests import warm_command
from tests.terminal import read_output

COMMAND = [sys.executable, "-W", "error", "-m", "hermes.cli.main"]

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
AddSession = Callable[..., str]


@pytest.fixture
def hermes() -> Hermes:
    """Return a function that runs the command until it ends: `hermes("sessions", "list")`. `stdin` is empty
    by default."""

    def run(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return warm_command.run(words, stdin=stdin, environment=environment)

    return run


@pytest.fixture
def add_session(db: SessionDB) -> AddSession:
    """Return a function that stores a conversation that is `age` seconds old, with `text` as its only
    message."""

    def add(session_id: str, text: str = "", *, source: str = "cli", title: str = "", age: float = 0) -> str:
        when = time.time() - age
        db.create_session(session_id, source, started_at=when)
        if text:
            db.append_message(session_id, "user", text, timestamp=when)
        if title:
            db.set_session_title(session_id, title)
        return session_id

    return add


def seen_on_a_terminal(width: int, *words: str, **environment: str) -> str:
    """Run the command in a terminal that is `width` columns wide, and return its output."""
    ours, theirs = pty.openpty()
    with open(os.devnull) as nothing:
        child = warm_command.start(
            words,
            (nothing.fileno(), theirs, 2),
            environment={"COLUMNS": str(width), "TERM": "xterm-256color", **environment},
        )
    output = read_output(child, ours, theirs)
    assert child.returncode == 0
    return output.decode().replace("\r\n", "\n")
