"""`hermes gateway install | uninstall`: run the gateway as a systemd service, of this account or of the system."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from hermes import home
from hermes.cli.command import Words, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.gateway.systemd_unit import (
    ACCOUNT,
    SYSTEM_HOME,
    UNIT_NAME,
    format_system_unit,
    format_user_unit,
)
from hermes.cli.io.output import print_details, print_lines
from hermes.gateway.settings import read_gateway_settings
from hermes.text import make_printable

SYSTEM_FOLDER = Path("/etc/systemd/system")
NEXT_FOR_USER = "loginctl enable-linger   # keeps it running when you are not logged in"


def define_install(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=install)
    _add_system_option(parser)
    parser.add_argument(
        "--user",
        type=parse_text,
        metavar="NAME",
        help=f"with --system: the account that runs the gateway ({ACCOUNT})",
    )
    parser.add_argument("--print", action="store_true", help="only print the unit")
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="write the unit to this folder, and start nothing"
    )


def define_uninstall(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=uninstall)
    _add_system_option(parser)


def _add_system_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--system", action="store_true", help="for the whole system instead of your account; needs root"
    )


def install(arguments: argparse.Namespace) -> int:
    if arguments.user is not None and not arguments.system:
        raise WrongUsage("--user needs --system")
    unit = _make_unit(arguments)
    if arguments.print:
        print_lines(unit.splitlines())
        return DONE
    if arguments.to is None:
        _require_systemd(arguments)
        if arguments.system:
            _require_account(arguments.user or ACCOUNT)
    file = (arguments.to or _get_folder(arguments)) / UNIT_NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit)
    print_lines([f"Unit: {make_printable(str(file))}"])
    if arguments.to is None:
        _run_systemctl(arguments, "daemon-reload")
        _run_systemctl(arguments, "enable", "--now", UNIT_NAME)
        print_lines([f"{UNIT_NAME} is started, and starts again after a reboot."])
        if not arguments.system:
            print_details([NEXT_FOR_USER])
    return DONE


def uninstall(arguments: argparse.Namespace) -> int:
    file = _get_folder(arguments) / UNIT_NAME
    if not file.exists():
        raise Refused(f"there is no unit {file}")
    _require_systemd(arguments)
    _run_systemctl(arguments, "disable", "--now", UNIT_NAME)
    file.unlink()
    _run_systemctl(arguments, "daemon-reload")
    print_lines([f"{UNIT_NAME} is stopped and removed. The home and its conversations are unchanged."])
    return DONE


def _make_unit(arguments: argparse.Namespace) -> str:
    settings = read_gateway_settings()
    if not arguments.system:
        return format_user_unit(settings)
    is_chosen = bool(os.environ.get("HERMES_HOME", "").strip())
    folder = home.get_hermes_home().absolute() if is_chosen else SYSTEM_HOME
    return format_system_unit(settings, arguments.user or ACCOUNT, folder)


def _get_folder(arguments: argparse.Namespace) -> Path:
    if arguments.system:
        return SYSTEM_FOLDER
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user"


def _require_systemd(arguments: argparse.Namespace) -> None:
    if shutil.which("systemctl") is None:
        raise Refused("there is no systemctl; `--print` prints the unit")
    if arguments.system and os.geteuid() != 0:
        raise Refused("--system needs root: use sudo")


def _require_account(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        how = f"useradd --system --home-dir {SYSTEM_HOME} --shell /usr/sbin/nologin {name}"
        raise Refused(f"there is no account '{name}'", [f"create it with: {how}"]) from None


def _run_systemctl(arguments: argparse.Namespace, *words: str) -> None:
    scope = [] if arguments.system else ["--user"]
    done = subprocess.run(["systemctl", *scope, *words], capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise Refused(f"systemctl {' '.join((*scope, *words))} failed: {lines[0]}", lines[1:])
