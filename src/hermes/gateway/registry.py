"""The registry of platforms: the adapter, the required settings and the packages of each.

An adapter, with its SDK, is imported only when its platform is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

IN_THE_FILE = ("keys",)
"""What is no single text, so that no variable can give it."""


class Platform(NamedTuple):
    title: str
    adapter: str
    """`module:class`."""
    needs: tuple[tuple[str, ...], ...]
    """What it cannot do without; of names in one bracket one is enough."""
    extra: str
    """What to install: `hermes-sessions[telegram]`."""
    modules: tuple[str, ...]
    """What is there if that is installed."""
    secrets: tuple[str, ...]
    """What of its settings nobody may see, and belongs into .env."""
    by_secret: bool = False
    """Whether a shared secret gives access, instead of lists of people."""


PLATFORMS: Mapping[str, Platform] = {
    "telegram": Platform(
        "Telegram",
        "hermes.gateway.platforms.telegram:Telegram",
        (("bot_token",),),
        "telegram",
        ("telegram",),
        ("bot_token", "webhook_secret"),
    ),
    "matrix": Platform(
        "Matrix",
        "hermes.gateway.platforms.matrix:Matrix",
        (("homeserver",), ("user_id",), ("access_token", "password")),
        "matrix",
        ("nio",),
        ("access_token", "password"),
    ),
    "webhook": Platform(
        "Webhook",
        "hermes.gateway.platforms.webhook:Webhook",
        (("secret",),),
        "gateway",
        ("starlette", "uvicorn"),
        ("secret",),
        by_secret=True,
    ),
    "api-server": Platform(
        "API server",
        "hermes.server.api:ApiServer",
        (("key", "keys"),),
        "gateway",
        ("starlette", "uvicorn"),
        ("key",),
        by_secret=True,
    ),
}


def adapter_class(name: str) -> Any:
    """The class that speaks with a platform, imported now."""
    module, _, class_name = PLATFORMS[name].adapter.partition(":")
    return getattr(import_module(module), class_name)


def environment_variable(platform: str, name: str) -> str:
    """How a setting of a platform is called in the environment: `TELEGRAM_BOT_TOKEN`."""
    return f"{platform}_{name}".upper().replace("-", "_")


def secret_variables(platform: str) -> list[str]:
    """How its secrets are called in the environment."""
    return [environment_variable(platform, name) for name in PLATFORMS[platform].secrets]


def missing_settings(platform: str, more: Mapping[str, Any]) -> list[str]:
    """What it still needs, by the names of variables; empty if it has everything."""
    return [
        " or ".join(environment_variable(platform, name) for name in names if name not in IN_THE_FILE)
        for names in PLATFORMS[platform].needs
        if not any(more.get(name) for name in names)
    ]


def install_hint(platform: str) -> str | None:
    """The command that installs missing packages; None if none is missing."""
    entry = PLATFORMS[platform]
    if all(find_spec(name) is not None for name in entry.modules):
        return None
    return f"pip install 'hermes-sessions[{entry.extra}]'"
