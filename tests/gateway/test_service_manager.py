"""The gateway process reports its state to systemd. When the process ends, `/readyz` fails first."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.gateway.conformance.stage import until
from tests.gateway.operated_gateway import OperatedGateway
from tests.ports import reserve_port


def test_the_state_is_reported_to_systemd_and_readiness_fails_first(operated: OperatedGateway) -> None:
    ann, port = operated.telegram.person("Ann"), reserve_port()
    operated.config["gateway"] = {"health_port": port, "drain_seconds": 60}
    operated.save()
    told: list[str] = []
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"{folder}/notify")
        notified.setblocking(False)

        def has_told(line: str) -> bool:
            try:
                while True:
                    told.extend(notified.recv(4096).decode().splitlines())
            except BlockingIOError:
                return line in told

        operated.start(NOTIFY_SOCKET=str(Path(folder) / "notify"), WATCHDOG_USEC="300000")
        until(lambda: has_told("READY=1") and has_told("WATCHDOG=1"))
        until(lambda: _status(port, "/readyz") == 200)
        told.clear()
        operated.signal(signal.SIGHUP)
        until(lambda: has_told("RELOADING=1") and has_told("READY=1"))
        assert any(line.startswith("MONOTONIC_USEC=") for line in told)
        operated.say(ann, "hold kiwi")
        until(lambda: operated.model.asked("kiwi"))
        operated.signal(signal.SIGTERM)
        until(lambda: has_told("STOPPING=1"))
        assert (_status(port, "/healthz"), _status(port, "/readyz")) == (200, 503)
        operated.model.let_go("kiwi")
        assert operated.close() == 0
    assert operated.heard(ann) == ["I begin, and end: kiwi"]


def _status(port: int, path: str) -> int | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return int(answer.status)
    except HTTPError as problem:
        problem.close()
        return problem.code
    except OSError:
        return None
