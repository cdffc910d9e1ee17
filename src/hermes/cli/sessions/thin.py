"""`hermes sessions thin`: large old tool output is cut to its ends; what people wrote and read stays whole."""

from __future__ import annotations

import argparse

from hermes.cli.command import DONE, Words, days, row_count, takes_dry_run, takes_store, takes_yes
from hermes.cli.io.output import say, size_of
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import opened
from hermes.text import format_count


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, thin)
    parser.add_argument(
        "--older-than",
        type=days,
        default=90.0,
        metavar="DAYS",
        help="of conversations not used for so many days (90)",
    )
    parser.add_argument(
        "--larger-than",
        type=row_count,
        default=16_384,
        metavar="BYTES",
        help="only larger bodies than this (16384)",
    )
    takes_dry_run(parser)
    takes_yes(parser)


def thin(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        found = db.thin(arguments.older_than, arguments.larger_than, dry_run=True)
        told = f"{format_count(found.messages, 'tool output')} in {format_count(found.sessions, 'session')}"
        if not found.messages:
            say(["Nothing to thin."])
            return DONE
        if arguments.dry_run:
            say([f"Would free {size_of(found.bytes)}: {told}. Nothing was changed."])
            return DONE
        question = f"Cut {told} to their beginning and end ({size_of(found.bytes)})? There is no way back."
        agree(question, yes=arguments.yes)
        done = db.thin(arguments.older_than, arguments.larger_than)
    say(
        [
            f"Freed {size_of(done.bytes)}: {format_count(done.messages, 'tool output')} cut to beginning and end."
        ]
    )
    return DONE
