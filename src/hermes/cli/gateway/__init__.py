"""`hermes gateway`: run, set up, pair and watch the gateway, a module for each sub-command.

Owns the start of the program and the dialogs of its setup. Imports the gateway; no other command.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

HERE = "hermes.cli.gateway"
COMMANDS = {
    "run": Command(
        f"{HERE}.run", "connect the platforms that are set up, and answer until told to end", Access.PERSON
    ),
    "status": Command(
        f"{HERE}.status", "see what is connected, who is let in, and when conversations reset", Access.READS
    ),
    "setup": Command(
        f"{HERE}.setup",
        "connect a platform: its secret, tried out and written down",
        Access.PERSON,
        ("systemd",),
    ),
    "pair": Command(
        f"{HERE}.pair",
        "make a one-time code that lets somebody in, or take somebody out again",
        Access.PERSON,
        ("list",),
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    """Without another word it runs, with the same options."""
    add_commands(parser, COMMANDS, words)
    if words is None or not words or words[0] not in COMMANDS:
        from hermes.cli.gateway import run

        run.define(parser, words)
