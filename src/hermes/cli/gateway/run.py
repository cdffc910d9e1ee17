"""`hermes gateway run`: check which platforms are set up, report problems, and start the gateway."""

from __future__ import annotations

import argparse
import asyncio
from importlib.util import find_spec

from hermes import audit_log
from hermes.cli.command import Words
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.gateway.pair import open_pairings
from hermes.cli.io.output import print_error
from hermes.config import dotenv
from hermes.config.extras import format_install
from hermes.gateway import registry
from hermes.gateway.inbound.access_control import describe_access
from hermes.gateway.ops.logging_setup import set_up_logs
from hermes.gateway.ops.status_file import lock_gateway
from hermes.gateway.platform_setup import find_ready
from hermes.gateway.settings import GatewaySettings, read_gateway_settings
from hermes.logs import get_logger

_log = get_logger("hermes.gateway")


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("--verbose", action="store_true", help="log in more detail")
    parser.add_argument("--json-logs", action="store_true", help="log as JSON, one object per line")


def run(arguments: argparse.Namespace) -> int:
    from hermes.config.settings import read_settings

    settings = read_gateway_settings()
    if warning := read_settings().warning:
        print_error(warning)
    ready, problems = find_ready(settings)
    for name, why in problems.items():
        print_error(f"{name} is not connected: {why}")
    if not ready and not settings.enabled and not _has_packages():
        raise Refused(f"the gateway is not installed; install it with: {format_install('gateway')}")
    if not ready:
        raise Refused("no platform can be connected", _list_ways())
    from hermes.gateway.app import run_gateway

    pairings = open_pairings()
    with lock_gateway():
        set_up_logs(
            verbose=arguments.verbose,
            as_json=arguments.json_logs,
            secrets=settings.secrets | dotenv.collect_secrets(),
        )
        settings = settings.replace(platforms=ready)
        for name, people in describe_access(settings, pairings):
            _log.info("%s: connecting; who may talk: %s", name, people)
        _record_start(settings)
        asyncio.run(run_gateway(settings))
    return DONE


def _has_packages() -> bool:
    return all(map(find_spec, ("starlette", "uvicorn")))


def _list_ways() -> list[str]:
    """Return lines that explain how to set up a platform. They are printed if the user has not set up any."""
    needs = (
        f"{platform.title}: {', '.join(registry.list_missing(name, {}))}"
        for name, platform in registry.PLATFORMS.items()
    )
    return ["set one up with `hermes gateway setup`, or set in the environment or in .env:", *needs]


def _record_start(settings: GatewaySettings) -> None:
    """Record in the audit log who has access according to the settings. Changes made by editing config.yaml
    are thereby recorded too."""
    for name, platform in settings.platforms.items():
        audit_log.record(
            "gateway.start",
            platform=name,
            owners=", ".join(sorted(platform.owners)) or None,
            allowed_users=", ".join(sorted(platform.allowed_users)) or None,
            allow_all=platform.allow_all,
        )
