"""Messages to systemd by the protocol of sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names.

Nothing is sent if the variable is not set. A failed send is ignored, because the gateway also works without a
service manager.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress

READY, STOPPING, WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(*lines: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    name = f"\0{address[1:]}" if address.startswith("@") else address  # @ is an abstract name
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)
        sending.sendto("\n".join(lines).encode(), name)


def notify_reloading() -> None:
    """Report the start of a reload. The caller must send `READY` when the reload has ended."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def get_watchdog_seconds() -> float | None:
    """Return the seconds after which systemd restarts a process that sends no `WATCHDOG`. Return None if the
    watchdog is not enabled."""
    pid, microseconds = os.environ.get("WATCHDOG_PID", ""), os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or not int(microseconds) or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1_000_000


async def feed_watchdog() -> None:
    """Send `WATCHDOG` in an endless loop, to report that the event loop runs. Return at once if the watchdog is not
    enabled."""
    seconds = get_watchdog_seconds()
    while seconds is not None:
        notify(WATCHDOG)
        await asyncio.sleep(seconds / 3)
