"""Bubblewrap: a file system of its own, made of what the view shows, and on request no network.

Hidden files inside a folder that is shown are masked. The process namespace ends with the command, so nothing that it
started outlives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes.agent.sandbox.file_view import TEMPORARY, View
from hermes.agent.sandbox.programs import find_system_program

PROGRAM = "bwrap"
ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL",
    "--die-with-parent", "--new-session", "--hostname", "sandbox",
)  # fmt: skip
LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""On most systems these are links into /usr."""
SETTINGS_OF_THE_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "mtrr", "pressure")
PROC = (
    "--proc", "/proc",
    *(word for name in SETTINGS_OF_THE_KERNEL for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
)  # fmt: skip
"""Root owns the files in /proc/sys and needs no capability to write them: `kernel.core_pattern` names a program that
the kernel starts outside of every sandbox."""
LAUNCHER_SPEC: dict[str, Any] = {"scope": True, "keyring": True}


def is_installed() -> bool:
    return find_system_program(PROGRAM) is not None


def make_spec(view: View, *, read_only: bool = False) -> dict[str, Any]:
    """What the launcher is told. A file that does not exist cannot be mounted, so the launcher looks after it."""
    if view.git_folder is None or read_only or not view.unprotected_git_settings:
        return LAUNCHER_SPEC
    return LAUNCHER_SPEC | {"git": str(view.git_folder), "git_names": view.unprotected_git_settings}


def make_arguments(view: View, folder: Path, *, network: bool, read_only: bool = False) -> list[str]:
    """The command line of bubblewrap, up to the program that is to be run. Later mounts cover earlier ones."""
    made = [find_system_program(PROGRAM) or PROGRAM, *ISOLATION]
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
    """Folders above what is protected. A mount point cannot be renamed, so no other folder takes its place."""
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
    """Nothing in the place of each hidden path that would be seen otherwise."""
    for path in sorted(view.hidden):
        if any(path.is_relative_to(other) for other in view.hidden if other != path):
            continue  # the folder above is masked
        if not any(path.is_relative_to(folder) for folder in view.readable):
            continue
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))
