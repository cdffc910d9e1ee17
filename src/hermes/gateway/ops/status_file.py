"""`<home>/gateway/status.json`: the state of the gateway for other processes, and the lock that allows only one."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hermes import clock, errors, home
from hermes.atomic_files import replace_file
from hermes.store.processes import identify_process, is_gone

NAME = "status.json"
LOCK = "running.lock"
FRESH_SECONDS = 60.0
"""How old the word of a gateway on another host may be, or in another container, before nobody believes it."""


class Status(NamedTuple):
    pid: int
    start: str | None
    """When the process began, as the system tells it: numbers of processes are given away again."""
    since: float
    platforms: dict[str, dict[str, Any]]
    """By their name: `state`, `since`, `error`."""
    waiting_in: int = 0
    """Messages that are not answered yet."""
    waiting_out: int = 0
    """Answers that are not delivered yet."""
    host: str | None = None
    said_at: float = 0.0
    """When it last said so."""
    problem: str | None = None
    """Why it ignores changes of the pairing file."""

    @property
    def is_running(self) -> bool:
        """Whether that process still lives. One on another host cannot be asked: it lives if it spoke lately."""
        this_host = identify_process().host
        if self.host in (None, this_host):
            return not is_gone(this_host, self.pid, self.start)
        return clock.now() - self.said_at < FRESH_SECONDS


@contextmanager
def lock_gateway(folder: Path | None = None) -> Iterator[None]:
    """Be the gateway of this home; refused if there is one. However it ends, the next one may start."""
    place = folder or gateway_folder()
    home.make_private_folder(place)
    descriptor = home.open_private_file(place / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status = read_status(place)
            who = f" (process {status.pid})" if status is not None and status.is_running else ""
            raise errors.HermesError(f"the gateway of this home runs already{who}") from None
        yield
    finally:
        os.close(descriptor)


def gateway_folder() -> Path:
    return home.get_hermes_home() / "gateway"


def write_status(
    since: float,
    platforms: dict[str, dict[str, Any]],
    *,
    waiting_in: int = 0,
    waiting_out: int = 0,
    problem: str | None = None,
    folder: Path | None = None,
) -> None:
    """Say how this process is, which is the gateway."""
    host, pid, start = identify_process()
    status = Status(pid, start, since, platforms, waiting_in, waiting_out, host, clock.now(), problem)
    place = folder or gateway_folder()
    home.make_private_folder(place)
    replace_file(place / NAME, json.dumps(status._asdict()).encode())


def read_status(folder: Path | None = None) -> Status | None:
    """What the gateway said last; None if there never was one, or it makes no sense."""
    try:
        data = json.loads(((folder or gateway_folder()) / NAME).read_bytes())
        platforms = {str(name): dict(state) for name, state in data["platforms"].items()}
        return Status(
            int(data["pid"]),
            data.get("start"),
            float(data["since"]),
            platforms,
            int(data.get("waiting_in") or 0),
            int(data.get("waiting_out") or 0),
            data.get("host"),
            float(data.get("said_at") or 0),
            data.get("problem"),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def remove_status(folder: Path | None = None) -> None:
    """The gateway has ended."""
    ((folder or gateway_folder()) / NAME).unlink(missing_ok=True)
