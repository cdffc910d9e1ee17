"""Finds declared settings by dotted path or environment variable, and finds the keys in config.yaml that no
setting declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hermes.config.declarations import Setting, list_settings, make_variable
from hermes.config.platforms import list_platforms
from hermes.config.setting_kinds import ANY_TEXT
from hermes.config.settings_schema import (
    GATEWAY_SECTIONS,
    GATEWAY_SETTINGS,
    OPEN_SECTIONS,
    RESETS,
    SECTIONS,
    SETTINGS,
    PlatformSection,
    ResetPolicy,
)
from hermes.session_kinds import CHAT_TYPES, canonical_source

PRICES = "prices"
"""The name of the section with prices. Its keys are model names."""
MISSPELT = 0.85
"""The similarity to a declared name from which an unknown option of a platform counts as misspelt. Less
similar options are accepted, because platforms may have undeclared options."""
UNDECLARED = Setting(ANY_TEXT, "an option of the platform that is not declared")


def find_setting(key: str) -> Setting | None:
    """Return the setting at a dotted path, or None if there is none."""
    if (setting := SETTINGS.get(key) or GATEWAY_SETTINGS.get(key)) is not None:
        return setting
    section, _, rest = key.partition(".")
    owner, _, name = rest.partition(".")
    if section not in OPEN_SECTIONS or owner not in _list_owners(section):
        return None
    known = _list_owned(section, owner)
    if name in known or section in RESETS:
        return known.get(name)
    is_option = re.fullmatch(r"[a-z][a-z0-9_]*", name) and not _is_misspelt(name, known)
    return UNDECLARED if is_option else None


def find_variable(key: str) -> str | None:
    """Return the environment variable of a setting, or None if it has none."""
    section = key.partition(".")[0]
    setting = find_setting(key)
    if setting is None or section in RESETS:
        return None
    if section != "platforms":
        return setting.variable
    _, platform, name = key.split(".")
    return make_variable(platform, name) if setting.has_variable else None


def find_key(variable: str) -> str | None:
    """Return the dotted path of the setting that an environment variable sets; None if there is none. For
    `TELEGRAM_BASE_URL`, this is `platforms.telegram.base_url`."""
    for key, setting in (*SETTINGS.items(), *GATEWAY_SETTINGS.items()):
        if setting.variable == variable:
            return key
    return find_platform_key(variable)


def find_platform_key(variable: str) -> str | None:
    """Return the setting that a platform's environment variable sets, as a dotted path; None if it belongs to
    no platform."""
    for name, platform in list_platforms().items():
        prefix = make_variable(name, "")
        if variable.startswith(prefix):
            setting = variable.removeprefix(prefix).lower()
            return f"platforms.{name}.{platform.variable_aliases.get(setting, setting)}"
    return None


def list_keys() -> Iterator[str]:
    """Yield every declared key, including the keys and groups (`platforms.telegram`) of each platform and
    chat type."""
    yield from SETTINGS
    yield from GATEWAY_SETTINGS
    for section in OPEN_SECTIONS:
        for owner in _list_owners(section):
            yield f"{section}.{owner}"
            yield from (f"{section}.{owner}.{name}" for name in _list_owned(section, owner))


def list_below(key: str) -> list[str]:
    """Return the dotted paths of the settings and groups directly below the dotted path `key`. The list is
    empty if there are none."""
    depth = key.count(".") + 2
    below = (candidate for candidate in list_keys() if candidate.startswith(f"{key}."))
    return list(dict.fromkeys(".".join(candidate.split(".")[:depth]) for candidate in below))


def suggest_key(key: str) -> str:
    """Return a text such as `; did you mean ...?` for an unknown key, to append to a sentence. The text is
    empty if no known key is similar."""
    from difflib import get_close_matches

    if meant := find_key(key):
        return f"; did you mean {meant}?"
    close = get_close_matches(key, (*list_keys(), *_list_sections()), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def find_unknown(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys in the values of a config.yaml that no setting declares."""
    for section, inner in values.items():
        if section not in _list_sections() and section not in GATEWAY_SETTINGS:
            yield str(section)
        elif section in OPEN_SECTIONS:
            yield from _find_unknown_owned(section, inner)
        elif section != PRICES:
            keys = (f"{section}.{name}" for name in _list_names(inner))
            yield from (key for key in keys if key not in SETTINGS and key not in GATEWAY_SETTINGS)


def _find_unknown_owned(section: str, values: object) -> Iterator[str]:
    for owner, inner in values.items() if isinstance(values, Mapping) else ():
        canonical = canonical_source(str(owner))
        if canonical not in _list_owners(section):
            yield f"{section}.{owner}"
            continue
        known = _list_owned(section, canonical)
        for name in _list_names(inner):
            if _is_misspelt(name, known) if section == "platforms" else name not in known:
                yield f"{section}.{owner}.{name}"


def _list_sections() -> tuple[str, ...]:
    return (*SECTIONS, *filter(None, GATEWAY_SECTIONS), *OPEN_SECTIONS, PRICES)


def _list_owners(section: str) -> tuple[str, ...]:
    """Return the names that can stand directly below `section` in config.yaml. These are chat types for
    `reset_by_type`, and platforms otherwise."""
    return CHAT_TYPES if section == "reset_by_type" else tuple(list_platforms())


def _list_owned(section: str, owner: str) -> Mapping[str, Setting]:
    """Return the settings, by name, that can stand below `section` and the chat type or platform `owner` in
    config.yaml."""
    if section in RESETS:
        return list_settings(ResetPolicy)
    return {**list_settings(PlatformSection), **list_platforms()[owner].settings}


def _list_names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, Mapping) else []


def _is_misspelt(name: str, known: Mapping[str, Setting]) -> bool:
    from difflib import get_close_matches  # imported here because most names are known

    return name not in known and bool(get_close_matches(name, known, 1, MISSPELT))
