"""The systemd unit of the gateway, for the person whose home this is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hermes import home
from hermes.gateway.settings import GatewaySettings

NAME = "hermes-gateway.service"
SPARE_SECONDS = 15
"""How much longer than the drain the system waits before it kills."""

# What is forbidden here, is so for the commands that an owner's agent runs, too: sudo, above all.
UNIT = """\
[Unit]
Description=Hermes gateway
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStart={command}
Environment={variable}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillSignal=SIGTERM
KillMode=mixed
TimeoutStopSec={seconds}
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def format_unit(settings: GatewaySettings) -> list[str]:
    seconds = int(settings.drain_seconds) + SPARE_SECONDS
    where = home.get_hermes_home().absolute()
    text = UNIT.format(
        command=" ".join(_quote(word.replace("$", "$$")) for word in (*_find_program(), "gateway", "run")),
        variable=_quote(f"HERMES_HOME={where}"),
        seconds=seconds,
    )
    return text.splitlines()


def describe_installation() -> list[str]:
    return [
        f"Put it into ~/.config/systemd/user/{NAME}, then:",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {NAME}",
        "loginctl enable-linger   # so that it runs when you are not logged in",
    ]


def _find_program() -> list[str]:
    """This very command, by its full path."""
    started = Path(sys.argv[0])
    if started.name == "hermes" and started.is_absolute() and os.access(started, os.X_OK):
        return [str(started)]
    beside = Path(sys.executable).with_name("hermes")
    if beside.exists():
        return [str(beside)]
    found = shutil.which("hermes")
    return [str(Path(found).absolute())] if found else [sys.executable, "-P", "-m", "hermes.cli.main"]


def _quote(word: str) -> str:
    """As systemd reads it: `%` is its own."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"' if any(char in " '\"\t;\\" for char in word) else word
