"""Chooses the sandbox for this machine and workspace, and starts commands in it.

There are three kinds: bubblewrap creates a separate file system, Landlock grants rights in the existing one,
and Seatbelt is the sandbox of macOS. Their differences are confined to this module; other modules use
`Sandbox`.
"""

from __future__ import annotations

import ctypes
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hermes.agent.sandbox import launcher
from hermes.agent.sandbox.file_view import TEMPORARY, View
from hermes.agent.sandbox.programs import find_system_program

PROBE_S = 10.0
PR_SET_DUMPABLE = 4
INSTALL = "install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"
BWRAP = "bwrap"
ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL",
    "--die-with-parent", "--new-session", "--hostname", "sandbox",
)  # fmt: skip
LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders that are links to folders in /usr on most systems."""
SETTINGS_OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "mtrr", "pressure")
PROC = (
    "--proc", "/proc",
    *(word for name in SETTINGS_OF_THE_KERNEL for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
)  # fmt: skip
"""Mounts /proc with the kernel settings read-only.

Without this, root could change the files in /proc/sys even without a capability, because root owns them. One
of them, `kernel.core_pattern`, names a program that the kernel starts outside every sandbox.
"""
LAUNCHER_SPEC: dict[str, Any] = {"scope": True, "keyring": True}
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
READ_ONLY_FOLDERS = ("/proc",)
SANDBOX_EXEC = "sandbox-exec"
PROFILE = """
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.trustd.agent"))
(allow file-read-metadata)
(allow file-read* file-write* file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (literal "/dev/dtracehelper"))
""".strip()
PROFILE_NETWORK = (
    "(allow network-outbound (remote ip)) (allow network-inbound (local ip)) (allow system-socket)"
)


class Sandbox(NamedTuple):
    """A sandbox of one kind for one view. `kind` is None if no sandbox is available."""

    view: View
    kind: str | None
    reason: str = ""
    """The reason why there is no sandbox. If there is one: the protection that it cannot enforce; empty if it
    enforces everything."""

    @property
    def is_there(self) -> bool:
        return self.kind is not None

    @property
    def has_private_tmp(self) -> bool:
        """Whether commands in the sandbox see the private temporary folder as `/tmp`."""
        return self.kind == "bubblewrap"

    def start(
        self, program: list[str], folder: Path, *, network: bool = True, read_only: bool = False
    ) -> list[str]:
        """Return the command line that runs a program in the sandbox. If no sandbox is available, the command
        line runs the program without one.

        `folder` is the working directory. With `read_only`, only the private temporary folder is writable.
        """
        match self.kind:
            case "bubblewrap":
                inside = _make_bubblewrap_arguments(self.view, folder, network=network, read_only=read_only)
                return _make_launch_command(
                    _make_bubblewrap_spec(self.view, read_only=read_only), [*inside, *program]
                )
            case "landlock":
                return _make_launch_command(
                    _make_landlock_spec(self.view, network=network, read_only=read_only), program
                )
            case "seatbelt":
                return _make_launch_command(
                    {}, [*_make_seatbelt_arguments(self.view, network=network, read_only=read_only), *program]
                )
        return make_outside_command(program)

    def describe(self) -> str:
        if self.kind is None:
            return f"no sandbox: {self.reason}"
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def make_outside_command(program: list[str]) -> list[str]:
    """Return the command line that runs a program without a sandbox. As in a sandbox, the child processes of
    the program are ended when the program ends."""
    return _make_launch_command({}, program)


def make_shell_command(command: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the command line of a shell that runs `command`. `variables` are set only for the shell, not for the
    program that creates the sandbox around the shell."""
    shell = [find_system_program("bash") or "/bin/sh", "-c", command]
    if not variables:
        return shell
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *shell]


