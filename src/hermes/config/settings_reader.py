"""Reads and checks values from arguments, the environment, `.env` and `config.yaml`, and records their
origins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hermes import errors
from hermes.config import dotenv
from hermes.config.declarations import Section, list_settings
from hermes.config.redaction import describe_type, is_secret_name, redact_text
from hermes.config.setting_kinds import SWITCH_WORDS, VARIABLE, Kind
from hermes.config.time_zones import UnknownZone

COMMAND_LINE = "the command line"


class SettingsReader:
    """Reads settings from the command line, the environment and one config.yaml. `origins` records where each
    value was found."""

    def __init__(
        self, values: Mapping[str, Any], file: str, arguments: Mapping[str, object] | None = None
    ) -> None:
        self.values, self.file = values, file
        self.origins: dict[str, str] = {}
        self._arguments = arguments or {}
        environment = {name: value for name, value in os.environ.items() if value.strip()}
        variables = {**dotenv.read(), **environment}
        self.variables = {name: value.strip() for name, value in variables.items() if value.strip()}

    def read_section(self, section: str, declared: type[Section]) -> dict[str, Any]:
        """Return those settings of a section that have a value, with their values. The empty section name
        stands for the top-level settings."""
        settings = list_settings(declared)
        keys = {name: f"{section}.{name}" if section else name for name in settings}
        written = self.get_section(section, next(iter(keys.values()))) if section else self.values
        return {
            name: value
            for name, setting in settings.items()
            for value in self.read_value(keys[name], setting.kind, written.get(name), setting.variable)
        }

    def get_section(self, name: str, example: str) -> Mapping[str, Any]:
        """Return the section `name` of config.yaml; empty if it is missing. Raise `BadConfig` if the section is
        not a mapping. The error names `example` as a setting of the section."""
        inner = self.values.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            raise errors.BadConfig(
                f"{self.file}: {name} must hold settings such as {example}, not {describe_type(inner)}"
            )
        return inner or {}

    def read_value(
        self, key: str, kind: Kind | None, written: object, variable: str | None = None
    ) -> Iterator[Any]:
        """Yield the value of the setting `key`; yield nothing if it is not set. An argument of the command line
        comes first, then the environment variable `variable`, then `written`, the value in config.yaml. If
        `kind` is given, the value is checked."""
        if self._arguments.get(key) is not None:
            self.origins[key] = COMMAND_LINE
            argument = self._arguments[key]
            yield argument if kind is None else check_value(kind, key, argument, COMMAND_LINE)
        elif variable in self.variables:
            self.origins[key] = variable
            yield self._parse_text(kind, key, self.variables[variable], variable)
        elif written is not None:
            self.origins[key] = self.file
            meaning = expand_variables(key, written, self.file)
            if kind is None:
                yield str(meaning) if is_secret_name(key) and not _is_nested(meaning) else meaning
            elif isinstance(meaning, str) and meaning != written:
                yield self._parse_text(kind, key, written, self.file)
            else:
                yield check_value(kind, key, written, self.file)

    def _parse_text(self, kind: Kind | None, key: str, text: object, origin: str) -> Any:
        """Return the checked value of a text from an environment variable, or of a text in config.yaml that
        contains `${NAME}`. References `${NAME}` are expanded, except in a secret from the environment."""
        if kind is None:
            return text
        is_literal = is_secret_name(key) and origin != self.file
        try:
            return parse_value(kind, text if is_literal else expand_variables(key, text, origin))
        except ValueError as problem:
            raise errors.BadConfig(f"{origin}: {describe_refusal(kind, key, text, problem)}") from None


def check_value(kind: Kind, key: str, value: object, origin: str) -> Any:
    """Return the value of the setting `key`, checked and converted by its `kind`. Raise `BadConfig` if it is
    invalid. `origin` says in the error where the value was found."""
    try:
        return kind.read(expand_variables(key, value, origin))
    except ValueError as problem:
        raise errors.BadConfig(f"{origin}: {describe_refusal(kind, key, value, problem)}") from None


def describe_refusal(kind: Kind, key: str, value: object, problem: ValueError) -> str:
    """Return one line that says why the value of the setting `key` is refused and what `kind` expects. A value
    that may be a secret is not quoted."""
    but = "" if is_secret_name(key) or kind is VARIABLE else f", not {format_value(value)}"
    hint = str(problem) if isinstance(problem, UnknownZone) else ""
    return f"{key} must be {kind.expected}{but}{hint}"


def parse_value(kind: Kind, value: object) -> Any:
    """Return the value of a setting, checked and converted by its `kind`. Raise ValueError if it is invalid. A
    number or a boolean may be given as text, as in the environment."""
    if not isinstance(value, str):
        return kind.read(value)
    first: ValueError | None = None
    for meaning in _list_meanings(value):
        try:
            return kind.read(meaning)
        except ValueError as problem:
            first = first or problem
    assert first is not None
    raise first


def expand_variables(key: str, value: object, origin: str) -> object:
    """Replace each `${NAME}` in a text by the value of that variable. Raise `BadConfig` if the variable is
    not set."""
    if isinstance(value, list):
        return [_expand_item(key, item, origin) for item in value]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        variable = dotenv.get_variable(match[1])
        if variable is None:
            raise errors.BadConfig(f"{origin}: {key} uses ${{{match[1]}}}, which is not set")
        return variable

    return re.sub(r"\$\{(\w+)\}", replace, value)


def _expand_item(key: str, item: object, origin: str) -> object:
    if isinstance(item, Mapping):
        return {name: expand_variables(f"{key}.{name}", inner, origin) for name, inner in item.items()}
    return expand_variables(key, item, origin)


def format_value(value: object) -> str:
    """Format a value for an error message: short and without secrets."""
    text = redact_text(repr(value)) if not isinstance(value, dict | list) else describe_type(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list)


def _list_meanings(text: str) -> Iterator[object]:
    yield text
    if text.lower() in SWITCH_WORDS:
        yield SWITCH_WORDS[text.lower()]
    for number in (int, float):
        try:
            yield number(text)
        except ValueError:
            continue
