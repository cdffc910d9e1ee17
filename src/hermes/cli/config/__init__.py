"""`hermes config get | set | unset | list | edit | path`: read and change settings.

This folder owns how these commands print a setting and the place where it is set. It imports `hermes.config`,
but no other command.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from hermes import errors
from hermes.cli.command import Access, Command, Words, add_commands, add_json_option, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.cli.io.prompts import ask_hidden
from hermes.config import config_file, dotenv
from hermes.config.redaction import is_secret_name, mask_secret, redact_setting
from hermes.text import make_printable

JSON_FIELDS = ("key", "value", "origin")
HERE = "hermes.cli.config"
COMMANDS = {
    "get": Command(f"{HERE}:define_get", "print the value of a setting", Access.READS),
    "set": Command(f"{HERE}:define_set", "change a setting or a key", Access.PERSON),
    "unset": Command(f"{HERE}:define_unset", "remove a setting or a key", Access.PERSON),
    "list": Command(
        f"{HERE}:define_list", "show every setting, its value and where it comes from", Access.READS
    ),
    "edit": Command(
        f"{HERE}.edit", "open config.yaml in your editor, and check it afterwards", Access.PERSON
    ),
    "path": Command(f"{HERE}:define_path", "print where config.yaml is", Access.READS),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_get(parser: argparse.ArgumentParser, _: Words) -> None:
    _add_key_argument(parser, print_setting)
    add_json_option(parser, JSON_FIELDS)


def define_set(parser: argparse.ArgumentParser, _: Words) -> None:
    _add_key_argument(parser, change_setting)
    help_text = "the value; if it is left out and KEY is a secret, you are asked for it"
    parser.add_argument("value", nargs="?", type=parse_text, metavar="VALUE", help=help_text)


def define_unset(parser: argparse.ArgumentParser, _: Words) -> None:
    _add_key_argument(parser, remove_setting)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=list_settings)
    add_json_option(parser, JSON_FIELDS)


def define_path(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=print_path)


def _add_key_argument(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.set_defaults(run=run)
    help_text = "such as model.default, or the name of a key, such as OPENAI_API_KEY or TELEGRAM_BOT_TOKEN"
    parser.add_argument("key", type=parse_text, metavar="KEY", help=help_text)


# ---------------------------------------------------------------- reading


def print_setting(arguments: argparse.Namespace) -> int:
    key = arguments.key
    row = _make_secret_row(key) if _is_secret(key) else _make_row(key)
    if row["value"] is None:
        raise Refused(f"{key} is not set")
    if arguments.json:
        print_json(row, arguments.json)
    else:
        print_lines([_format_value(row["value"])])
    return DONE


def list_settings(arguments: argparse.Namespace) -> int:
    from hermes.agent.models.endpoints import PROVIDERS
    from hermes.config.settings_schema import GATEWAY_SETTINGS, SETTINGS
    from hermes.gateway.settings import read_gateway_settings

    settings, gateway = _read_settings(), read_gateway_settings()
    ours = dict.fromkeys([*GATEWAY_SETTINGS, *gateway.origins])
    variables = [origin for origin in gateway.origins.values() if _is_secret(origin)]
    names = dict.fromkeys([*(provider.key_env for provider in PROVIDERS), *variables, *dotenv.read()])
    secrets = [_make_secret_row(name) for name in names if _is_secret(name)]
    rows = [_make_row(key, settings) for key in SETTINGS]
    rows += [_make_gateway_row(key, gateway) for key in ours if gateway.origins.get(key) not in names]
    rows += [row for row in secrets if row["value"] is not None]
    if arguments.json:
        print_json(rows, arguments.json)
        return DONE
    width = max(len(make_printable(row["key"])) for row in rows)
    for row in rows:
        value = "—" if row["value"] is None else _format_value(row["value"])
        origin = "" if row["origin"] is None else f"  ({make_printable(row['origin'])})"
        print_lines([f"{make_printable(row['key']):<{width}}  {value}{origin}"])
    return DONE


def print_path(_: argparse.Namespace) -> int:
    print_lines([make_printable(str(config_file.get_path()))])
    return DONE


def _read_settings() -> Any:
    """Return all settings. Print a warning about unknown settings."""
    from hermes.config.settings import read_settings

    settings = read_settings()
    if settings.warning:
        print_error(settings.warning)
    return settings


def _is_secret(name: str) -> bool:
    """Return whether `name` is a variable that contains a secret. Secrets are kept in .env and
    never shown."""
    return name.endswith("_API_KEY") or (name.isupper() and "." not in name and is_secret_name(name))


def _make_gateway_row(key: str, gateway: Any) -> dict[str, Any]:
    from hermes.gateway.settings import get_value

    return _redact_row(key, get_value(gateway, key), gateway.origins.get(key))


def _make_row(key: str, settings: Any = None) -> dict[str, Any]:
    from hermes.config.key_lookup import find_setting
    from hermes.config.settings_schema import SETTINGS

    settings = settings or _read_settings()
    if key in SETTINGS:
        section, name = key.split(".")
        return _redact_row(key, getattr(getattr(settings, section), name), settings.origins.get(key))
    if find_setting(key) is not None:
        from hermes.gateway.settings import read_gateway_settings

        return _make_gateway_row(key, read_gateway_settings())
    value = config_file.get_value(config_file.read(), key)
    # the keys of prices are model names, so any key is valid
    if value is None and key.partition(".")[0] != "prices":
        raise _make_unknown_error(key)
    return _redact_row(key, value, str(config_file.get_path()))


def _redact_row(key: str, value: Any, origin: str | None) -> dict[str, Any]:
    """Return the output of `hermes config list` for one setting: its key, its value and its origin. Secrets are
    redacted. If config.yaml takes the value from an environment variable, the value is `${NAME}`, as written in
    the file."""
    if origin == str(config_file.get_path()):
        written = config_file.get_value(config_file.read(), key)
        if "${" in str(written):
            value = written
    return {"key": key, "value": redact_setting(key, value), "origin": origin}


def _make_secret_row(name: str) -> dict[str, Any]:
    value = dotenv.get_variable(name)
    origin = (
        None
        if value is None
        else "environment"
        if os.environ.get(name, "").strip()
        else str(dotenv.get_path())
    )
    return {"key": name, "value": None if value is None else mask_secret(value), "origin": origin}


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return make_printable(value)
    if isinstance(value, float):
        return f"{value:g}"
    import json

    return make_printable(json.dumps(value, ensure_ascii=False))


def _make_unknown_error(key: str) -> Refused:
    from hermes.config.key_lookup import list_below, suggest_key

    if several := list_below(key):
        return Refused(f"{key} is several settings: {', '.join(several)}")
    return Refused(f"there is no setting {key}{suggest_key(key)}")


# ---------------------------------------------------------------- changing


def change_setting(arguments: argparse.Namespace) -> int:
    from hermes.config.key_lookup import find_setting, find_variable

    key, value = arguments.key, arguments.value
    if _is_secret(key):
        secret = ask_hidden(f"{key}: ") if value is None else value.strip()
        if not secret:
            raise Refused("a key must not be empty; remove it with `hermes config unset`")
        dotenv.change(key, secret)
        print_lines([f"{key} = {mask_secret(secret)} in {make_printable(str(dotenv.get_path()))}"])
        _warn_if_unused(key)
        return _report_override(key)
    if value is None:
        raise WrongUsage(f"a value is missing: `hermes config set {key} VALUE`")
    if key.startswith("prices."):
        raise Refused("prices have dots in their names; set them with `hermes config edit`")
    setting = find_setting(key)
    if setting is None:
        raise _make_unknown_error(key)
    if value in setting.file_only:
        raise Refused(f"{key} {value} is for containers only; set it with `hermes config edit`")
    if key.startswith("platforms.") and is_secret_name(key):
        raise _make_file_only_error(key)
    config_file.change(key, _parse_value(setting.kind, key, value))
    print_lines(
        [
            f"{key} = {_format_value(redact_setting(key, value))} in {make_printable(str(config_file.get_path()))}"
        ]
    )
    return _report_override(find_variable(key))


def _make_file_only_error(key: str) -> Refused:
    """Return the error for an attempt to set a secret of a platform by its dotted path `key`. The error says
    where the secret belongs. A single secret belongs in .env, under the name of its variable. A setting that
    holds several secrets is changed with `hermes config edit`."""
    from hermes.config.key_lookup import find_variable
    from hermes.gateway import registry

    _, platform, name = key.split(".")
    variable = find_variable(key)
    if variable is None:
        return Refused(f"{key} holds several secrets; set them with `hermes config edit`")
    if variable in (secrets := registry.list_secret_variables(platform)):
        return Refused(f"a secret belongs in .env: set it with `hermes config set {variable}`")
    return Refused(
        f"{platform} has no secret {name}; set one with `hermes config set NAME`: {', '.join(secrets)}"
    )


def _warn_if_unused(variable: str) -> None:
    from hermes.config.key_lookup import find_platform_key
    from hermes.gateway import registry

    if (key := find_platform_key(variable)) is not None:
        platform = key.split(".")[1]
        if variable not in (secrets := registry.list_secret_variables(platform)):
            print_error(f"{platform} does not read {variable}; its secrets are {', '.join(secrets)}")


def remove_setting(arguments: argparse.Namespace) -> int:
    key = arguments.key
    if _is_secret(key):
        if key not in dotenv.read():
            raise Refused(f"{key} is not set in {dotenv.get_path()}")
        dotenv.change(key, None)
        print_lines([make_printable(f"{key} was removed from {dotenv.get_path()}")])
        return DONE
    if config_file.get_value(config_file.read(), key) is None:
        raise Refused(f"{key} is not set in {config_file.get_path()}")
    config_file.change(key, None)
    print_lines([make_printable(f"{key} was removed from {config_file.get_path()}")])
    return DONE


def _parse_value(kind: Any, key: str, text: str) -> object:
    """Return the value that `text`, typed by the user, stands for, as it will be written into config.yaml.
    `kind` is the kind of the setting at `key`. Raise BadConfig if the setting does not accept the value."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from hermes.config.settings_reader import COMMAND_LINE, check_value

    try:
        check_value(kind, key, text, COMMAND_LINE)
        return text
    except errors.BadConfig as problem:
        refusal = problem
    try:
        read = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise refusal from None
    if read is None or isinstance(read, str):
        raise refusal
    check_value(kind, key, read, COMMAND_LINE)
    return read


def _report_override(name: str | None) -> int:
    if name is not None and os.environ.get(name, "").strip():
        print_error(f"{name} is set in the environment, which overrides it")
    return DONE
