"""A command of the agent has put a program into a folder of PATH. The program must not run outside the
sandbox.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes.agent.approvals.policy import Policy, Refused, Walls
from hermes.agent.approvals.request import DENY, ApprovalRequest, Decision
from hermes.agent.sandbox.child_environment import make_child_environment
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.programs import is_replaceable
from hermes.agent.sandbox.sandbox import Sandbox, make_shell_command
from hermes.agent.tools.running_command import Output, RunningCommand


def plant(folder: Path, name: str) -> Path:
    """Create a program that writes a file when it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch '{folder}/ran'\n")
    program.chmod(0o755)
    return folder / "ran"


async def deny(request: ApprovalRequest) -> Decision:
    return DENY


@pytest.mark.parametrize("name", ["bwrap", "bash"])
def test_the_sandbox_uses_no_program_of_the_workspace(
    box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mark = plant(workspace / ".venv" / "bin", name)
    monkeypatch.setenv("PATH", f"{mark.parent}{os.pathsep}.{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        box.start(make_shell_command("echo done"), workspace), cwd=workspace, capture_output=True, text=True
    )
    assert done.stdout == "done\n"
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["bubblewrap", None])
async def test_a_reading_command_that_the_workspace_replaces_is_asked_about(
    workspace: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    policy = Policy(Sandbox(View(workspace, temporary), kind))
    await policy.check_command("ls", deny)
    mark = plant(workspace / "bin", "ls")
    monkeypatch.setenv("PATH", f"{mark.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Refused):
        await policy.check_command("ls", deny)
    await policy.check_command("cat a.txt", deny)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Refused):
        await policy.check_command("cat a.txt", deny)


def test_a_link_to_a_file_of_the_workspace_is_replaceable_too(
    workspace: Path, temporary: Path, tmp_path: Path
) -> None:
    plant(workspace, "ls")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ls").symlink_to(workspace / "ls")
    view = View(workspace, temporary)
    assert is_replaceable("ls", view, str(tmp_path / "bin"))
    assert not is_replaceable("ls", view, "/usr/bin:/bin")
    assert not is_replaceable("echo", view, ".")


async def test_a_command_without_approval_cannot_write_or_use_the_network(
    box: Sandbox, workspace: Path
) -> None:
    assert await Policy(box).check_command("git status; cat a.txt", deny) is Walls.READ_ONLY
    program = make_shell_command("cat a.txt; echo x > b.txt; exec 3<>/dev/tcp/127.0.0.1/9")
    done = subprocess.run(
        box.start(program, workspace, network=False, read_only=True),
        cwd=workspace,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "mine\n"
    assert not (workspace / "b.txt").exists()


def test_the_chat_that_the_browser_starts_imports_nothing_from_the_working_directory(workspace: Path) -> None:
    from hermes.cli.sessions.browse import CHAT

    (workspace / "hermes").mkdir()
    (workspace / "hermes" / "__init__.py").write_text("raise SystemExit('planted')\n")
    done = subprocess.run([*CHAT, "--help"], cwd=workspace, capture_output=True, text=True)
    assert (done.returncode, "planted" in done.stderr) == (0, False)
    assert CHAT[0] == sys.executable


HOPPING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + 30  # so that nothing stays if the test fails
for _ in range(40):
    if os.fork() == 0:
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)
print("hopping", flush=True)
time.sleep(30)
"""


@pytest.mark.full
def test_processes_that_restart_themselves_end_with_the_command(box: Sandbox, workspace: Path) -> None:
    (workspace / "hop.py").write_text(HOPPING)
    command = box.start([sys.executable, "-I", "hop.py"], workspace)
    running = RunningCommand(
        "hop", command, workspace, make_child_environment(box.view.temporary), Output(1000, 0)
    )
    until = time.monotonic() + 60
    while "hopping" not in running.output.raw() and time.monotonic() < until:
        running.wait(0.01)
    running.kill()
    assert running.over