def choose_sandbox(view: View) -> Sandbox:
    """Return the best available sandbox: bubblewrap, otherwise Landlock; on macOS Seatbelt."""
    if view.is_inside_hidden:
        return Sandbox(view, None, "the working directory belongs to the agent or contains the person's keys")
    if view.is_too_wide:
        return Sandbox(
            view, None, "the working directory contains the whole home; start in the folder of a project"
        )
    if sys.platform == "darwin":
        problem = probe_seatbelt() if _has_seatbelt() else "sandbox-exec is not installed"
        return Sandbox(view, None, problem) if problem else Sandbox(view, "seatbelt")
    if sys.platform != "linux":
        return Sandbox(view, None, f"there is no sandbox for {sys.platform}")
    missing = probe_bubblewrap() if _has_bubblewrap() else f"bubblewrap is not installed; {INSTALL}"
    if not missing:
        return Sandbox(view, "bubblewrap")
    problem = probe_landlock() or explain_no_landlock(view)
    if problem:
        return Sandbox(view, None, f"{missing}; {problem}")
    return Sandbox(view, "landlock", f"weaker than bubblewrap ({missing})")


def make_unreadable() -> None:
    """Prevent other processes of the same user from reading the memory, environment and open files of this
    process.

    This also disables core dumps. Only a debugger that runs as root can still attach.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


# ---------------------------------------------------------------- availability


@cache
def probe_bubblewrap() -> str:
    """Return why bubblewrap cannot be used; empty if it can. The function runs bubblewrap once, because
    distributions restrict user namespaces in different ways."""
    base = [
        find_system_program(BWRAP) or "",
        *ISOLATION,
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
    ]
    return _find_problem(
        "bubblewrap",
        _make_launch_command(LAUNCHER_SPEC, [*base, *PROC, "--dev", "/dev", "--", "true"]),
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
        [
            find_system_program(SANDBOX_EXEC) or "",
            "-p",
            "(version 1)(allow default)",
            "/usr/bin/true",
        ],
    )


def _find_problem(name: str, command: list[str]) -> str:
    """Run `command`, which tries out a sandbox, and return why it fails; empty if it succeeds. `name` is the name of
    the sandbox for the message."""
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
    # -I -S: import nothing from the workspace or the environment.
    return [sys.executable, "-I", "-S", launcher.__file__, json.dumps(spec, separators=(",", ":")), *program]


# ---------------------------------------------------------------- bubblewrap

# bubblewrap creates a separate file system with the visible paths, and removes the network on request. Hidden
# files in a visible folder are masked. The process namespace ends with the command, so no child process
# outlives it.


def _has_bubblewrap() -> bool:
    return find_system_program(BWRAP) is not None


def _make_bubblewrap_spec(view: View, *, read_only: bool = False) -> dict[str, Any]:
    """Return the SPEC of the launcher for a command in bubblewrap. A mount cannot protect a git settings file that
    does not exist, so the launcher removes such a file if a command creates it."""
    if view.git_folder is None or read_only or not view.unprotected_git_settings:
        return LAUNCHER_SPEC
    return LAUNCHER_SPEC | {"git": str(view.git_folder), "git_names": view.unprotected_git_settings}


def _make_bubblewrap_arguments(
    view: View, folder: Path, *, network: bool, read_only: bool = False
) -> list[str]:
    """Return the command line of bubblewrap up to the program that it runs. The order of the mounts matters: a later
    mount covers an earlier one."""
    made = [find_system_program(BWRAP) or BWRAP, *ISOLATION]
    if not network:
        made.append("--unshare-net")
    covered = [path for path in view.system if any(map(path.is_relative_to, (view.person, TEMPORARY)))]
    made += [
        *_link_paths(),
        *_mount_paths("--ro-bind-try", *(path for path in view.system if path not in covered)),
    ]
    made += [*PROC, "--dev", "/dev", "--bind", str(view.temporary), str(TEMPORARY)]
    made += ["--tmpfs", str(view.person), *_mount_paths("--ro-bind-try", *covered)]
    if read_only:
        made += _mount_paths("--ro-bind-try", view.workspace, *view.writable)
    else:
        made += _mount_paths("--bind-try", *view.writable)
        made += _mount_paths("--bind", *_list_pinned_folders(view))
    made += [*_mount_paths("--bind", view.temporary), *_mount_paths("--ro-bind", *view.protected)]
    return [*made, *_mask_paths(view), "--chdir", str(folder), "--"]


def _list_pinned_folders(view: View) -> list[Path]:
    """Return the parent folders of protected paths. Each becomes a mount point, which a command can neither
    rename nor replace."""
    above = {
        folder
        for path in view.protected
        for folder in path.parents
        if view.can_change(folder) and folder not in view.writable
    }
    return sorted(above if view.git_folder is None else above | {view.git_folder})


def _mount_paths(option: str, *paths: Path) -> Iterator[str]:
    for path in paths:
        yield from (option, str(path), str(path))


def _link_paths() -> Iterator[str]:
    for name in LINKED:
        if Path(name).is_symlink():
            yield from ("--symlink", str(Path(name).readlink()), name)


def _mask_paths(view: View) -> Iterator[str]:
    """Yield options that cover each hidden path in a visible folder with an empty mount."""
    hidden = set(view.hidden)
    for path in sorted(hidden):
        if not hidden.isdisjoint(path.parents):
            continue  # a parent folder is masked
        if not any(path.is_relative_to(folder) for folder in view.readable):
            continue
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))


# ---------------------------------------------------------------- Landlock

# Landlock is a feature of the Linux kernel whose rules can only grant rights. It is used if bubblewrap is not
# available. It cannot mask a file in a visible folder. A system folder with a hidden file is therefore
# granted entry by entry, and a workspace with a hidden file gets no sandbox. Unix sockets are refused,
# because Landlock does not prevent a command from connecting to a program outside the sandbox.


def _make_landlock_spec(view: View, *, network: bool, read_only: bool = False) -> dict[str, Any]:
    """Return the SPEC of the launcher for a command in Landlock. It contains the Landlock rules that enforce the
    view."""
    rules = [[str(path), right] for path, right in _make_rules(view, read_only=read_only)]
    families = [int(socket.AF_UNIX)] if network else []
    made: dict[str, Any] = {"landlock": rules, "scope": True, "keyring": True, "deny_sockets": families}
    git = view.git_folder
    return made if git is None or read_only else made | {"git": str(git)}


def explain_no_landlock(view: View) -> str | None:
    """Return why Landlock is not suitable for this workspace; None if it is."""
    if view.has_hidden_files:
        return "the workspace contains the agent's files or the person's keys, which Landlock cannot mask"
    if view.own_program:
        return "the workspace contains this program, which Landlock cannot protect"
    return None


def _make_rules(view: View, *, read_only: bool) -> Iterator[tuple[Path, str]]:
    for device in DEVICES:
        yield Path(device), "write"
    for folder in READ_ONLY_FOLDERS:
        yield Path(folder), "read"
    around_hidden = {folder for path in view.hidden for folder in (path, *path.parents)}
    for path in view.system:
        yield from _exclude_hidden(path, view, around_hidden)
    yield view.temporary, "write"
    for path in view.readable:
        if path not in view.system and path != view.temporary:
            yield path, "write" if path in view.writable and not read_only else "read"


def _exclude_hidden(path: Path, view: View, around_hidden: set[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the Landlock rules that make a folder readable without its hidden paths.

    This is one rule if the folder contains no hidden path. Otherwise the folder can only be listed, and the rules
    for everything in it follow. `around_hidden` are the hidden paths and all folders that contain one.
    """
    if view.is_hidden(path):
        return
    if path not in around_hidden:
        yield path, "read"
        return
    yield path, "list"
    try:
        entries = sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            yield from _exclude_hidden(entry, view, around_hidden)


# ---------------------------------------------------------------- Seatbelt

# `sandbox-exec` of macOS with a profile made from the view. The last matching rule wins.


def _has_seatbelt() -> bool:
    return find_system_program(SANDBOX_EXEC) is not None


def _make_seatbelt_arguments(view: View, *, network: bool, read_only: bool = False) -> list[str]:
    return [
        find_system_program(SANDBOX_EXEC) or SANDBOX_EXEC,
        "-p",
        make_seatbelt_profile(view, network=network, read_only=read_only),
    ]


def make_seatbelt_profile(view: View, *, network: bool, read_only: bool = False) -> str:
    lines = [PROFILE]
    lines += [f"(allow file-read* {_format_subpath(path)})" for path in view.readable]
    writable = [view.temporary] if read_only else view.writable
    lines += [f"(allow file-write* {_format_subpath(path)})" for path in writable]
    lines += [f"(deny file-write* {_format_subpath(path)})" for path in view.protected]
    lines += [f"(deny file-read* file-write* {_format_subpath(path)})" for path in view.hidden]
    if network:
        lines.append(PROFILE_NETWORK)
    return "\n".join(lines)


def _format_subpath(path: Path) -> str:
    quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'(subpath "{quoted}")'
