"""The list of platforms, read from the registry of the gateway. The registry is imported by name, because
`config` must not import the gateway.

The registry and the declarations that it names contain only data. They import `config` and no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from hermes.config.declarations import Platform

REGISTRY = "hermes.gateway.registry"


def list_platforms() -> Mapping[str, Platform]:
    """Return the declaration of every platform by its name."""
    platforms: Mapping[str, Platform] = import_module(REGISTRY).PLATFORMS
    return platforms
