"""`hermes gateway setup`: a platform is chosen, its secret asked for and tried out, and both are written down."""

from __future__ import annotations

import argparse
import os
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from hermes.cli.command import DONE, Refused, Words, WrongUsage, plain_text
from hermes.cli.gateway.pair import how_to_use, open_pairings
from hermes.cli.gateway.systemd import how_to_install, unit
from hermes.cli.io.output import add_details, complain, confirm, say
from hermes.cli.io.prompts import choice, hidden, line
from hermes.config import config_file, dotenv
from hermes.config.gateway_keys import SERVER
from hermes.gateway import registry
from hermes.gateway.inbound.pairing import MINUTES
from hermes.gateway.settings import read_gateway_settings
from hermes.session_kinds import canonical_source
from hermes.text import make_printable


def _address(text: str) -> str:
    address: str = SERVER.read(text)
    return address


def _matching(pattern: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return check


class Field(NamedTuple):
    """Something that a platform has to be told."""

    name: str
    flag: str
    """Which argument gives it, so that nobody is asked."""
    question: str
    expected: str
    check: Callable[[str], str]
    is_secret: bool = False
    is_made: bool = False
    """Whether we make one up if nobody has it."""


A_LONG_SECRET = Field("", "token", "", "at least 16 characters", _matching(r"\S{16,}"), True, True)
FIELDS = {
    "telegram": (
        Field(
            "bot_token",
            "token",
            "Token that @BotFather gave you",
            "as 123456:ABC…",
            _matching(r"\d+:\S+"),
            True,
        ),
    ),
    "matrix": (
        Field(
            "homeserver", "homeserver", "Homeserver, such as https://matrix.org", SERVER.expected, _address
        ),
        Field(
            "user_id",
            "user_id",
            "Who the bot is there, such as @bot:matrix.org",
            "as @name:server",
            _matching(r"@\S+:\S+"),
        ),
        Field("access_token", "token", "Its access token, or empty", "a token", _matching(r"\S+"), True),
        Field("password", "password", "Its password", "a password", _matching(r".+"), True),
    ),
    "webhook": (A_LONG_SECRET._replace(name="secret", question="Secret that signs requests"),),
    "api-server": (A_LONG_SECRET._replace(name="key", question="Key that clients send"),),
}


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=setup)
    add = parser.add_argument
    add("--platform", type=plain_text, metavar="P", help="telegram, matrix, webhook or api-server")
    add("--token", type=plain_text, metavar="T", help="its secret; left out, a line of stdin or asked for")
    add("--homeserver", type=plain_text, metavar="URL", help="where Matrix is")
    add("--user-id", type=plain_text, metavar="ID", help="who the bot is on Matrix")
    add("--password", type=plain_text, metavar="W", help="its password on Matrix, instead of a token")
    add("--no-test", action="store_true", help="do not try the secret out")
    add("--systemd", action="store_true", help="print a unit that runs the gateway, and do nothing else")


def setup(arguments: argparse.Namespace) -> int:
    if arguments.systemd:
        say(unit(read_gateway_settings()))
        add_details(how_to_install())
        return DONE
    asking = arguments.platform is None
    platform = _chosen() if asking else canonical_source(arguments.platform.lower())
    if platform not in FIELDS:
        raise Refused(f"there is no platform '{platform}'; there are {', '.join(FIELDS)}")
    values = _values(platform, arguments, asking)
    if not arguments.no_test:
        _try(platform, values, asking)
    _keep(platform, values)
    _tell_what_is_next(platform, asking)
    return DONE


def _chosen() -> str:
    names = list(FIELDS)
    say(["Which platform?"])
    place = choice("Number", [registry.PLATFORMS[name].title for name in names])
    assert isinstance(place, int)
    return names[place]


# ---------------------------------------------------------------- what it is told


