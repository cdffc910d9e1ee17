"""`hermes config get | set | unset | list | edit | path`: what is set, where it comes from, and how to change it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from hermes import config, environment, errors
from hermes.cli.asking import hidden
from hermes.cli.command import (
    DONE,
    REFUSED,
    Command,
    Refused,
    Words,
    WrongUsage,
    group,
    plain_text,
    takes_json,
)
from hermes.cli.output import complain, confirm, say, say_json
from hermes.secrets import redact
from hermes.text import printable

HERE = "hermes.cli.config"
COMMANDS = {
    "get": Command(f"{HERE}:define_get", "print the value of a setting"),
    "set": Command(f"{HERE}:define_set", "change a setting, or a key"),
    "unset": Command(f"{HERE}:define_unset", "take a setting, or a key, out again"),
    "list": Command(f"{HERE}:define_list", "show every setting, its value and where it comes from"),
    "edit": Command(f"{HERE}:define_edit", "open config.yaml in your editor, and check it afterwards"),
    "path": Command(f"{HERE}:define_path", "print where config.yaml is"),
}
SECRET = "_API_KEY"
"""How the names of keys end. They are kept in .env and never shown."""
FIRST_LINES = "# Settings of Hermes; `hermes config list` names them all.\n"


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)


def define_get(parser: argparse.ArgumentParser, _: Words) -> None:
    _takes_key(parser, get)
    takes_json(parser)


def define_set(parser: argparse.ArgumentParser, _: Words) -> None:
    _takes_key(parser, set_)
    told = "the value; asked for, without showing it, if KEY is a key and it is left out"
    parser.add_argument("value", nargs="?", type=plain_text, metavar="VALUE", help=told)


def define_unset(parser: argparse.ArgumentParser, _: Words) -> None:
    _takes_key(parser, unset)


def define_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=list_)
    takes_json(parser)


def define_edit(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=edit)


def define_path(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=path)


def _takes_key(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.set_defaults(run=run)
    told = f"such as model.default, or the name of a key, which ends in {SECRET}"
    parser.add_argument("key", type=plain_text, metavar="KEY", help=told)


# ---------------------------------------------------------------- looking


def get(arguments: argparse.Namespace) -> int:
    key = arguments.key
    row = _secret(key) if key.endswith(SECRET) else _row(key)
    if row["value"] is None:
        raise Refused(f"{key} is not set")
    if arguments.json:
        say_json(row)
    else:
        say([_shown(row["value"])])
    return DONE


def list_(arguments: argparse.Namespace) -> int:
    from hermes.agent.endpoints import PROVIDERS
    from hermes.agent.settings import SETTINGS

    settings = _settings()
    names = dict.fromkeys([*(one.key_env for one in PROVIDERS), *environment.read()])
    secrets = [_secret(name) for name in names if name.endswith(SECRET)]
    rows = [_row(key, settings) for key in SETTINGS] + [row for row in secrets if row["value"] is not None]
    if arguments.json:
        say_json(rows)
        return DONE
    width = max(len(row["key"]) for row in rows)
    for row in rows:
        value = "—" if row["value"] is None else _shown(row["value"])
        origin = "" if row["origin"] is None else f"  ({printable(row['origin'])})"
        say([f"{row['key']:<{width}}  {value}{origin}"])
    return DONE


def path(_: argparse.Namespace) -> int:
    say([printable(str(config.path()))])
    return DONE


def _settings() -> Any:
    """All settings; what nobody understands is told."""
    from hermes.agent.settings import read_settings

    settings = read_settings()
    if settings.warning:
        complain(settings.warning)
    return settings


def _row(key: str, settings: Any = None) -> dict[str, Any]:
    from hermes.agent.settings import SETTINGS

    settings = settings or _settings()
    if key in SETTINGS:
        section, name = key.split(".")
        value = getattr(getattr(settings, section), name)
        return {"key": key, "value": _safe(value), "origin": settings.origins.get(key)}
    value = config.value_of(config.read(), key)
    if value is None:
        raise _no_such(key)
    return {"key": key, "value": _safe(value), "origin": str(config.path())}


def _safe(value: Any) -> Any:
    return redact(value) if isinstance(value, str) else value


def _secret(name: str) -> dict[str, Any]:
    told = environment.variable(name)
    origin = (
        None
        if told is None
        else "environment"
        if os.environ.get(name, "").strip()
        else str(environment.path())
    )
    return {"key": name, "value": None if told is None else masked(told), "origin": origin}


def masked(secret: str) -> str:
    """Enough of a key to tell it from another, and no more."""
    return f"{secret[:3]}…{secret[-4:]}" if len(secret) >= 16 else "…"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return f"{value:g}"
    import json

    return printable(json.dumps(value, ensure_ascii=False))


def _no_such(key: str) -> Refused:
    from hermes.agent.settings import nearest

    return Refused(f"there is no setting {key}{nearest(key)}")


# ---------------------------------------------------------------- changing


def set_(arguments: argparse.Namespace) -> int:
    from hermes.agent.settings import SETTINGS, VARIABLES

    key, value = arguments.key, arguments.value
    if key.endswith(SECRET):
        secret = hidden(f"{key}: ") if value is None else value.strip()
        if not secret:
            raise Refused("an empty key is none; `hermes config unset` takes it out")
        environment.change(key, secret)
        say([f"{key} = {masked(secret)} in {printable(str(environment.path()))}"])
        return _tell_who_wins(key)
    if value is None:
        raise WrongUsage(f"what should {key} be? `hermes config set {key} VALUE`")
    if key.startswith("prices."):
        raise Refused("prices have dots in their names; `hermes config edit` sets them")
    if key not in SETTINGS:
        raise _no_such(key)
    config.change(key, _typed(key, value))
    say([f"{key} = {_shown(_safe(value))} in {printable(str(config.path()))}"])
    return _tell_who_wins(VARIABLES.get(key))


def unset(arguments: argparse.Namespace) -> int:
    key = arguments.key
    if key.endswith(SECRET):
        if key not in environment.read():
            raise Refused(f"{key} is not set in {environment.path()}")
        environment.change(key, None)
        say([f"{key} is out of {printable(str(environment.path()))}"])
        return DONE
    if config.value_of(config.read(), key) is None:
        raise Refused(f"{key} is not set in {config.path()}")
    config.change(key, None)
    say([f"{key} is out of {printable(str(config.path()))}"])
    return DONE


def _typed(key: str, text: str) -> object:
    """The value that a text stands for, as it is written into the file; refused if the setting cannot be that."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from hermes.agent.settings import checked_value

    origin = "the command line"
    try:
        checked_value(key, text, origin)
        return text
    except errors.BadConfig as problem:
        refusal = problem
    try:
        read = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise refusal from None
    if read is None or isinstance(read, str):
        raise refusal
    checked_value(key, read, origin)
    return read


