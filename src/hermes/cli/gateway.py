"""`hermes gateway`: the agent on chat platforms, a file for each thing that people do with it."""

from __future__ import annotations

import argparse

from hermes.cli.command import Command, Words, group

HERE = "hermes.cli.gateway"
COMMANDS = {
    "run": Command(f"{HERE}_run", "connect the platforms that are set up, and answer until told to end"),
    "status": Command(f"{HERE}_status", "see what is connected, who is let in, and when conversations reset"),
    "setup": Command(f"{HERE}_setup", "connect a platform: its secret, tried out and written down"),
    "pair": Command(f"{HERE}_pair", "make a one-time code that lets somebody in, or take somebody out again"),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    """Without another word it runs, with the same options."""
    group(parser, COMMANDS, words)
    if words is None or not words or words[0] not in COMMANDS:
        from hermes.cli import gateway_run

        gateway_run.define(parser, words)
