"""Reads all settings except those of the gateway. The sources, in order of precedence, are arguments, the
environment, `.env`, `config.yaml` and the defaults.

`settings_schema` declares each setting and its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hermes import errors
from hermes.config import config_file, key_lookup
from hermes.config.redaction import describe_type, redact_text
from hermes.config.setting_kinds import RATE, RATES, URL
from hermes.config.settings_reader import SettingsReader, check_value, expand_variables
from hermes.config.settings_schema import SECTIONS, SETTINGS, Settings

MODEL, WINDOW = "model.default", "model.context_window"
ADDRESS, KEY_VARIABLE = "model.base_url", "model.key_env"


def read_settings(arguments: Mapping[str, object] | None = None) -> Settings:
    """Read all settings. `arguments` holds the values from the command line by key; a value of None means
    that the argument was not given."""
    file = config_file.get_path()
    return make_settings(config_file.read(), file=str(file), arguments=arguments)


def make_settings(
    values: Mapping[str, Any], *, file: str, arguments: Mapping[str, object] | None = None
) -> Settings:
    """Build the settings from parsed values.

    `file` is named as the origin of the values in error messages. It is not read, so the values may be
    unsaved.
    """
    reader = SettingsReader(values, file, arguments)
    found = {section: reader.read_section(section, declared) for section, declared in SECTIONS.items()}
    usual = _list_usual_models(reader)
    windows = {}
    # the context window in the file applies only to the configured models
    if reader.origins.get(WINDOW) == file:
        windows = dict.fromkeys(usual, found["model"]["context_window"])
        chosen = (arguments or {}).get(MODEL)
        if usual and chosen is not None and chosen not in usual:
            del found["model"]["context_window"], reader.origins[WINDOW]
    if _is_elsewhere(reader, found["model"].get("base_url")):
        del found["model"]["key_env"], reader.origins[KEY_VARIABLE]
    sections: dict[str, Any] = {section: SECTIONS[section](**inner) for section, inner in found.items()}
    return Settings(
        **sections,
        prices=_parse_prices(values.get(key_lookup.PRICES), file),
        windows=windows,
        origins=reader.origins,
        warning=_make_warning(list(key_lookup.find_unknown(values)), file),
    )


def _is_elsewhere(reader: SettingsReader, base_url: str | None) -> bool:
    """Return whether `model.key_env` in config.yaml belongs to another server address than `base_url`, the one
    in use. This is so if an argument or the environment overrides the address that config.yaml gives."""
    written = reader.get_section("model", ADDRESS).get("base_url")
    if written is None or reader.origins.get(KEY_VARIABLE) != reader.file:
        return False
    if reader.origins.get(ADDRESS) == reader.file:
        return False
    with suppress(errors.BadConfig):  # the error is reported when the setting is used
        return bool(check_value(URL, ADDRESS, written, reader.file) != base_url)
    return True


def _list_usual_models(reader: SettingsReader) -> list[str]:
    """Return the names of the models to which `model.context_window` in config.yaml applies. These are the
    default model in the environment and the default model in config.yaml."""
    variable = SETTINGS[MODEL].variable or ""
    candidates = (
        (reader.variables.get(variable), variable),
        (reader.get_section("model", MODEL).get("default"), reader.file),
    )
    names: list[str] = []
    for value, origin in candidates:
        with suppress(errors.BadConfig):  # the error is reported when the setting is read
            if value is not None:
                names.append(str(expand_variables(MODEL, value, origin)))
    return list(dict.fromkeys(names))


def _parse_prices(values: object, file: str) -> Mapping[str, Mapping[str, float]]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise errors.BadConfig(
            f"{file}: prices must map model names to prices, but is {describe_type(values)}"
        )
    return {str(model): _check_rates(str(model), rates, file) for model, rates in values.items()}


def _check_rates(model: str, rates: object, origin: str) -> Mapping[str, float]:
    """Return the prices of one model. Raise `BadConfig` if they are invalid."""
    if (
        not isinstance(rates, dict)
        or not rates.keys() <= set(RATES)
        or not {"input", "output"} <= rates.keys()
    ):
        expected = "input and output, and optionally cache_read and cache_write"
        raise errors.BadConfig(f"{origin}: prices.{model} must hold {expected}")
    try:
        return {name: RATE.read(rate) for name, rate in rates.items()}
    except ValueError:
        raise errors.BadConfig(f"{origin}: prices.{model} must be dollars per million tokens") from None


def _make_warning(unknown: list[str], file: str) -> str | None:
    if not unknown:
        return None
    hint = key_lookup.suggest_key(unknown[0]) if len(unknown) == 1 else ""
    return f"{file}: unknown setting: {redact_text(', '.join(unknown))}{hint}"
