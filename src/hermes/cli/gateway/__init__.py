"""`hermes gateway`: run, set up, pair and monitor the gateway, one module per sub-command.

This folder owns the start of the gateway process and the setup dialogs. It imports the gateway, but no other
command.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

HERE = "hermes.cli.gateway"
COMMANDS = {
    "run": Command(
        f"{HERE}.run", "connect the configured platforms and answer messages until stopped", Access.PERSON
    ),
    "status": Command(
        f"{HERE}.status",
        "show which platforms are connected, who has access, and when conversations reset",
        Access.READS,
    ),
    "reload": Command(
        f"{HERE}.reload",
        "apply changed settings and keys to the running gateway",
        Access.PERSON,
    ),
    "outbox": Command(
        f"{HERE}.outbox", "list, resend or drop messages that were not delivered", Access.READS
    ),
    "block": Command(
        f"{HERE}.block:define_block",
        "block a person, so that the gateway no longer answers them",
        Access.PERSON,
        ("list",),
    ),
    "unblock": Command(f"{HERE}.block:define_unblock", "remove the block of a person", Access.PERSON),
    "setup": Command(
        f"{HERE}.setup",
        "set up a platform: ask for its secret, test the connection and save",
        Access.PERSON,
        ("systemd",),
    ),
    "install": Command(
        f"{HERE}.install:define_install",
        "run the gateway as a systemd service, of this account or of the system",
        Access.PERSON,
        ("print",),
    ),
    "uninstall": Command(
        f"{HERE}.install:define_uninstall", "stop and remove the systemd service", Access.PERSON
    ),
    "pair": Command(
        f"{HERE}.pair",
        "create a one-time code that gives access, or revoke access",
        Access.PERSON,
        ("list",),
    ),
    "keys": Command(f"{HERE}.keys", "make, list, limit and revoke the keys of the API server", Access.READS),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    """Define the sub-commands. Without a sub-command, `hermes gateway` acts as `hermes gateway run` and
    accepts its options."""
    add_commands(parser, COMMANDS, words)
    if words is None or not words or words[0] not in COMMANDS:
        from hermes.cli.gateway import run

        run.define(parser, words)
