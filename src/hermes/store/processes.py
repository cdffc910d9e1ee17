"""Processes recorded in rows, and whether they are still running.

A process is identified by host, pid and start time, because pids are reused. A process on another host cannot
be checked, so its lease is respected until the lease expires.

`sessions.process` records the processes that created, reopened or wrote to a session, as a JSON object or a
list of objects. A record also contains the boot id and the pid namespace, to recognise a reboot and another
container on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hermes.store.content import from_json, to_json

MOST_RECORDS = 16
"""Maximum number of processes recorded for one session. Processes known to have ended are removed first, so
the limit matters only if the others cannot be checked."""

DEAD_STATES = ("Z", "X", "x")
"""States in /proc of a process that has ended, but whose parent has not waited for it yet."""


class Process(NamedTuple):
    host: str
    pid: int
    start: str | None


def identify_process() -> Process:
    pid = os.getpid()
    return Process(os.uname().nodename, pid, _find_own_start(pid))


@cache
def _make_record(pid: int) -> str:
    process = Process(os.uname().nodename, pid, _find_own_start(pid))
    return to_json({**process._asdict(), "boot": _read_boot_id(), "namespace": _read_pid_namespace()})


def current_record() -> str:
    """Return this process as JSON for `sessions.process`. A forked child process gets its own record."""
    return _make_record(os.getpid())


def add_current_record(recorded: str | None) -> str | None:
    """Return the value of `sessions.process` with this process added and dead processes removed. Return None
    if this process is already recorded."""
    current = current_record()
    if recorded is not None and current in recorded:
        return None
    others = [record for record in _parse_records(recorded) if not _is_known_dead(record)]
    if not others:
        return current
    return to_json([*others[1 - MOST_RECORDS :], from_json(current, {})])


def may_be_running(recorded: str | None) -> bool:
    """Return whether one of the recorded processes is running or cannot be checked. Return False if none is
    recorded."""
    return any(not _is_known_dead(record) for record in _parse_records(recorded))


def _parse_records(recorded: str | None) -> list[dict[str, object]]:
    decoded = from_json(recorded, None) if recorded else None
    records = decoded if isinstance(decoded, list) else [decoded]
    return [record for record in records if isinstance(record, dict)]


def _is_known_dead(record: dict[str, object]) -> bool:
    """Return whether the recorded process is known to have ended. A process of another host or container
    cannot be checked, so the result is False."""
    boot, same_host = record.get("boot"), record.get("host") == os.uname().nodename
    if boot is not None and boot != _read_boot_id():
        return same_host  # the machine was rebooted after the record was written
    if boot is not None and record.get("namespace") != _read_pid_namespace():
        return False
    if boot is None and not same_host:
        return False
    return not _is_alive_here(record.get("pid"), record.get("start"))


def is_running(process: str | None) -> bool:
    """Return whether the process recorded in the JSON text `process` is known to be running."""
    decoded = from_json(process, None) if process else None
    if not isinstance(decoded, dict) or decoded.get("host") != os.uname().nodename:
        return False
    return _is_alive_here(decoded.get("pid"), decoded.get("start"))


def is_gone(host: object, pid: object, start: object) -> bool:
    """Return whether the process with this host, pid and start time is known to have ended. A process on
    another host cannot be checked, so the result is False."""
    return host == os.uname().nodename and not _is_alive_here(pid, start)


def _is_alive_here(pid: object, start: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # the process exists, but belongs to another user
    stat = _read_stat(pid)
    if stat is not None and stat[0] in DEAD_STATES:
        return False
    return start is None or find_start(pid) in (None, start)


def find_start(pid: int) -> str | None:
    """Return the start time of a process as a text from /proc, or from `ps` if there is no /proc. None if
    unknown."""
    stat = _read_stat(pid)
    if stat is not None:
        return stat[19]
    return None if Path("/proc/self/stat").exists() else find_start_by_ps(pid)


def list_descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for child, parent in _list_parents():
        children.setdefault(parent, []).append(child)
    found, waiting = list[int](), [pid]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _list_parents() -> Iterator[tuple[int, int]]:
    """Yield (pid, pid of the parent) of each process of this machine. They are read from /proc, or from `ps` if
    there is no /proc."""
    if Path("/proc/self/stat").exists():
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
            if (stat := _read_stat(pid)) is not None:
                yield pid, int(stat[1])
        return
    import subprocess

    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, timeout=5, check=False
        )
        for line in listed.stdout.splitlines():
            words = line.split()
            yield int(words[0]), int(words[1])


def find_start_by_ps(pid: int) -> str | None:
    """Return the start time of a process from `ps`, independent of the language and time zone of this
    process. None if it cannot be determined."""
    import subprocess

    plain = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        result = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of the file /proc/PID/stat that come after the process name. The first of them is the
    state of the process, and the 20th is its start time.

    The name is skipped, because it can contain any character.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return fields if len(fields) > 19 else None


@cache
def _read_boot_id() -> str | None:
    """Return the id of the current boot of the machine. None if there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


@cache
def _read_pid_namespace() -> str | None:
    """Return the pid namespace of this process, which differs between containers. None if unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


@cache
def _find_own_start(pid: int) -> str | None:
    return find_start(pid)
