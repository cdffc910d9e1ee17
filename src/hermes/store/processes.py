"""Whether a process that a row names still lives.

A process is known by its host, its number and when it started, for numbers are given away again. One of another host
cannot be asked: what it holds speaks for it until it expires.

A session records the processes that created it, reopened it or wrote to it, as JSON in `sessions.process`: an object,
or a list of objects where there are several. A record also holds the boot id and the pid namespace, so that a reboot
and another container on the same machine are recognised.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hermes.store.content import from_json, to_json

MOST_RECORDS = 16
"""Processes that one session records. More can gather only where none of them can be checked."""

DEAD_STATES = ("Z", "X", "x")
"""How /proc shows a process that has ended and that its parent has not looked at yet."""


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
    """This process as JSON, for `sessions.process`. A fork child gets a record of its own."""
    return _make_record(os.getpid())


def add_current_record(recorded: str | None) -> str | None:
    """The value of `sessions.process` with this process added and dead ones removed; None if it is there already."""
    current = current_record()
    if recorded is not None and current in recorded:
        return None
    others = [record for record in _parse_records(recorded) if not _is_known_dead(record)]
    if not others:
        return current
    return to_json([*others[1 - MOST_RECORDS :], from_json(current, {})])


def may_be_running(recorded: str | None) -> bool:
    """Whether a process in `sessions.process` lives or cannot be checked. Rows without a record name no process."""
    return any(not _is_known_dead(record) for record in _parse_records(recorded))


def _parse_records(recorded: str | None) -> list[dict[str, object]]:
    decoded = from_json(recorded, None) if recorded else None
    records = decoded if isinstance(decoded, list) else [decoded]
    return [record for record in records if isinstance(record, dict)]


def _is_known_dead(record: dict[str, object]) -> bool:
    """Whether this recorded process has ended. False where only another host or container could tell."""
    boot, same_host = record.get("boot"), record.get("host") == os.uname().nodename
    if boot is not None and boot != _read_boot_id():
        return same_host  # this machine was restarted since
    if boot is not None and record.get("namespace") != _read_pid_namespace():
        return False
    if boot is None and not same_host:
        return False
    return not _is_alive_here(record.get("pid"), record.get("start"))


def is_running(process: str | None) -> bool:
    """Whether the process recorded in this JSON is known to live."""
    decoded = from_json(process, None) if process else None
    if not isinstance(decoded, dict) or decoded.get("host") != os.uname().nodename:
        return False
    return _is_alive_here(decoded.get("pid"), decoded.get("start"))


def is_gone(host: object, pid: object, start: object) -> bool:
    """Whether a process is known to be dead."""
    return host == os.uname().nodename and not _is_alive_here(pid, start)


def _is_alive_here(pid: object, start: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # somebody else's, but there
    stat = _read_stat(pid)
    if stat is not None and stat[0] in DEAD_STATES:
        return False
    return start is None or find_start(pid) in (None, start)


def find_start(pid: int) -> str | None:
    """When a process started, as /proc tells it, or as `ps` does where there is no /proc."""
    stat = _read_stat(pid)
    if stat is not None:
        return stat[19]
    return None if Path("/proc/self/stat").exists() else find_start_by_ps(pid)


def find_start_by_ps(pid: int) -> str | None:
    """The same text whoever asks: neither the language nor the time zone of the asking process is in it."""
    import subprocess

    plain = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        result = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _read_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold anything: the state first, the start the 20th."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return fields if len(fields) > 19 else None


@cache
def _read_boot_id() -> str | None:
    """Which start of the machine this is; None where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


@cache
def _read_pid_namespace() -> str | None:
    """In which set of process numbers this process has its own: containers have others."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


@cache
def _find_own_start(pid: int) -> str | None:
    return find_start(pid)
