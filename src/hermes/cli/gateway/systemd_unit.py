"""The systemd units of the gateway: one for a user account, and one for the whole system."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hermes import home
from hermes.gateway.settings import GatewaySettings

UNIT_NAME = "hermes-gateway.service"
SYSTEM_HOME = Path("/var/lib/hermes")
ACCOUNT = "hermes"
SPARE_SECONDS = 15
"""Seconds that systemd waits after the gateway's drain time before it kills the process."""
PRIVATE_FOLDERS = ("/home", "/root", "/run/user")
"""The folders that the systemd option `ProtectHome` hides from a service."""

UNIT = """\
[Unit]
Description=Hermes gateway
{unit}StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Environment={variable}
{account}WatchdogSec=60
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillSignal=SIGTERM
KillMode=mixed
TimeoutStartSec=180
TimeoutStopSec={seconds}
UMask=0077
{sandbox}
[Install]
WantedBy={target}
"""

# These restrictions also apply to commands that an owner's agent runs, especially sudo.
USER_SANDBOX = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""

# ProtectKernelTunables, ProtectKernelLogs and RestrictNamespaces are left out: they would prevent the sandbox of the
# agent's commands (bubblewrap), which mounts /proc in a namespace of its own.
SYSTEM_SANDBOX = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
LimitNOFILE=8192
"""
SYSTEM_UNIT = "Wants=network-online.target\nAfter=network-online.target\n"


def format_user_unit(settings: GatewaySettings) -> str:
    return UNIT.format(
        unit="",
        command=_format_command(),
        variable=_quote(f"HERMES_HOME={home.get_hermes_home().absolute()}"),
        account="",
        seconds=_get_stop_seconds(settings),
        sandbox=USER_SANDBOX,
        target="default.target",
    )


def format_system_unit(settings: GatewaySettings, account: str, folder: Path) -> str:
    """Return the unit that runs the gateway as `account` with the home `folder`."""
    program = Path(_find_program()[0])
    is_private = any(
        path.is_relative_to(private) for path in (program, folder) for private in PRIVATE_FOLDERS
    )
    if folder == SYSTEM_HOME:
        writable = f"StateDirectory={SYSTEM_HOME.name}\nStateDirectoryMode=0700\n"
    else:
        writable = f"ReadWritePaths={_quote(str(folder))}\n"
    return UNIT.format(
        unit=SYSTEM_UNIT,
        command=_format_command(),
        variable=_quote(f"HERMES_HOME={folder}"),
        account=f"User={account}\n{writable}WorkingDirectory={_escape(str(folder))}\n",
        seconds=_get_stop_seconds(settings),
        sandbox=SYSTEM_SANDBOX.format(protect_home="read-only" if is_private else "yes"),
        target="multi-user.target",
    )


def _get_stop_seconds(settings: GatewaySettings) -> int:
    return int(settings.drain_seconds) + SPARE_SECONDS


def _format_command() -> str:
    return " ".join(_quote(word.replace("$", "$$")) for word in (*_find_program(), "gateway", "run"))


def _find_program() -> list[str]:
    """Return the command line that starts `hermes` by its full path, if possible with the program that is
    running."""
    started = Path(sys.argv[0])
    if started.name == "hermes" and started.is_absolute() and os.access(started, os.X_OK):
        return [str(started)]
    beside = Path(sys.executable).with_name("hermes")
    if beside.exists():
        return [str(beside)]
    found = shutil.which("hermes")
    return [str(Path(found).absolute())] if found else [sys.executable, "-P", "-m", "hermes.cli.main"]


def _escape(word: str) -> str:
    """Escape a word for a systemd unit, where `%` has a special meaning."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _quote(word: str) -> str:
    word = _escape(word)
    return f'"{word}"' if any(char in " '\"\t;\\" for char in word) else word