def _tell_who_wins(name: str | None) -> int:
    if name is not None and os.environ.get(name, "").strip():
        complain(f"{name} is set in the environment, which wins over it")
    return DONE


def edit(_: argparse.Namespace) -> int:
    """The editor works on a copy, which takes the place of the file only if it can be understood."""
    from hermes import home
    from hermes.partial import replace_file

    file = config.path().resolve()
    copy = file.with_name(f"{file.name}.edited")
    home.private_folder(file.parent)
    before = file.read_bytes() if file.exists() else FIRST_LINES.encode()
    if copy.exists():
        complain(f"going on with what you wrote before, in {copy}")
    else:
        replace_file(copy, before)
    while True:
        _run_editor(copy)
        problem = _problem(copy)
        if problem is None:
            break
        complain(problem)
        if not confirm("Edit it again?"):
            complain(f"{file} is as it was; what you wrote is in {copy}")
            return REFUSED
    after = copy.read_bytes()
    if after != before:
        replace_file(file, after)
    copy.unlink()
    say([f"{printable(str(file))} {'is as it was' if after == before else 'is saved'}"])
    return DONE


def _run_editor(file: Path) -> None:
    import shlex
    import subprocess

    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(named), str(file)])
    except (OSError, ValueError) as problem:
        raise Refused(f"the editor {named!r} does not start: {problem}; set EDITOR") from problem
    if done.returncode:
        raise Refused(f"the editor {named!r} failed ({done.returncode}); what it left is in {file}")


def _problem(file: Path) -> str | None:
    """What is wrong with settings that were written by hand, in one line."""
    from hermes.agent.settings import settings_from

    try:
        text = file.read_text(encoding="utf-8-sig")
        settings = settings_from(config.parsed(text, file), file=str(file))
    except (errors.BadConfig, UnicodeDecodeError) as problem:
        return str(problem)
    if settings.warning:
        complain(settings.warning)
    return None
