"""`hermes cron`: make, list, change and run scheduled jobs, one module per group of sub-commands.

This folder owns the options and the display of jobs and runs. It imports `hermes.jobs`. It also imports the
gateway, which delivers the results of jobs to platforms. It imports no other command.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

HERE = "hermes.cli.cron"
COMMANDS = {
    "add": Command(f"{HERE}.definition:define_add", "make a job that runs at certain times", Access.PERSON),
    "list": Command(f"{HERE}.overview:define_list", "list the jobs and when they run next", Access.READS),
    "show": Command(f"{HERE}.overview:define_show", "show a job and its next five times", Access.READS),
    "pause": Command(f"{HERE}.state:define_pause", "stop running a job until it is resumed", Access.PERSON),
    "resume": Command(f"{HERE}.state:define_resume", "run a paused job again from now on", Access.PERSON),
    "run": Command(f"{HERE}.execution:define_run", "run a job now, and print the result", Access.PERSON),
    "edit": Command(
        f"{HERE}.definition:define_edit", "change a job with flags, or its file in an editor", Access.PERSON
    ),
    "remove": Command(
        f"{HERE}.state:define_remove", "delete a job and the record of its runs", Access.PERSON
    ),
    "runs": Command(f"{HERE}.history:define_runs", "list past runs and their outcome", Access.READS),
    "logs": Command(f"{HERE}.history:define_logs", "show what a run did and said", Access.READS),
    "tick": Command(
        f"{HERE}.execution:define_tick", "run everything that is due and exit, for system cron", Access.PERSON
    ),
    "daemon": Command(
        f"{HERE}.execution:define_daemon", "run jobs when they are due, without a gateway", Access.PERSON
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