def _values(platform: str, arguments: argparse.Namespace, asking: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    given = {field.flag for field in FIELDS[platform] if getattr(arguments, field.flag) is not None}
    for flag in {"token", "homeserver", "user_id", "password"} - {one.flag for one in FIELDS[platform]}:
        if getattr(arguments, flag) is not None:
            raise WrongUsage(f"{platform} needs no --{flag.replace('_', '-')}")
    for field in FIELDS[platform]:
        if field.name == "password" and "access_token" in values:
            continue
        if field.name == "access_token" and "password" in given:
            continue
        value = _value(field, getattr(arguments, field.flag), asking)
        if value:
            values[field.name] = value
    if missing := registry.missing_settings(platform, values):
        raise Refused(f"{platform} also needs {', '.join(missing)}; nothing was changed")
    return values


def _value(field: Field, given: str | None, asking: bool) -> str:
    """What was given, or typed; a new one if there is none and it can be made up."""
    if given is None and not asking and not field.is_secret:
        raise WrongUsage(f"--{field.flag.replace('_', '-')} is missing")
    while True:
        typed = given
        if typed is None and field.is_secret:
            typed = hidden(f"{field.question}{' (empty: a new one)' if field.is_made else ''}: ")
        elif typed is None:
            typed = line(field.question)
        typed = typed.strip()
        if not typed:
            return secrets.token_urlsafe(32) if field.is_made else ""
        try:
            return field.check(typed)
        except ValueError:
            problem = f"it must be {field.expected}"
            if not asking:
                raise Refused(f"{field.name}: {problem}; nothing was changed") from None
            say([f"That cannot be right: {problem}."])


def _try(platform: str, values: dict[str, str], asking: bool) -> None:
    from hermes.cli.gateway.connection_test import tried

    known = read_gateway_settings().platforms.get(platform)
    if known is not None and "base_url" in known.more:
        values = {**values, "base_url": known.more["base_url"]}
    try:
        name = tried(platform, values)
    except Refused as problem:
        if not asking:
            raise Refused(f"{problem}; nothing was changed (--no-test keeps it anyway)") from None
        complain(str(problem))
        if not confirm("Keep it anyway?"):
            raise Refused("cancelled; nothing was changed") from None
        return
    if name is not None:
        say([f"It works: the bot is {make_printable(name)}."])


# ---------------------------------------------------------------- written down


def _keep(platform: str, values: dict[str, str]) -> None:
    """Secrets into .env, everything else into config.yaml, where a platform that was turned off is turned on."""
    plain = [field.name for field in FIELDS[platform] if field.name in values and not field.is_secret]
    changes: list[tuple[str, object]] = [(f"platforms.{platform}.{name}", values[name]) for name in plain]
    if config_file.get_value(config_file.read(), f"platforms.{platform}.enabled") is False:
        changes.append((f"platforms.{platform}.enabled", True))
    if changes:
        config_file.change_all(changes)
        say([f"Settings: {make_printable(str(config_file.get_path()))}"])
    for name in values.keys() - set(plain):
        variable = registry.environment_variable(platform, name)
        dotenv.change(variable, values[name])
        say([f"{variable} is in {make_printable(str(dotenv.get_path()))}"])
        if os.environ.get(variable, "").strip() not in ("", values[name]):
            complain(f"{variable} is set in the environment, which wins over it")


def _tell_what_is_next(platform: str, asking: bool) -> None:
    if how := registry.install_hint(platform):
        complain(f"it is not installed yet; get it with: {how}")
    if not registry.PLATFORMS[platform].by_secret:
        if asking and confirm(
            "Make a code now with which you let yourself in, as the owner of this machine?"
        ):
            code = open_pairings().make_code(platform, owner=True)
            say(how_to_use(code, platform, MINUTES, owner=True))
        else:
            say([f"Nobody is let in by this: `hermes gateway pair {platform} --owner` makes a code for you."])
    say(["`hermes gateway run` connects it; `hermes gateway setup --systemd` prints a unit that does."])
