"""Decides which platforms can be connected, and creates their adapters."""

from __future__ import annotations

import logging

from hermes import home, secrets
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter, AdapterError, Misconfigured
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.settings import GatewaySettings, PlatformSettings

log = logging.getLogger(__name__)


def find_ready(settings: GatewaySettings) -> tuple[dict[str, PlatformSettings], dict[str, str]]:
    """Return the enabled platforms that can be connected, and the reason for each one that cannot."""
    ready, problems = {}, {}
    for name, platform in settings.enabled.items():
        if missing := registry.list_missing(name, platform.more):
            problems[name] = f"set {', '.join(missing)}"
        elif how := registry.format_install_hint(name):
            problems[name] = f"it is not installed; install it with: {how}"
        else:
            ready[name] = platform
    return ready, problems


def make_adapter(platform: PlatformSettings) -> Adapter:
    """Create the adapter of a platform. Raise `AdapterError` if that is not possible."""
    name = platform.name
    folder = gateway_folder() / name
    home.make_private_folder(folder)
    try:
        adapter: Adapter = registry.load_adapter(name)(platform, folder)
    except AdapterError:
        raise
    except Exception as problem:  # an SDK error must not affect the other platforms
        log.error("%s is not connected: %s", name, secrets.redact(repr(problem)), exc_info=True)
        raise Misconfigured(f"unexpected {type(problem).__name__}") from problem
    return adapter


def make_adapters(settings: GatewaySettings) -> tuple[dict[str, Adapter], dict[str, str]]:
    """Create the adapters of the enabled platforms. Return them, and the error of each platform that failed."""
    adapters: dict[str, Adapter] = {}
    broken: dict[str, str] = {}
    for name, platform in settings.enabled.items():
        try:
            adapters[name] = make_adapter(platform)
        except AdapterError as problem:
            broken[name] = str(problem)
    return adapters, broken
