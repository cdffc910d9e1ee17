"""The sandbox that this machine and this workspace can have, and how a command is started in it."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hermes.agent.sandbox import bubblewrap, landlock, launcher, seatbelt
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.programs import find_system_program

PROBE_S = 10.0
PR_SET_DUMPABLE = 4
INSTALL = "install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"


class Sandbox(NamedTuple):
    """One kind of sandbox for one view; `kind` is None where none can be had."""

    view: View
    kind: str | None
    reason: str = ""
    """Why there is none, or what it cannot do."""

    @property
    def is_there(self) -> bool:
        return self.kind is not None

    @property
    def has_private_tmp(self) -> bool:
        """Whether `/tmp` is the private folder for a command inside."""
        return self.kind == "bubblewrap"

    def start(
        self, program: list[str], folder: Path, *, network: bool = True, read_only: bool = False
    ) -> list[str]:
        """The command line that runs a program inside."""
        match self.kind:
            case "bubblewrap":
                inside = bubblewrap.make_arguments(self.view, folder, network=network, read_only=read_only)
                return _make_launch_command(
                    bubblewrap.make_spec(self.view, read_only=read_only), [*inside, *program]
                )
            case "landlock":
                return _make_launch_command(
                    landlock.make_spec(self.view, network=network, read_only=read_only), program
                )
            case "seatbelt":
                return _make_launch_command(
                    {}, [*seatbelt.make_arguments(self.view, network=network, read_only=read_only), *program]
                )
        return make_outside_command(program)

    def describe(self) -> str:
        if self.kind is None:
            return f"no sandbox: {self.reason}"
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def make_outside_command(program: list[str]) -> list[str]:
    """The command line that runs a program without a sandbox. It still ends with what it started."""
    return _make_launch_command({}, program)


def make_shell_command(command: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """The command line of a shell. `variables` are set only there, not for the program that makes the sandbox."""
    shell = [find_system_program("bash") or "/bin/sh", "-c", command]
    if not variables:
        return shell
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *shell]


def choose_sandbox(view: View) -> Sandbox:
    """The best one there is: bubblewrap, else Landlock; on macOS Seatbelt."""
    if view.is_inside_hidden:
        return Sandbox(view, None, "the working directory belongs to the agent or holds the person's keys")
    if view.is_too_wide:
        return Sandbox(
            view, None, "the working directory holds the whole home; start in the folder of a project"
        )
    if sys.platform == "darwin":
        problem = probe_seatbelt() if seatbelt.is_installed() else "sandbox-exec is not installed"
        return Sandbox(view, None, problem) if problem else Sandbox(view, "seatbelt")
    if sys.platform != "linux":
        return Sandbox(view, None, f"there is none for {sys.platform}")
    missing = probe_bubblewrap() if bubblewrap.is_installed() else f"bubblewrap is not installed; {INSTALL}"
    if not missing:
        return Sandbox(view, "bubblewrap")
    problem = probe_landlock() or landlock.explain_unavailable(view)
    if problem:
        return Sandbox(view, None, f"{missing}; {problem}")
    return Sandbox(view, "landlock", f"weaker than bubblewrap ({missing})")


def make_unreadable() -> None:
    """No other process of the same user can read the memory, the environment or the open files of this one.

    It also writes no core dump. A debugger cannot attach any more, unless it runs as root.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


# ---------------------------------------------------------------- whether it works here


@cache
def probe_bubblewrap() -> str:
    """Why bubblewrap cannot be used; empty if it can. Distributions forbid what it needs in different ways."""
    base = [
        find_system_program(bubblewrap.PROGRAM) or "",
        *bubblewrap.ISOLATION,
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
    ]
    return _find_problem(
        "bubblewrap",
        _make_launch_command(
            bubblewrap.LAUNCHER_SPEC, [*base, *bubblewrap.PROC, "--dev", "/dev", "--", "true"]
        ),
    )


@cache
def probe_landlock() -> str:
    if not launcher.get_landlock_version():
        return "the kernel has no Landlock"
    return _find_problem(
        "Landlock",
        _make_launch_command(
            {"landlock": [["/", "read"]], "scope": True, "keyring": True, "deny_sockets": []}, ["true"]
        ),
    )


@cache
def probe_seatbelt() -> str:
    return _find_problem(
        "sandbox-exec",
        [find_system_program(seatbelt.PROGRAM) or "", "-p", "(version 1)(allow default)", "/usr/bin/true"],
    )


def _find_problem(name: str, command: list[str]) -> str:
    """Why the sandbox of this name cannot run the command; empty if it can."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.SubprocessError) as problem:
        return f"{name} cannot be run: {problem}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    why = f": {lines[-1][:200]}" if lines else f" (exit {done.returncode})"
    return f"{name} does not work here{why}"


def _make_launch_command(spec: dict[str, Any], program: list[str]) -> list[str]:
    # -I -S: nothing of the workspace or the environment is imported.
    return [sys.executable, "-I", "-S", launcher.__file__, json.dumps(spec, separators=(",", ":")), *program]
