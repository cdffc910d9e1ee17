"""Starts one command in a sandbox, and ends every process that the command leaves behind. Run by its file
path:

    python -I -S launcher.py SPEC PROGRAM [ARGUMENT ...]

SPEC is a JSON object:

- `landlock`: the rules, a list of [path, rights] pairs (see `sandbox.py`).
- `scope`: refuse abstract sockets and signals to processes outside the sandbox.
- `deny_sockets`: the socket families to refuse.
- `keyring`: refuse the kernel's key store.
- `git`: a git folder whose settings are restored if the command changes them.
- `git_names`: the names of the settings to restore; the default is all.

The launcher uses only the standard library, because the sandbox can hide everything else.

The launcher itself stays outside the sandbox. It adopts orphaned processes (as a subreaper), so a daemon that
left its process group also ends with the command. The launcher ends all processes when its parent dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import stat
import struct
import sys
import time
from typing import Any, NoReturn

GRACE_S = 0.3
"""How long processes may take to end after SIGTERM before they are killed."""
CANNOT_RUN = 126
GIT_FILES, GIT_FOLDERS = ("config", "config.worktree", "commondir", "info/attributes"), ("hooks",)
GIT_CHECK_S = 1.0
"""The interval, in seconds, at which the git settings are checked while the command runs. A command can run
for hours."""
LARGEST_GIT_FILE, MOST_HOOKS = 1_000_000, 200

PR_CAPBSET_DROP, PR_SET_SECUREBITS = 24, 28
ROOT_IS_NOBODY_SPECIAL = 0b11101111
"""All securebits that restrict root, each with its lock bit. The bit that keeps capabilities is not
included."""
CAPABILITY_VERSION, LAST_CAPABILITY = 0x20080522, 63
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH = 1
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
SCOPE_ABI = 6
O_PATH = 0o10000000

# The access rights of each Landlock version: 13 in the first, then REFER, TRUNCATE and (from 5) IOCTL_DEV.
RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
RIGHTS = {"read": EXECUTE | READ_FILE | READ_DIR, "list": READ_DIR, "write": (1 << 16) - 1}

# Per machine: AUDIT_ARCH, then the numbers of socket, add_key, request_key and keyctl.
MACHINES = {
    "x86_64": (0xC000003E, 41, (248, 249, 250)),
    "aarch64": (0xC00000B7, 198, (217, 218, 219)),
}
IO_URING_SETUP = 425
X32_BIT = 0x40000000
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_FIRST_ARGUMENT = 0, 4, 16

libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    parent = os.getppid()
    git = GitSettings(spec["git"], spec.get("git_names")) if spec.get("git") else None
    signal.signal(signal.SIGTERM, lambda *_: _end_everything(git))
    child = os.fork()
    if child == 0:
        _become(command, spec)
    if os.getppid() != parent:  # the parent died before PR_SET_PDEATHSIG took effect
        _end_everything(git)
    if git is not None:
        signal.signal(signal.SIGALRM, lambda *_: _put_back(git, is_over=False))
        signal.setitimer(signal.ITIMER_REAL, GIT_CHECK_S, GIT_CHECK_S)
    code = _wait_for(child)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _end_processes()
    _put_back(git)
    if code < 0:  # end with the same signal, so that the caller sees it
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _wait_for(child: int) -> int:
    """Return the exit code of the command, or the negated number of the signal that ended it. While waiting,
    reap adopted orphans too."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _end_everything(git: GitSettings | None) -> NoReturn:
    signal.setitimer(signal.ITIMER_REAL, 0)
    _end_processes()
    _put_back(git)
    os._exit(128 + signal.SIGTERM)


def _end_processes() -> None:
    """Send SIGTERM to all descendants of this process. After a grace period, send SIGKILL repeatedly until no
    descendant is left, for up to 5 seconds."""
    _signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.01)
    deadline = time.monotonic() + 5
    while _reap() and time.monotonic() < deadline:
        _signal_all(signal.SIGKILL)  # without a pause, so that a process that keeps forking does not survive


def _put_back(git: GitSettings | None, *, is_over: bool = True) -> None:
    try:
        if git is not None and git.put_back(is_over=is_over):
            os.write(2, b"[the sandbox reverted a change to git's hooks or settings]\n")
    except OSError as problem:
        os.write(2, f"[git's hooks or settings were changed and could not be restored: {problem}]\n".encode())


