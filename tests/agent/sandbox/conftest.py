"""Fixtures for every kind of sandbox that this machine supports. Each has a workspace and secrets outside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.agent.sandbox import sandbox as sandboxes
from hermes.agent.sandbox.child_environment import make_child_environment
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.sandbox import Sandbox, make_shell_command

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROBLEMS = {
    "bubblewrap": sandboxes.probe_bubblewrap,
    "landlock": sandboxes.probe_landlock,
}


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "private"
    made.mkdir()
    return made


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "a.txt").write_text("mine\n")
    return made


@pytest.fixture
def secrets(home: Path, tmp_path: Path) -> dict[str, Path]:
    """Create files that contain `hunter2` and that a sandbox must hide. Return their paths, keyed by the kind
    of secret."""
    files = {
        "keys": home / ".env",
        "store": home / "state.db",
        "pairing": home / "gateway" / "pairing.json",
        "people": home / "people" / "x" / "memories" / "USER.md",
        "ssh": Path.home() / ".ssh" / "id_ed25519",
        "aws": Path.home() / ".aws" / "credentials",
        "browser": Path.home() / ".mozilla" / "firefox" / "cookies",
        "other project": Path.home() / "other" / ".env",
        "elsewhere": tmp_path / "elsewhere" / ".env",
    }
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hunter2\n")
    return files


@pytest.fixture(params=["bubblewrap", "landlock"])
def box(request: pytest.FixtureRequest, workspace: Path, temporary: Path) -> Sandbox:
    if sys.platform != "linux":
        pytest.skip("only on Linux")
    problem = PROBLEMS[request.param]()
    if problem:
        pytest.skip(f"{request.param} is not to be had: {problem}")
    return Sandbox(View(workspace, temporary), request.param)


@pytest.fixture
def run(box: Sandbox) -> Run:
    """Return a function that runs a shell command inside the sandbox: `run("ls")`."""

    def start(
        command: str, *, network: bool = True, read_only: bool = False
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            box.start(make_shell_command(command), box.view.directory, network=network, read_only=read_only),
            env=make_child_environment(box.view.temporary),
            cwd=box.view.directory,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start
