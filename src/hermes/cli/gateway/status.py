"""`hermes gateway status`: show the settings and the state of the running gateway. Exit with 1 if the gateway
is not running."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from hermes import clock, errors, home
from hermes.cli.command import Words, add_json_option
from hermes.cli.exit_codes import DONE, REFUSED
from hermes.cli.gateway.pair import open_pairings
from hermes.cli.io.output import print_json, print_lines
from hermes.gateway import registry
from hermes.gateway.inbound.access_control import describe_access
from hermes.gateway.ops.logging_setup import redact_all
from hermes.gateway.ops.status_file import Status, read_status
from hermes.gateway.settings import GatewaySettings, PlatformSettings, ResetPolicy, read_gateway_settings
from hermes.insights.number_format import format_dollars
from hermes.text import format_count, make_printable

NO_RESETS = "never"
LIMITS = ("messages_per_minute", "daily_cost_limit_usd", "daily_token_limit", "limit_owners")


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_status)
    fields = (
        "running",
        "pid",
        "since",
        "waiting_in",
        "waiting_out",
        "queues",
        "problem",
        "platforms",
        "models",
        "limits",
        "resets",
        "health",
        "work",
    )
    add_json_option(parser, fields)


def show_status(arguments: argparse.Namespace) -> int:
    settings = read_gateway_settings()
    last_status = read_status()
    running = last_status if last_status is not None and last_status.is_running else None
    report = _make_report(settings, running)
    if arguments.json:
        print_json(report, arguments.json)
    else:
        print_lines(make_printable(line) for line in _format_report(report))
    return DONE if running else REFUSED


def _make_report(settings: GatewaySettings, running: Status | None) -> dict[str, Any]:
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
        "queues": _count_queues(),
        "problem": (running.problem if running else None) or pairings.check(),
        "platforms": [
            _describe_platform(name, settings, running, people) for name in _list_names(settings, running)
        ],
        "models": _list_models(),
        "limits": {name: getattr(settings, name) for name in LIMITS},
        "resets": {
            name: {**asdict(policy), "told": format_policy(policy)} for name, policy in resets.items()
        },
        "health": f"http://{settings.health_host}:{settings.health_port}/healthz"
        if settings.health_port
        else None,
        "work": running.limits if running and running.limits else _list_work_limits(settings),
    }


def _count_queues() -> dict[str, dict[str, int]] | None:
    """Return, for the inbox and for the outbox, the number of entries in each state. Return None if the store
    does not exist or cannot be read."""
    from hermes.db.session_db import SessionDB

    path = home.get_default_db_path()
    if not path.exists():
        return None
    try:
        with SessionDB(path, read_only=True) as db:
            return {"inbox": db.inbox.count_by_state(), "outbox": db.outbox.count_by_state()}
    except errors.StoreError:
        return None


def _list_models() -> list[dict[str, Any]]:
    """Return the main model and its fallbacks, in order. `has_price` says whether the price of the model is
    known. For a model without a known price, the cost limit counts only calls whose cost the provider
    reports."""
    from hermes.agent.models.choice import list_fallbacks
    from hermes.agent.models.model import Used
    from hermes.agent.models.prices import make_price
    from hermes.config.settings import read_settings

    settings = read_settings()
    if settings.model.default is None:
        return []
    compute_price = make_price("", settings.prices)
    names = [settings.model.default, *(fallback.model for fallback in list_fallbacks(settings))]
    return [
        {"name": name, "has_price": compute_price(name, Used(1, 1))[0] is not None}
        for name in dict.fromkeys(names)
    ]


def _format_limits(report: dict[str, Any]) -> Iterator[str]:
    first, *fallbacks = [model["name"] for model in report["models"]] or [None]
    if first is not None:
        yield f"Model: {first}" + (f"; fallbacks: {', '.join(fallbacks)}" if fallbacks else "")
    limits = report["limits"]
    usd, tokens = limits["daily_cost_limit_usd"], limits["daily_token_limit"]
    parts = [format_dollars(usd)] if usd else []
    parts += [format_count(tokens, "token")] if tokens else []
    if parts:
        who = "also for owners" if limits["limit_owners"] else "not for owners"
        yield f"Daily limit per person: {' or '.join(parts)} ({who})"
    unpriced = [model["name"] for model in report["models"] if not model["has_price"]]
    if usd and not tokens and unpriced:
        yield (
            f"  the price of {', '.join(unpriced)} is unknown, so these calls count only if the provider reports"
            " the cost; set `prices` or gateway.daily_token_limit"
        )


def _format_queues(queues: dict[str, dict[str, int]]) -> Iterator[str]:
    for name, states in queues.items():
        if states:
            counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            yield f"  {name}: {counts}"


def _list_work_limits(settings: GatewaySettings) -> dict[str, dict[str, int]]:
    """Return the limits on concurrent work according to the settings, with nothing in use. This is shown if the
    gateway is not running."""
    limits = {
        "turns": settings.turns_at_once,
        "model calls": settings.model_calls_at_once,
        "deliveries to each platform": settings.deliveries_at_once,
        "attachments": settings.attachments_at_once,
    }
    return {name: {"most": most, "in_use": 0, "waiting": 0} for name, most in limits.items()}


def _list_names(settings: GatewaySettings, running: Status | None) -> list[str]:
    """Return the names of the platforms that are set up for this command, and then of those that the running
    gateway has. The two can differ, because the gateway may run with other environment variables."""
    return list(dict.fromkeys((*settings.platforms, *(running.platforms if running else ()))))


def _describe_platform(
    name: str, settings: GatewaySettings, running: Status | None, people: dict[str, str]
) -> dict[str, Any]:
    """Describe a platform. Its platform-specific settings are omitted, because they contain secrets."""
    platform = settings.platforms.get(name) or PlatformSettings(name)
    last_state = running.platforms.get(name, {}) if running else {}
    error = last_state.get("error")
    return {
        "name": name,
        "enabled": platform.enabled,
        "state": last_state.get("state"),
        "since": last_state.get("since"),
        "error": redact_all(settings.secrets, str(error)) if error else None,
        "missing": registry.list_missing(name, platform.more) if platform.enabled and not last_state else [],
        "install": registry.format_install_hint(name) if platform.enabled else None,
        "who_may_talk": people.get(name, "as set in the environment of the gateway"),
        "owners": sorted(platform.owners),
        "home_channel": platform.home_channel,
        "home_thread": platform.home_thread,
    }


def _format_report(report: dict[str, Any]) -> Iterator[str]:
    if report["running"]:
        ago = clock.format_relative(report["since"], clock.now())
        yield f"The gateway runs as process {report['pid']}, started {ago}."
        waiting = format_count(report["waiting_in"], "message")
        yield f"Waiting: {waiting} for an answer, {report['waiting_out']} for delivery."
    else:
        yield "The gateway is not running; start it with `hermes gateway run`."
    yield from _format_queues(report["queues"] or {})
    if report["problem"]:
        yield f"Pairing: {report['problem']}; no new person is admitted."
    if not report["platforms"]:
        yield "No platform is set up; set one up with `hermes gateway setup`."
    for platform in report["platforms"]:
        yield f"{platform['name']}: {_format_state(platform)}"
        if platform["enabled"] or platform["state"]:
            yield f"  who may talk: {platform['who_may_talk']}"
        if platform["home_channel"]:
            thread = f", thread {platform['home_thread']}" if platform["home_thread"] else ""
            yield f"  home channel: {platform['home_channel']}{thread}"
    yield from _format_limits(report)
    for name, policy in report["resets"].items():
        if name == "default":
            yield f"Conversations reset: {policy['told']}"
        else:
            yield f"  {name}: {policy['told']}"
    yield "At the same time:"
    for name, use in report["work"].items():
        now = f" ({use['in_use']} now, {use['waiting']} waiting)" if report["running"] else ""
        yield f"  {name}: at most {use['most']}{now}"
    if report["health"]:
        yield f"Health: {report['health']}"


def _format_state(platform: dict[str, Any]) -> str:
    """Format the state of a platform. The state that the gateway reports takes precedence over the settings
    that this command reads, because a secret may be known only to the gateway."""
    if platform["state"]:
        since = f" since {clock.format_relative(platform['since'], clock.now())}" if platform["since"] else ""
        return f"{platform['state']}{since}" + (f": {platform['error']}" if platform["error"] else "")
    if not platform["enabled"]:
        return "not enabled"
    if platform["missing"]:
        return f"not connected: set {', '.join(platform['missing'])}"
    if platform["install"]:
        return f"not connected: it is not installed; install it with: {platform['install']}"
    return "set up"


def format_policy(policy: ResetPolicy) -> str:
    """Describe in words when conversations are reset automatically."""
    idle = f"after {format_count(policy.idle_minutes, 'minute')} without a message"
    daily = f"every day at {policy.at_hour}:00 ({policy.timezone or 'local time'})"
    when = {"none": NO_RESETS, "idle": idle, "daily": daily, "both": f"{daily}, or {idle}"}[policy.mode]
    return when if policy.notify or policy.mode == "none" else f"{when}, without a notice"
