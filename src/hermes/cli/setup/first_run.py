"""The first time: what this is, what was found on this machine, and a choice. Nothing is chosen in silence."""

from __future__ import annotations

import argparse

from hermes.agent.models.endpoints import PROVIDERS, find_servers
from hermes.cli.io.output import say, styled
from hermes.cli.io.prompts import choice
from hermes.config import dotenv
from hermes.config.settings import read_settings
from hermes.text import format_count

WHAT = "Hermes talks with an AI model and keeps every conversation: found again, resumed, yours alone."


def is_due(arguments: argparse.Namespace) -> bool:
    """Whether nobody has said yet which model answers."""
    return arguments.model is None and read_settings().model.default is None


def show_demo() -> int:
    """Without a terminal nobody can choose: then the product shows itself."""
    from hermes.cli.demo import demo

    return demo(argparse.Namespace(keep=None))


def choose() -> bool:
    """Let the person choose; whether the chat begins now."""
    say([styled(WHAT, "bold"), "", f"No model is set up yet. Found here: {_found()}.", ""])
    chosen = choice(
        "Number",
        [
            "set up a model: one on this machine, or one with a key (hermes setup)",
            "the offline model: it needs nothing, but is no language model; it lists, searches and quotes",
            "first see it all on sample conversations (hermes demo)",
        ],
    )
    if chosen == 2:
        show_demo()
        return False
    from hermes.cli.setup import setup

    offline = chosen == 1
    setup(argparse.Namespace(offline=offline, base_url=None, model=None, key_env=None, no_test=False))
    say([""])
    return True


def _found() -> str:
    servers = [f"{one.title} with {format_count(len(one.models), 'model')}" for one in find_servers()]
    keys = [f"a key in {one.key_env}" for one in PROVIDERS if dotenv.get_variable(one.key_env)]
    return ", ".join([*servers, *keys]) or "no server on this machine, and no key in the environment"
