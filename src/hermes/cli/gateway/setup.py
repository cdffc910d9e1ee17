"""`hermes gateway setup`: choose a platform, ask for its secret, test the connection and save the settings."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

from hermes import errors
from hermes.cli.command import Words, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.gateway.pair import describe_code, open_pairings
from hermes.cli.gateway.systemd_unit import UNIT_NAME, format_user_unit
from hermes.cli.io.output import confirm, print_details, print_error, print_lines
from hermes.cli.io.prompts import ask_choice, ask_hidden, ask_line
from hermes.config import config_file, dotenv
from hermes.config.declarations import Question, Setting, make_variable
from hermes.gateway import registry
from hermes.gateway.inbound.pairing import MINUTES
from hermes.gateway.settings import read_gateway_settings
from hermes.session_kinds import canonical_source
from hermes.text import make_printable

PATIENCE_S = 15
SECRET_HELP = "the secret; if it is left out, it is read from stdin"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=set_up_platform)
    add = parser.add_argument
    add("--platform", type=parse_text, metavar="P", help=f"one of {', '.join(registry.PLATFORMS)}")
    for flag, (metavar, help_text) in list_flags().items():
        add(f"--{flag.replace('_', '-')}", type=parse_text, metavar=metavar, help=help_text)
    add("--no-test", action="store_true", help="do not test the secret")
    add("--systemd", action="store_true", help="only print a systemd unit that runs the gateway")


def list_flags() -> dict[str, tuple[str, str]]:
    """Return the flags of `hermes gateway setup` that answer the questions about all platforms. The result maps
    the name of each flag to its metavar and its help."""
    flags = {"token": ("T", SECRET_HELP)}
    for name, platform in registry.PLATFORMS.items():
        for setting, question in _list_questions(name).values():
            flags.setdefault(question.flag, (question.metavar, f"{platform.title}: {setting.meaning}"))
    return flags


def _list_questions(platform: str) -> dict[str, tuple[Setting, Question]]:
    """Return the settings of a platform that `hermes gateway setup` asks for, keyed by name, each with its
    question."""
    settings = registry.PLATFORMS[platform].settings
    return {name: (setting, setting.question) for name, setting in settings.items() if setting.question}


def set_up_platform(arguments: argparse.Namespace) -> int:
    if arguments.systemd:
        print_lines(format_user_unit(read_gateway_settings()).splitlines())
        print_details(_describe_installation())
        return DONE
    asking = arguments.platform is None
    platform = _choose_platform() if asking else canonical_source(arguments.platform.lower())
    if platform not in registry.PLATFORMS:
        raise Refused(f"there is no platform '{platform}'; there are {', '.join(registry.PLATFORMS)}")
    values = _collect_values(platform, arguments, asking)
    if not arguments.no_test:
        _try(platform, values, asking)
    _save(platform, values)
    _print_next_steps(platform, asking)
    return DONE


def _choose_platform() -> str:
    print_lines(["Which platform?"])
    place = ask_choice("Number", [platform.title for platform in registry.PLATFORMS.values()])
    assert isinstance(place, int)
    return list(registry.PLATFORMS)[place]


# ---------------------------------------------------------------- values


def _collect_values(platform: str, arguments: argparse.Namespace, asking: bool) -> dict[str, str]:
    questions = _list_questions(platform)
    answers = {name: getattr(arguments, question.flag) for name, (_, question) in questions.items()}
    for flag in list_flags().keys() - {question.flag for _, question in questions.values()}:
        if getattr(arguments, flag) is not None:
            raise WrongUsage(f"{platform} needs no --{flag.replace('_', '-')}")
    values: dict[str, str] = {}
    for name, (setting, question) in questions.items():
        others = _list_alternatives(platform, name)
        if others & values.keys() or any(answers.get(other) is not None for other in others):
            continue
        value = _ask_value(name, setting, question, answers[name], asking)
        if value:
            values[name] = value
    if missing := registry.list_missing(platform, values):
        raise Refused(f"{platform} also needs {', '.join(missing)}; nothing was changed")
    return values


def _list_alternatives(platform: str, name: str) -> set[str]:
    """Return the names of the settings of a platform of which one can be given instead of the setting `name`."""
    return {other for names in registry.PLATFORMS[platform].needs if name in names for other in names} - {
        name
    }


def _ask_value(name: str, setting: Setting, question: Question, value: str | None, asking: bool) -> str:
    """Return the checked value of the setting `name` of a platform. This is `value`, the value from the command
    line, or what the user answers if that is None. If the value is empty, return a generated one if the setting
    allows it, otherwise an empty string. If `asking` is False, a missing or invalid value raises an error."""
    if value is None and not asking and not setting.is_secret:
        raise WrongUsage(f"--{question.flag.replace('_', '-')} is missing")
    while True:
        typed = value
        if typed is None and setting.is_secret:
            typed = ask_hidden(f"{question.text}{' (empty: a new one)' if question.is_generated else ''}: ")
        elif typed is None:
            typed = ask_line(question.text)
        typed = typed.strip()
        if not typed:
            return secrets.token_urlsafe(32) if question.is_generated else ""
        try:
            return _check_answer(setting, question, typed)
        except ValueError:
            problem = f"it must be {question.expected or setting.kind.expected}"
            if not asking:
                raise Refused(f"{name}: {problem}; nothing was changed") from None
            print_lines([f"Invalid value: {problem}."])


def _check_answer(setting: Setting, question: Question, text: str) -> str:
    if question.pattern is not None and not re.fullmatch(question.pattern, text):
        raise ValueError
    return str(setting.kind.read(text))


def _try(platform: str, values: dict[str, str], asking: bool) -> None:
    platform_settings = read_gateway_settings().platforms.get(platform)
    if platform_settings is not None and "base_url" in platform_settings.more:
        values = {**values, "base_url": platform_settings.more["base_url"]}
    try:
        name = check_connection(platform, values)
    except Refused as problem:
        if not asking:
            raise Refused(f"{problem}; nothing was changed (--no-test keeps it anyway)") from None
        print_error(str(problem))
        if not confirm("Keep it anyway?"):
            raise Refused("cancelled; nothing was changed") from None
        return
    if name is not None:
        print_lines([f"Connected. The bot is {make_printable(name)}."])


# ---------------------------------------------------------------- saving


def _save(platform: str, values: dict[str, str]) -> None:
    """Write `values`, the settings of a platform by name: secrets to .env and all others to config.yaml. If the
    platform is disabled in config.yaml, enable it."""
    settings = registry.PLATFORMS[platform].settings
    plain = [name for name in values if not settings[name].is_secret]
    changes: list[tuple[str, object]] = [(f"platforms.{platform}.{name}", values[name]) for name in plain]
    if config_file.get_value(config_file.read(), f"platforms.{platform}.enabled") is False:
        changes.append((f"platforms.{platform}.enabled", True))
    if changes:
        config_file.change_all(changes)
        print_lines([f"Settings: {make_printable(str(config_file.get_path()))}"])
    for name in values.keys() - set(plain):
        variable = make_variable(platform, name)
        dotenv.change(variable, values[name])
        print_lines([f"{variable} is in {make_printable(str(dotenv.get_path()))}"])
        if os.environ.get(variable, "").strip() not in ("", values[name]):
            print_error(f"{variable} is set in the environment, which overrides it")


def _print_next_steps(platform: str, asking: bool) -> None:
    if how := registry.format_install_hint(platform):
        print_error(f"the platform is not installed yet; install it with: {how}")
    if not registry.PLATFORMS[platform].by_secret:
        if asking and confirm("Make a pairing code for yourself now, as the owner of this machine?"):
            code = open_pairings().make_code(platform, owner=True)
            print_lines(describe_code(code, platform, MINUTES, owner=True))
        else:
            print_lines(
                [
                    f"Nobody has access yet: create a code for yourself with `hermes gateway pair {platform} --owner`."
                ]
            )
    print_lines(
        ["Start it with `hermes gateway run`; `hermes gateway install` runs it as a systemd service."]
    )


# ---------------------------------------------------------------- connection test


def check_connection(platform: str, values: Mapping[str, str]) -> str | None:
    """Test the connection to a platform with the settings `values`. Return the bot's name on the platform, or
    None if the platform has no such test.

    If the test fails, raise `Refused` with the reason. The reason does not contain the secret.
    """
    identify = registry.PLATFORMS[platform].identify
    try:
        return identify(values, _fetch_json) if identify else None
    except errors.BadConfig as problem:
        raise Refused(str(problem)) from None


def _fetch_json(address: str, service: str, token: str | None = None) -> dict[str, Any]:
    """Fetch a JSON document from a platform. Errors do not contain the address, because it may contain the
    bot's token."""
    from http.client import HTTPException
    from urllib import error, request

    from hermes.agent.models.endpoints import is_local, make_no_redirect_handler

    proxies = request.ProxyHandler({} if is_local(address) else None)
    headers = {"User-Agent": "hermes", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        query = request.Request(address, headers=headers)
        with request.build_opener(proxies, make_no_redirect_handler()).open(
            query, timeout=PATIENCE_S
        ) as answer:
            content = json.loads(answer.read(1_000_000))
    except error.HTTPError as problem:
        problem.close()
        if problem.code in (401, 403, 404):
            raise Refused(f"{service} rejects the secret ({problem.code})") from None
        raise Refused(f"{service} returned an error ({problem.code})") from None
    except (OSError, HTTPException) as problem:
        raise Refused(f"{service} cannot be reached: {_describe_reason(problem)}") from None
    except ValueError:
        raise Refused(f"{service} returned an unexpected answer") from None
    return content if isinstance(content, dict) else {}


def _describe_reason(problem: Exception) -> str:
    reason = getattr(problem, "reason", problem)
    return (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__


# ---------------------------------------------------------------- the systemd unit


def _describe_installation() -> list[str]:
    return [
        f"Save it as ~/.config/systemd/user/{UNIT_NAME}, then:",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {UNIT_NAME}",
        "loginctl enable-linger   # keeps it running when you are not logged in",
    ]
