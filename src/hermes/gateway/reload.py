"""Reload: apply changed settings and keys to the running gateway, without dropping a turn.

First the settings are read, the adapters of changed platforms are created, and the model is opened. If one of
these steps fails, the reload is refused, nothing is changed and the old settings stay in force. A platform is
reconnected only if its own options changed. All other settings are read when they are used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hermes import audit_log, clock, errors, secrets
from hermes.config import dotenv
from hermes.config.declarations import list_settings, make_variable
from hermes.config.redaction import is_secret_name
from hermes.config.settings import read_settings
from hermes.config.settings_schema import GATEWAY_SETTINGS, SETTINGS, PlatformSection, Settings
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter, AdapterError, Drains
from hermes.gateway.context import GatewayContext
from hermes.gateway.http import limits
from hermes.gateway.inbound.router import Router
from hermes.gateway.ops.logging_setup import redact_also
from hermes.gateway.platform_connections import MISCONFIGURED, UP, Connections
from hermes.gateway.platform_setup import find_ready, make_adapter
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.settings import GatewaySettings, get_value, read_gateway_settings

log = logging.getLogger(__name__)

CONNECT_S = 15.0
"""How long a reload waits until a new connection is up or has failed, in seconds."""
AT_START = (
    *("store.", "sessions.transcripts", "sessions.index_file", "sandbox.", "approvals.mode"),
    *("delegation.max_concurrent", "delegation.tasks_per_hour"),
)
"""Prefixes of the names of settings that are read only when the process starts."""
REBUILT = {"api-server": ("gateway.largest_attachment_mb",)}
"""By platform: general settings that its adapter reads only when it is created. A change reconnects the
platform."""


class Report(NamedTuple):
    """What a reload of the settings has changed and what it could not change."""

    changed: list[str]
    """The settings that changed, one line for each, without secret values."""
    platforms: dict[str, str]
    """The result for each platform: `unchanged`, `connected`, `reconnected`, `disconnected` or an error."""
    restart: list[str]
    """The changed settings that take effect only after a restart."""
    refused: dict[str, str]
    """The platforms that refused their new options, for example because of a wrong token, with the reason. A
    platform that was enabled before uses its old options again."""


@runtime_checkable
class ReloadableAgents(Protocol):
    async def reload(self) -> None:
        """Read the settings of the model and of the agent again. If the settings cannot be used, raise
        `HermesError` and keep the old ones."""


class Reloader:
    def __init__(
        self,
        context: GatewayContext,
        router: Router,
        lookup: SessionLookup,
        connections: Connections,
        adapters: dict[str, Adapter],
        attach: Callable[[Adapter], None],
        restart_health: Callable[[], None],
    ) -> None:
        """Create the reloader. `adapters` are the adapters of the gateway; a reload changes the dictionary in
        place. `attach` is called with each new adapter. `restart_health` restarts the health server."""
        self._context, self._router, self._lookup = context, router, lookup
        self._connections, self._adapters = connections, adapters
        self._attach, self._restart_health = attach, restart_health
        self._program, self._keys = read_settings(), dotenv.read()
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> Report:
        """Read the settings files again and apply the settings to the running gateway. Return what has changed.
        Raise `HermesError` if the settings are refused; the old ones then stay in force."""
        async with self._one_at_a_time:
            try:
                report = await self._reload()
            except errors.HermesError as problem:
                reason = secrets.redact(str(problem))
                log.error("reload refused, the old settings stay in force: %s", reason)
                audit_log.record("gateway.reload", refused=reason)
                raise
            moved = ", ".join(
                f"{name} {state}" for name, state in report.platforms.items() if state != "unchanged"
            )
            log.info("reloaded; changed: %s; platforms: %s", len(report.changed), moved or "unchanged")
            names = ", ".join(line.partition(":")[0] for line in report.changed)
            audit_log.record("gateway.reload", changed=names or None, platforms=moved or None)
            return report

    async def _reload(self) -> Report:
        old = self._context.settings
        new, program, keys, problems = await asyncio.to_thread(self._read)
        for name in problems.keys() & self._adapters.keys():
            raise errors.BadConfig(f"{name}: {problems[name]}")
        if not new.platforms:
            raise errors.BadConfig("no platform can be connected")
        made, broken = await self._make_changed(old, new)
        try:
            agents = self._context.agents
            program_changes = list(_list_program_changes(self._program, program))
            key_changes = _list_changed_keys(self._keys, keys)
            if isinstance(agents, ReloadableAgents) and (program_changes or key_changes):
                await agents.reload()
        except errors.HermesError:
            for adapter in made.values():
                await _close(adapter)
            raise
        changed = [*_list_changes(old, new), *program_changes, *key_changes]
        self._keys = keys
        self._apply(old, new, program)
        platforms = {**dict.fromkeys(self._adapters, "unchanged"), **broken}
        moves = {
            name: self._move(name, made.get(name))
            for name in dict.fromkeys((*self._adapters, *made))
            if name in made or name not in new.enabled
        }
        with self._connections.keep_hope():
            platforms.update(zip(moves, await asyncio.gather(*moves.values()), strict=True))
            refused = await self._take_back(old, made)
        platforms.update({name: f"refused: {why}" for name, why in refused.items()})
        platforms.update({name: f"not connected: {why}" for name, why in problems.items()})
        restart = [line for line in changed if line.startswith(AT_START)]
        return Report([line for line in changed if line not in restart], platforms, restart, refused)

    def _read(self) -> tuple[GatewaySettings, Settings, dict[str, str], dict[str, str]]:
        settings, program, keys = read_gateway_settings(), read_settings(), dotenv.read()
        ready, problems = find_ready(settings)
        redact_also(settings.secrets | dotenv.collect_secrets())
        return settings.replace(platforms=ready), program, keys, problems

    async def _make_changed(
        self, old: GatewaySettings, new: GatewaySettings
    ) -> tuple[dict[str, Adapter], dict[str, str]]:
        """Create the adapters of the platforms that are new or changed in the settings `new`. Return two
        dictionaries by platform: the adapters, and errors. If the adapter of a connected or changed platform cannot
        be created, raise `BadConfig`. If the platform has unchanged options and was not connected before, return
        its error instead."""
        made: dict[str, Adapter] = {}
        broken: dict[str, str] = {}
        for name, platform in new.enabled.items():
            before = old.platforms.get(name)
            is_same = before is not None and before.more == platform.more
            is_same = is_same and all(
                get_value(old, key) == get_value(new, key) for key in REBUILT.get(name, ())
            )
            if is_same and name in self._adapters:
                continue
            try:
                made[name] = make_adapter(platform)
            except AdapterError as problem:
                if name in self._adapters or not is_same:
                    for adapter in made.values():
                        await _close(adapter)
                    raise errors.BadConfig(f"{name}: {problem}") from None
                broken[name] = f"not connected: {problem}"
        return made, broken

    def _apply(self, old: GatewaySettings, new: GatewaySettings, program: Settings) -> None:
        """Make all parts of the running gateway use the settings `new` instead of `old`. No step here can fail."""
        context, self._program = self._context, program
        context.settings = new
        context.limits.apply(new)
        context.access.change_settings(new)
        context.approval_seconds = program.approvals.timeout_minutes * clock.MINUTE
        limits.change_limits(new.limits)
        if new.keying != old.keying:
            self._lookup.change_keying(new.keying)
        self._router.renew_agents()
        if (new.health_host, new.health_port) != (old.health_host, old.health_port):
            self._restart_health()

    async def _move(self, name: str, new: Adapter | None) -> str:
        """Replace the adapter of the platform `name` by `new`, or remove it if `new` is None. First wait for the
        running requests and deliveries of the old adapter. Return the result of the platform for
        `Report.platforms`."""
        old, seconds = self._adapters.get(name), self._context.settings.drain_seconds
        if new is not None:
            self._attach(new)
        if old is not None:
            if isinstance(old, Drains):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await old.drain()
            await self._connections.disconnect(name)
            if new is None:
                del self._adapters[name]
            else:
                self._adapters[name] = new  # new deliveries use it
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._context.delivery.wait_until_unused(old)
            await _close(old)
        if new is None:
            self._connections.forget(name)
            self._context.metrics.platform_up.set(None, name)
            return "disconnected"
        self._adapters[name] = new
        self._connections.connect(name)
        await self._connections.wait_for_result(name, CONNECT_S)
        state = self._connections.states[name]
        if state.state != UP:
            return f"{state.state}: {state.error}" if state.error else state.state
        return "connected" if old is None else "reconnected"

    async def _take_back(self, old: GatewaySettings, made: Mapping[str, Adapter]) -> dict[str, str]:
        """Find the platforms with a new adapter (`made`) that refused their new options. Those that were enabled in
        the settings `old` are connected again with their old options. Return the reason for each platform that
        refused."""
        refused = {
            name: state.error or state.state
            for name in made
            if (state := self._connections.states[name]).state == MISCONFIGURED
        }
        for name in refused.keys() & old.enabled.keys():
            settings = self._context.settings
            before = settings.replace(platforms={**settings.platforms, name: old.platforms[name]})
            self._context.settings = before
            self._context.access.change_settings(before)
            with suppress(AdapterError):  # it could be created before
                await self._move(name, make_adapter(old.platforms[name]))
        return refused


async def _close(adapter: Adapter) -> None:
    try:
        await adapter.close()
    except Exception as problem:  # the reload continues
        log.error("%s: %s", adapter.name, secrets.redact(repr(problem)), exc_info=True)


# ---------------------------------------------------------------- comparison


def _list_changes(old: GatewaySettings, new: GatewaySettings) -> Iterator[str]:
    for key in GATEWAY_SETTINGS:
        yield from _describe_change(key, get_value(old, key), get_value(new, key))
    for section in ("reset_by_type", "reset_by_platform"):
        before, after = getattr(old, section), getattr(new, section)
        for owner in dict.fromkeys((*before, *after)):
            if before.get(owner) != after.get(owner):
                yield f"{section}.{owner}"
    for name in dict.fromkeys((*old.platforms, *new.platforms)):
        before, after = old.platforms.get(name), new.platforms.get(name)
        if before is None or after is None:
            yield f"platforms.{name}: {'removed' if after is None else 'added'}"
            continue
        for field in list_settings(PlatformSection):
            key = f"platforms.{name}.{field}"
            yield from _describe_change(key, getattr(before, field), getattr(after, field))
        for option in sorted(before.more.keys() | after.more.keys()):
            if before.more.get(option) != after.more.get(option):
                yield f"platforms.{name}.{option}"  # the value may contain a secret


def _list_program_changes(old: Settings, new: Settings) -> Iterator[str]:
    for key in SETTINGS:
        yield from _describe_change(key, _get(old, key), _get(new, key))
    if old.prices != new.prices:
        yield "prices"


def _list_changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that differ between the `old` and the `new` content of `.env` and do not
    belong to a setting, such as the API key of the model."""
    settings = {setting.variable for setting in (*SETTINGS.values(), *GATEWAY_SETTINGS.values())}
    platforms = tuple(make_variable(name, "") for name in registry.PLATFORMS)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return [name for name in changed if name not in settings and not name.startswith(platforms)]


def _describe_change(key: str, before: Any, after: Any) -> Iterator[str]:
    if before != after:
        yield key if is_secret_name(key) else f"{key}: {_format(before)} → {_format(after)}"


def _format(value: Any) -> str:
    if isinstance(value, frozenset | set | tuple | list):
        return ", ".join(map(str, sorted(value))) or "nobody"
    if isinstance(value, Mapping):
        return f"{len(value)} values"
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _get(settings: Settings, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)
