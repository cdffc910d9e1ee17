"""Reads the options of a platform from its settings: typed, with defaults."""

from __future__ import annotations

from typing import TypeVar

from hermes.config.declarations import Section, list_settings
from hermes.config.settings_reader import describe_refusal, parse_value
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.settings import PlatformSettings

Options = TypeVar("Options", bound=Section)


def read_options(declared: type[Options], settings: PlatformSettings) -> Options:
    """Return the options in a platform's settings as an instance of `declared`, the class that declares them. Unset
    and empty options get their defaults. Raise `Misconfigured` for an invalid value."""
    values = {}
    for name, setting in list_settings(declared).items():
        value = settings.more.get(name)
        if value is None or value == "":
            continue
        try:
            values[name] = parse_value(setting.kind, value)
        except ValueError as problem:
            key = f"platforms.{settings.name}.{name}"
            raise Misconfigured(describe_refusal(setting.kind, key, value, problem)) from None
    return declared(**values)
