"""The registry of platforms. A new platform is a folder with a `declaration`, and a line here.

A declaration is data. The adapter it names, with its SDK, is imported only when its platform is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hermes.config.declarations import Platform, make_variable

DECLARATIONS = {
    "telegram": "hermes.gateway.platforms.telegram.declaration",
    "matrix": "hermes.gateway.platforms.matrix.declaration",
    "webhook": "hermes.gateway.platforms.webhook.declaration",
    "api-server": "hermes.server.declaration",
}


def load_declaration(module: str) -> Platform:
    platform: Platform = import_module(module).PLATFORM
    return platform


PLATFORMS = {name: load_declaration(module) for name, module in DECLARATIONS.items()}


def load_adapter(name: str) -> Any:
    """The class that speaks with a platform, imported now."""
    module, _, class_name = PLATFORMS[name].adapter.partition(":")
    return getattr(import_module(module), class_name)


def list_secret_variables(platform: str) -> list[str]:
    """The environment variables of its secrets."""
    settings = PLATFORMS[platform].settings
    return [
        make_variable(platform, name)
        for name, setting in settings.items()
        if setting.is_secret and setting.has_variable
    ]


def list_missing(platform: str, more: Mapping[str, Any]) -> list[str]:
    """What it still needs, by the names of variables; empty if it has everything."""
    settings = PLATFORMS[platform].settings
    return [
        " or ".join(make_variable(platform, name) for name in names if settings[name].has_variable)
        for names in PLATFORMS[platform].needs
        if not any(more.get(name) for name in names)
    ]


def format_install_hint(platform: str) -> str | None:
    """The command that installs missing packages; None if none is missing."""
    entry = PLATFORMS[platform]
    if all(find_spec(name) is not None for name in entry.modules):
        return None
    return f"pip install 'hermes-sessions[{entry.extra}]'"
