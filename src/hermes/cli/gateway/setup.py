"""`hermes gateway setup`: a platform is chosen, its secret asked for and tried out, and both are written down."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes import errors, home
from hermes.cli.command import Words, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.gateway.pair import describe_code, open_pairings
from hermes.cli.io.output import confirm, print_details, print_error, print_lines
from hermes.cli.io.prompts import ask_choice, ask_hidden, ask_line
from hermes.config import config_file, dotenv
from hermes.config.declarations import Question, Setting, make_variable
from hermes.gateway import registry
from hermes.gateway.inbound.pairing import MINUTES
from hermes.gateway.settings import GatewaySettings, read_gateway_settings
from hermes.session_kinds import canonical_source
from hermes.text import make_printable

PATIENCE_S = 15
UNIT_NAME = "hermes-gateway.service"
SPARE_SECONDS = 15
"""How much longer than the drain the system waits before it kills."""

# What is forbidden here, is so for the commands that an owner's agent runs, too: sudo, above all.
UNIT = """\
[Unit]
Description=Hermes gateway
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStart={command}
Environment={variable}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
KillSignal=SIGTERM
KillMode=mixed
TimeoutStopSec={seconds}
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
SECRET_HELP = "its secret; left out, a line of stdin or asked for"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=set_up_platform)
    add = parser.add_argument
    add("--platform", type=parse_text, metavar="P", help=f"one of {', '.join(registry.PLATFORMS)}")
    for flag, (metavar, help_text) in list_flags().items():
        add(f"--{flag.replace('_', '-')}", type=parse_text, metavar=metavar, help=help_text)
    add("--no-test", action="store_true", help="do not try the secret out")
    add("--systemd", action="store_true", help="print a unit that runs the gateway, and do nothing else")


def list_flags() -> dict[str, tuple[str, str]]:
    """The flags that answer the questions of platforms, each with its metavar and help."""
    flags = {"token": ("T", SECRET_HELP)}
    for name, platform in registry.PLATFORMS.items():
        for setting, question in _list_questions(name).values():
            flags.setdefault(question.flag, (question.metavar, f"{platform.title}: {setting.meaning}"))
    return flags


def _list_questions(platform: str) -> dict[str, tuple[Setting, Question]]:
    """The settings that are asked for, by their names."""
    settings = registry.PLATFORMS[platform].settings
    return {name: (setting, setting.question) for name, setting in settings.items() if setting.question}


def set_up_platform(arguments: argparse.Namespace) -> int:
    if arguments.systemd:
        print_lines(_format_unit(read_gateway_settings()))
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


# ---------------------------------------------------------------- what it is told


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
    """The other settings of which one is enough."""
    return {other for names in registry.PLATFORMS[platform].needs if name in names for other in names} - {
        name
    }


def _ask_value(name: str, setting: Setting, question: Question, value: str | None, asking: bool) -> str:
    """What was given, or typed; a new one if there is none and it can be made up."""
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
            print_lines([f"That cannot be right: {problem}."])


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
        print_lines([f"It works: the bot is {make_printable(name)}."])


# ---------------------------------------------------------------- written down


def _save(platform: str, values: dict[str, str]) -> None:
    """Secrets into .env, everything else into config.yaml, where a platform that was turned off is turned on."""
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
            print_error(f"{variable} is set in the environment, which wins over it")


def _print_next_steps(platform: str, asking: bool) -> None:
    if how := registry.format_install_hint(platform):
        print_error(f"it is not installed yet; get it with: {how}")
    if not registry.PLATFORMS[platform].by_secret:
        if asking and confirm(
            "Make a code now with which you let yourself in, as the owner of this machine?"
        ):
            code = open_pairings().make_code(platform, owner=True)
            print_lines(describe_code(code, platform, MINUTES, owner=True))
        else:
            print_lines(
                [f"Nobody is let in by this: `hermes gateway pair {platform} --owner` makes a code for you."]
            )
    print_lines(
        ["`hermes gateway run` connects it; `hermes gateway setup --systemd` prints a unit that does."]
    )


# ---------------------------------------------------------------- asking the platform


def check_connection(platform: str, values: Mapping[str, str]) -> str | None:
    """Who we are there; None where nobody can be asked. `Refused` says why it does not work, without the secret."""
    identify = registry.PLATFORMS[platform].identify
    try:
        return identify(values, _fetch_json) if identify else None
    except errors.BadConfig as problem:
        raise Refused(str(problem)) from None


def _fetch_json(address: str, service: str, token: str | None = None) -> dict[str, Any]:
    """What an address answers. Nothing that goes wrong is told with the address: the token may be in it."""
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
            raise Refused(f"{service} does not take it ({problem.code})") from None
        raise Refused(f"{service} answers with an error ({problem.code})") from None
    except (OSError, HTTPException) as problem:
        raise Refused(f"{service} is out of reach: {_describe_reason(problem)}") from None
    except ValueError:
        raise Refused(f"{service} does not answer as it should") from None
    return content if isinstance(content, dict) else {}


def _describe_reason(problem: Exception) -> str:
    reason = getattr(problem, "reason", problem)
    return (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__


# ---------------------------------------------------------------- the systemd unit


def _format_unit(settings: GatewaySettings) -> list[str]:
    seconds = int(settings.drain_seconds) + SPARE_SECONDS
    where = home.get_hermes_home().absolute()
    text = UNIT.format(
        command=" ".join(_quote(word.replace("$", "$$")) for word in (*_find_program(), "gateway", "run")),
        variable=_quote(f"HERMES_HOME={where}"),
        seconds=seconds,
    )
    return text.splitlines()


def _describe_installation() -> list[str]:
    return [
        f"Put it into ~/.config/systemd/user/{UNIT_NAME}, then:",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {UNIT_NAME}",
        "loginctl enable-linger   # so that it runs when you are not logged in",
    ]


def _find_program() -> list[str]:
    """This very command, by its full path."""
    started = Path(sys.argv[0])
    if started.name == "hermes" and started.is_absolute() and os.access(started, os.X_OK):
        return [str(started)]
    beside = Path(sys.executable).with_name("hermes")
    if beside.exists():
        return [str(beside)]
    found = shutil.which("hermes")
    return [str(Path(found).absolute())] if found else [sys.executable, "-P", "-m", "hermes.cli.main"]


def _quote(word: str) -> str:
    """As systemd reads it: `%` is its own."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"' if any(char in " '\"\t;\\" for char in word) else word
