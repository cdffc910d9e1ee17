"""`hermes sessions scrub`: remove a secret from all stored data.

The secret is typed at a prompt without echo or piped in. It is never an argument, because other programs and
the shell's history would see it.
"""

from __future__ import annotations

import argparse
import sys

from hermes.cli.command import Words, add_dry_run_option, add_store_option, add_yes_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.io.output import print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.store_access import open_store, require_store
from hermes.text import make_printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, scrub_text)
    add_dry_run_option(parser)
    add_yes_option(parser)


def scrub_text(arguments: argparse.Namespace) -> int:
    require_store(arguments)
    secret = _ask_text()
    with open_store(arguments) as db:
        found = db.scrub(secret, dry_run=True)
        print_lines(make_printable(line) for line in found.lines())
        if arguments.dry_run or not found.occurrences:
            return DONE
        if not arguments.yes and not sys.stdin.isatty():
            raise Refused("Nothing was removed: a secret from stdin needs --yes.")
        require_consent("Remove it everywhere? This cannot be undone.", yes=arguments.yes)
        done = db.scrub(secret)
    print_lines(make_printable(line) for line in done.lines())
    return DONE if done.ok else REFUSED


def _ask_text() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass("The secret (it is not shown): ")
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise Refused("the secret is empty: type it at the prompt, or pipe it in")
    return secret
