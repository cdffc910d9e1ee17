"""`hermes sessions scrub`: a secret that got into a conversation leaves everything that is kept.

It is typed at a prompt that does not show it, or piped in; never given as an argument, which other programs and the
shell's history would see.
"""

from __future__ import annotations

import argparse
import sys

from hermes.cli.command import DONE, REFUSED, Refused, Words, takes_dry_run, takes_store, takes_yes
from hermes.cli.io.output import say
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import existing, opened
from hermes.text import make_printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, scrub)
    takes_dry_run(parser)
    takes_yes(parser)


def scrub(arguments: argparse.Namespace) -> int:
    existing(arguments)
    secret = _asked_for()
    with opened(arguments) as db:
        found = db.scrub(secret, dry_run=True)
        say(make_printable(line) for line in found.lines())
        if arguments.dry_run or not found.occurrences:
            return DONE
        if not arguments.yes and not sys.stdin.isatty():
            raise Refused("Nothing was removed: piped in, it needs --yes.")
        agree("Remove it everywhere? There is no way back.", yes=arguments.yes)
        done = db.scrub(secret)
    say(make_printable(line) for line in done.lines())
    return DONE if done.ok else REFUSED


def _asked_for() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass("The secret (it is not shown): ")
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise Refused("no secret was given: type it at the prompt, or pipe it in")
    return secret
