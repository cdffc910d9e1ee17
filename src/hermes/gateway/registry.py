"""The registry of platforms. A new platform needs a folder with a module `declaration`, and one line here.

A declaration is plain data that names its adapter. The adapter and its SDK are imported only when the
platform is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hermes import home
from hermes.config.declarations import Platform, make_variable
from hermes.config.extras import format_install

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
    """Import and return the adapter class of a platform."""
    module, _, class_name = PLATFORMS[name].adapter.partition(":")
    return getattr(import_module(module), class_name)


def list_secret_variables(platform: str) -> list[str]:
    """Return the names of the environment variables that hold the platform's secrets."""
    settings = PLATFORMS[platform].settings
    return [
        make_variable(platform, name)
        for name, setting in settings.items()
        if setting.is_secret and setting.has_variable
    ]


def list_missing(platform: str, more: Mapping[str, Any]) -> list[str]:
    """Return the required settings that are missing, as names of environment variables."""
    if has_secret_file(platform):
        return []
    settings = PLATFORMS[platform].settings
    return [
        " or ".join(make_variable(platform, name) for name in names if settings[name].has_variable)
        for names in PLATFORMS[platform].needs
        if not any(more.get(name) for name in names)
    ]


def has_secret_file(platform: str) -> bool:
    """Return whether the platform has a file with secrets in the home."""
    name = PLATFORMS[platform].secret_file
    return name is not None and (home.get_hermes_home() / "gateway" / name).exists()


def format_install_hint(platform: str) -> str | None:
    """Return the command that installs missing packages, or None if nothing is missing."""
    entry = PLATFORMS[platform]
    if all(find_spec(name) is not None for name in entry.modules):
        return None
    return format_install(entry.extra)
