"""`<home>/gateway/status.json`: the status of the gateway, for other processes. Also the lock that allows only one
gateway per home."""

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
"""Maximum age of a status from another host or container. An older status counts as not running."""


class Status(NamedTuple):
    pid: int
    start: str | None
    """The start time of the process, as the operating system reports it. It distinguishes the process from a later
    one with the same pid."""
    since: float
    platforms: dict[str, dict[str, Any]]
    """By platform name: `state`, `since`, `error`."""
    waiting_in: int = 0
    """Number of messages that are not answered yet."""
    waiting_out: int = 0
    """Number of answers that are not delivered yet."""
    host: str | None = None
    said_at: float = 0.0
    """When this status was written."""
    problem: str | None = None
    """What is wrong with the pairing file, or None. While it is invalid, its changes are ignored."""
    limits: dict[str, dict[str, int]] = {}  # noqa: RUF012 - never changed
    """The limits on concurrent work by name: `most`, `in_use`, `waiting`."""

    @property
    def is_running(self) -> bool:
        """Whether the gateway process is alive.
        A process on another host or in another container cannot be checked. It counts as alive if its status is
        recent.
        """
        this_host = identify_process().host
        if self.host in (None, this_host):
            return not is_gone(this_host, self.pid, self.start)
        return clock.now() - self.said_at < FRESH_SECONDS


@contextmanager
def lock_gateway(folder: Path | None = None) -> Iterator[None]:
    """Hold the lock that allows only one gateway per home. Raise `HermesError` if another gateway holds it.

    The operating system releases the lock when the process ends for any reason.
    """
    place = folder or gateway_folder()
    home.make_private_folder(place)
    descriptor = home.open_private_file(place / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status = read_status(place)
            who = f" (process {status.pid})" if status is not None and status.is_running else ""
            raise errors.HermesError(f"a gateway for this home is already running{who}") from None
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
    limits: dict[str, dict[str, int]] | None = None,
    folder: Path | None = None,
) -> None:
    """Write the status of this process. Only the gateway calls this function."""
    host, pid, start = identify_process()
    status = Status(
        pid, start, since, platforms, waiting_in, waiting_out, host, clock.now(), problem, limits or {}
    )
    place = folder or gateway_folder()
    home.make_private_folder(place)
    replace_file(place / NAME, json.dumps(status._asdict()).encode())


def read_status(folder: Path | None = None) -> Status | None:
    """Return the last written status, or None if the file is missing or invalid."""
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
            {str(name): dict(use) for name, use in (data.get("limits") or {}).items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def remove_status(folder: Path | None = None) -> None:
    """Remove the status file. Called when the gateway ends."""
    ((folder or gateway_folder()) / NAME).unlink(missing_ok=True)