def _reap() -> bool:
    """Reap ended processes. Return whether any process still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_all(number: int) -> None:
    for pid in _list_descendants():
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _list_descendants() -> list[int]:
    """Return all descendants of this process. Without /proc, return the members of its process group
    instead."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    for name in names:
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    if not children:
        return _get_process_group()
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _get_process_group() -> list[int]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return [-os.getpgrp()] if os.getpgrp() == os.getpid() else []


# ---------------------------------------------------------------- git


class GitSettings:
    """A snapshot of the files in a git folder that can make git start programs.

    Landlock cannot protect these files from a command that may write to the rest of the folder. The files are
    accessed through a descriptor of the folder, which is opened at the start, and never through a link. A
    link can therefore not redirect a write to another file.
    """

    def __init__(self, folder: str, names: list[str] | None = None) -> None:
        self._path = folder
        self._files = [name for name in GIT_FILES if names is None or name in names]
        self._folders = [name for name in GIT_FOLDERS if names is None or name in names]
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._before = self._read()

    def put_back(self, *, is_over: bool) -> bool:
        """Restore the files of the git folder to the state of the snapshot. Return whether anything had changed.

        `is_over` says whether the command has ended. A git folder that was moved is moved back only then, because
        a running command could replace the path during the move.
        """
        is_moved = is_over and self._move_back()
        now = self._read()
        for name in now.keys() - self._before.keys():
            self._remove(name)
        for name, (data, mode) in self._before.items():
            if now.get(name) != (data, mode):
                self._write(name, data, mode)
        return is_moved or now != self._before

    def _move_back(self) -> bool:
        """If the git folder was moved, move it back to its original path. Return whether it was moved."""
        actual = os.readlink(f"/proc/self/fd/{self._folder}")
        if actual == self._path:
            return False
        if os.path.lexists(self._path):
            os.rename(self._path, f"{self._path}.replaced.{os.getpid()}")
        os.rename(actual, self._path)
        return True

    def _read(self) -> dict[str, tuple[bytes, int]]:
        found: dict[str, tuple[bytes, int]] = {}
        for name in self._files:
            self._read_file(name, found)
        for folder in self._folders:
            for name in self._list_names(folder):
                self._read_file(f"{folder}/{name}", found)
        return found

    def _read_file(self, name: str, found: dict[str, tuple[bytes, int]]) -> None:
        """Add the content and the mode of the file `name` in the git folder to `found`. For a link, its target is
        added as the content. A file that does not exist is not added."""
        folder, _, base = name.rpartition("/")
        above = self._open_folder(folder)
        if above is None:
            return
        try:
            status = os.stat(base, dir_fd=above, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                found[name] = os.readlink(base, dir_fd=above).encode(), 0
            elif stat.S_ISREG(status.st_mode):
                descriptor = os.open(base, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=above)
                with os.fdopen(descriptor, "rb") as file:
                    found[name] = file.read(LARGEST_GIT_FILE), stat.S_IMODE(status.st_mode)
        except OSError:
            pass
        finally:
            os.close(above)

    def _write(self, name: str, data: bytes, mode: int) -> None:
        folder, _, base = name.rpartition("/")
        if folder and self._open_folder(folder) is None:  # the file is missing or was replaced by a link
            self._remove(folder)
            os.mkdir(folder, 0o755, dir_fd=self._folder)
        self._remove(name)
        above = self._open_folder(folder)
        if above is None:
            raise OSError(f"{folder} cannot be opened")
        try:
            if mode == 0:
                os.symlink(data.decode(), base, dir_fd=above)
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(base, flags, mode, dir_fd=above), "wb") as file:
                file.write(data)
        finally:
            os.close(above)

    def _remove(self, name: str) -> None:
        folder, _, base = name.rpartition("/")
        above = self._open_folder(folder)
        if above is not None:
            try:
                os.unlink(base, dir_fd=above)
            except OSError:
                pass
            finally:
                os.close(above)

    def _list_names(self, folder: str) -> list[str]:
        opened = self._open_folder(folder)
        if opened is None:
            return []
        try:
            return os.listdir(opened)[:MOST_HOOKS]
        finally:
            os.close(opened)

    def _open_folder(self, folder: str) -> int | None:
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(folder or ".", flags, dir_fd=self._folder)
        except OSError:
            return None


