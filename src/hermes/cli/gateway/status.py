"""`hermes gateway status`: what is set up, and how the gateway that runs is. Exit 1 if none does."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from hermes import clock
from hermes.cli.command import DONE, REFUSED, Words, takes_json
from hermes.cli.gateway.pair import open_pairings
from hermes.cli.io.output import say, say_json
from hermes.gateway import registry
from hermes.gateway.inbound.access_control import describe_access
from hermes.gateway.ops.logging_setup import redact_all
from hermes.gateway.ops.status_file import Status, read_status
from hermes.gateway.settings import GatewaySettings, PlatformSettings, ResetPolicy, read_gateway_settings
from hermes.text import format_count, make_printable

NO_RESETS = "never"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=status)
    takes_json(parser)


def status(arguments: argparse.Namespace) -> int:
    settings = read_gateway_settings()
    told = read_status()
    running = told if told is not None and told.is_running else None
    report = _report(settings, running)
    if arguments.json:
        say_json(report)
    else:
        say(make_printable(line) for line in _lines(report))
    return DONE if running else REFUSED


def _report(settings: GatewaySettings, running: Status | None) -> dict[str, Any]:
    pairings = open_pairings()
    people = dict(describe_access(settings, pairings))
    resets = {
        "default": settings.reset,
        **{f"{kind} chats": policy for kind, policy in settings.reset_by_type.items()},
        **settings.reset_by_platform,
    }
    return {
        "running": running is not None,
        "pid": running.pid if running else None,
        "since": running.since if running else None,
        "waiting_in": running.waiting_in if running else None,
        "waiting_out": running.waiting_out if running else None,
        "problem": (running.problem if running else None) or pairings.check(),
        "platforms": [_platform(name, settings, running, people) for name in _names(settings, running)],
        "resets": {
            name: {**policy._asdict(), "told": told_policy(policy)} for name, policy in resets.items()
        },
        "health": f"http://{settings.health_host}:{settings.health_port}/healthz"
        if settings.health_port
        else None,
    }


def _names(settings: GatewaySettings, running: Status | None) -> list[str]:
    """What is set up here, and what the gateway was started with, whose environment may be another."""
    return list(dict.fromkeys((*settings.platforms, *(running.platforms if running else ()))))


def _platform(
    name: str, settings: GatewaySettings, running: Status | None, people: dict[str, str]
) -> dict[str, Any]:
    """One of them. Of what only the platform knows nothing is told: there are secrets in it."""
    platform = settings.platforms.get(name) or PlatformSettings(name)
    seen = running.platforms.get(name, {}) if running else {}
    error = seen.get("error")
    return {
        "name": name,
        "enabled": platform.enabled,
        "state": seen.get("state"),
        "since": seen.get("since"),
        "error": redact_all(settings.secrets, str(error)) if error else None,
        "missing": registry.missing_settings(name, platform.more) if platform.enabled and not seen else [],
        "install": registry.install_hint(name) if platform.enabled else None,
        "who_may_talk": people.get(name, "as was set where the gateway was started"),
        "owners": sorted(platform.owners),
        "home_channel": platform.home_channel,
        "home_thread": platform.home_thread,
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    if report["running"]:
        ago = clock.format_relative(report["since"], clock.now())
        yield f"The gateway runs as process {report['pid']}, started {ago}."
        waiting = format_count(report["waiting_in"], "message")
        yield f"Waiting: {waiting} for an answer, {report['waiting_out']} for delivery."
    else:
        yield "The gateway is not running; `hermes gateway run` starts it."
    if report["problem"]:
        yield f"Pairing: {report['problem']}; nobody new is let in."
    if not report["platforms"]:
        yield "No platform is set up; `hermes gateway setup` connects one."
    for one in report["platforms"]:
        yield f"{one['name']}: {_state(one)}"
        if one["enabled"] or one["state"]:
            yield f"  who may talk: {one['who_may_talk']}"
        if one["home_channel"]:
            thread = f", thread {one['home_thread']}" if one["home_thread"] else ""
            yield f"  home channel: {one['home_channel']}{thread}"
    for name, policy in report["resets"].items():
        if name == "default":
            yield f"Conversations start afresh: {policy['told']}"
        else:
            yield f"  {name}: {policy['told']}"
    if report["health"]:
        yield f"Health: {report['health']}"


def _state(one: dict[str, Any]) -> str:
    """What the gateway itself said comes first: its secret may be known only where it was started."""
    if one["state"]:
        since = f" since {clock.format_relative(one['since'], clock.now())}" if one["since"] else ""
        return f"{one['state']}{since}" + (f": {one['error']}" if one["error"] else "")
    if not one["enabled"]:
        return "not enabled"
    if one["missing"]:
        return f"not connected: set {', '.join(one['missing'])}"
    if one["install"]:
        return f"not connected: it is not installed; get it with: {one['install']}"
    return "set up"


def told_policy(policy: ResetPolicy) -> str:
    """When conversations start afresh by themselves, in words."""
    idle = f"after {format_count(policy.idle_minutes, 'minute')} without a message"
    daily = f"every day at {policy.at_hour}:00 ({policy.timezone or 'local time'})"
    when = {"none": NO_RESETS, "idle": idle, "daily": daily, "both": f"{daily}, or {idle}"}[policy.mode]
    return when if policy.notify or policy.mode == "none" else f"{when}, in silence"
