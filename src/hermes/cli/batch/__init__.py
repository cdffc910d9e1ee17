"""`hermes batch`: send many prompts from a file to the agent, follow the progress of this batch, and read its
results.

This folder owns the arguments and the output of these commands. It imports `hermes.jobs.batch`, but no other
command.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

COMMANDS = {
    "run": Command("hermes.cli.batch.run:define_run", "answer the prompts of a file", Access.CHANGES),
    "status": Command("hermes.cli.batch.report:define_status", "show how far a run is", Access.READS),
    "results": Command("hermes.cli.batch.report:define_results", "list the results of a run", Access.READS),
    "retry-failed": Command(
        "hermes.cli.batch.run:define_retry", "try the failed prompts of a run again", Access.CHANGES
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