# ---------------------------------------------------------------- inside the sandbox


def _become(command: list[str], spec: dict[str, Any]) -> NoReturn:
    """Restrict this process according to `spec`, and then replace it by the command. If a restriction fails, the
    command is not executed."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if spec:
                restrict(spec)
        os.execvp(command[0], command)
    except BaseException as problem:  # noqa: BLE001  a forked child cannot raise to the caller
        os.write(2, f"the sandbox could not be created: {problem}\n".encode())
    os._exit(CANNOT_RUN)


def restrict(spec: dict[str, Any]) -> None:
    _check_result(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if "landlock" in spec:
        _drop_capabilities()
    if "landlock" in spec or spec.get("scope"):
        _restrict_files(spec.get("landlock"), scope=bool(spec.get("scope")))
    _restrict_calls(spec.get("deny_sockets"), keyring=bool(spec.get("keyring")))


def _drop_capabilities() -> None:
    """Drop all capabilities if this process runs as root, because a capability would allow it to read the
    memory of other processes."""
    if os.geteuid() != 0:
        return
    _check_result(libc.prctl(PR_SET_SECUREBITS, ROOT_IS_NOBODY_SPECIAL, 0, 0, 0), "securebits")
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # the kernel rejects unknown numbers
    header, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    _check_result(libc.capset(header, none), "capset")


def get_landlock_version() -> int:
    """Return the Landlock version of this kernel; 0 if it has none."""
    return max(0, libc.syscall(CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def _restrict_files(rules: list[list[str]] | None, *, scope: bool) -> None:
    version = get_landlock_version()
    known = RIGHTS_BY_ABI[min(version, 5)] if rules is not None and version else 0
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if scope and version >= SCOPE_ABI else 0
    if rules is not None and not version:
        raise OSError("the kernel has no Landlock")
    if not known and not scoped:
        return
    attributes = struct.pack("=QQQ", known, 0, scoped)[
        : 24 if version >= SCOPE_ABI else 16 if version >= 4 else 8
    ]
    ruleset = _check_result(libc.syscall(CREATE_RULESET, attributes, len(attributes), 0), "landlock")
    for path, right in rules or []:
        _allow(ruleset, path, RIGHTS[right] & known)
    _check_result(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, O_PATH | os.O_CLOEXEC)
    except OSError:  # deleted after the rules were made
        return
    try:
        if not os.path.isdir(path):
            rights &= OF_FILES
        attributes = struct.pack("=Qi", rights, descriptor)
        _check_result(
            libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, attributes, 0), f"landlock rule for {path}"
        )
    finally:
        os.close(descriptor)


def _restrict_calls(families: list[int] | None, *, keyring: bool) -> None:
    """Install a seccomp filter that refuses sockets of the given `families`. An empty list refuses all
    sockets; None refuses none.

    With `keyring`, the filter also refuses the kernel's key store, and io_uring, which could create sockets
    without the filtered system call.
    """
    if families is None and not keyring:
        return
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(f"there is no system call filter for {platform.machine()}")
    arch, socket, keys = machine
    refused = (*keys, IO_URING_SETUP) if keyring else ()
    program = [
        (LOAD, 0, 0, OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, arch),
        (RETURN, 0, 0, REFUSE | ENOSYS),
        (LOAD, 0, 0, OFFSET_NUMBER),
        (JUMP_GREATER_EQUAL, 0, 1, X32_BIT),
        (RETURN, 0, 0, REFUSE | ENOSYS),
    ]
    for number in refused:
        program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | ENOSYS)]
    if families is not None:
        checks = [
            step
            for family in families
            for step in ((JUMP_EQUAL, 0, 1, family), (RETURN, 0, 0, REFUSE | EPERM))
        ] or [(RETURN, 0, 0, REFUSE | EPERM)]
        program += [(JUMP_EQUAL, 0, len(checks) + 1, socket), (LOAD, 0, 0, OFFSET_FIRST_ARGUMENT), *checks]
    program.append((RETURN, 0, 0, ALLOW))
    filters = b"".join(struct.pack("=HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    header = struct.pack("@HxxxxxxP", len(program), ctypes.addressof(buffer))
    _check_result(libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


def _check_result(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


if __name__ == "__main__":
    main()
