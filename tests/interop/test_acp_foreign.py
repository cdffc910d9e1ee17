"""A client that we did not write: `acpx`, a command-line client of the protocol, from npm."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hermes_state import SessionDB

pytestmark = pytest.mark.full

AGENT = f"{sys.executable} -m hermes.cli.main acp"


@pytest.fixture(scope="module")
def acpx() -> Path:
    """Return the program `acpx`. It is installed once and kept for the next run."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = Path(tempfile.gettempdir()) / f"hermes-tests-{os.getuid()}" / "acpx"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    program = folder / "node_modules" / ".bin" / "acpx"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers can request it at the same time
        if not program.exists():
            install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "acpx"]
            if subprocess.run(install, capture_output=True, timeout=240).returncode:
                pytest.skip("acpx could not be installed")
    return program


def run(acpx: Path, workspace: Path, *words: str, approve: str = "--approve-all") -> str:
    """Run `acpx` with `hermes acp` as its agent and return what it prints."""
    done = subprocess.run(
        [
            str(acpx),
            "--agent",
            AGENT,
            approve,
            "--timeout",
            "60",
            "--ttl",
            "1",
            "--cwd",
            str(workspace),
            *words,
        ],
        env={**os.environ, "HERMES_MODEL": "offline"},
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_a_question_is_answered_and_stored(acpx: Path, workspace: Path) -> None:
    printed = run(acpx, workspace, "exec", "hello")
    assert "I am the offline model" in " ".join(printed.split())
    assert "[done] end_turn" in printed
    with SessionDB() as db:
        (row,) = db.list_conversations(sources=["acp"]).rows
        assert db.get_messages(row["id"])[0]["content"] == "hello"


def test_an_edit_is_approved_and_shown_as_a_diff(acpx: Path, workspace: Path) -> None:
    printed = run(acpx, workspace, "exec", "write notes.txt: hello there")
    assert f"diff {workspace / 'notes.txt'}" in printed
    assert (workspace / "notes.txt").read_text() == "hello there"


def test_a_session_of_the_client_continues_over_several_prompts(acpx: Path, workspace: Path) -> None:
    run(acpx, workspace, "sessions", "new", "--name", "work")
    try:
        run(acpx, workspace, "prompt", "--session", "work", "write a.txt: one")
        run(acpx, workspace, "prompt", "--session", "work", "read a.txt")
    finally:
        run(acpx, workspace, "sessions", "close", "work")
    with SessionDB() as db:
        (row,) = db.list_conversations(sources=["acp"]).rows
        asked = [message["content"] for message in db.get_messages(row["id"]) if message["role"] == "user"]
        assert asked == ["write a.txt: one", "read a.txt"]
