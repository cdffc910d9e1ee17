"""The first time: what this is, what was found on this machine, and a choice. Nothing is chosen in silence."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from hermes.agent.models.endpoints import PROVIDERS, find_servers
from hermes.cli.io.output import apply_style, print_lines
from hermes.cli.io.prompts import ask_choice
from hermes.config import dotenv
from hermes.config.settings import read_settings
from hermes.text import format_count

Main = Callable[[Sequence[str]], int]
"""Runs the whole command with other words."""
WHAT = "Hermes talks with an AI model and keeps every conversation: found again, resumed, yours alone."


def is_due(arguments: argparse.Namespace) -> bool:
    """Whether nobody has said yet which model answers."""
    return arguments.model is None and read_settings().model.default is None


def show_demo(main: Main) -> int:
    """Without a terminal nobody can choose: then the product shows itself."""
    from hermes.cli.demo import run_demo

    return run_demo(argparse.Namespace(keep=None, main=main))


def choose(main: Main) -> bool:
    """Let the person choose; whether the chat begins now."""
    print_lines(
        [apply_style(WHAT, "bold"), "", f"No model is set up yet. Found here: {_describe_found()}.", ""]
    )
    chosen = ask_choice(
        "Number",
        [
            "set up a model: one on this machine, or one with a key (hermes setup)",
            "the offline model: it needs nothing, but is no language model; it lists, searches and quotes",
            "first see it all on sample conversations (hermes demo)",
        ],
    )
    if chosen == 2:
        show_demo(main)
        return False
    from hermes.cli.setup import run_setup

    offline = chosen == 1
    run_setup(argparse.Namespace(offline=offline, base_url=None, model=None, key_env=None, no_test=False))
    print_lines([""])
    return True


def _describe_found() -> str:
    servers = [
        f"{server.title} with {format_count(len(server.models), 'model')}" for server in find_servers()
    ]
    keys = [f"a key in {provider.key_env}" for provider in PROVIDERS if dotenv.get_variable(provider.key_env)]
    return ", ".join([*servers, *keys]) or "no server on this machine, and no key in the environment"
