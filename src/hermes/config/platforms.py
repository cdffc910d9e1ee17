"""The platforms that there are. The registry is found by its name: this room imports nothing of the gateway.

The registry and the declarations it names are data. They import this room only, and no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from hermes.config.declarations import Platform

REGISTRY = "hermes.gateway.registry"


def list_platforms() -> Mapping[str, Platform]:
    """Every platform by its documented name."""
    platforms: Mapping[str, Platform] = import_module(REGISTRY).PLATFORMS
    return platforms
