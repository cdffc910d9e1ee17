"""`hermes doctor`: how the store and its surroundings are, and what to do about what is wrong."""

from __future__ import annotations

import argparse

from hermes import home
from hermes.cli.command import DONE, REFUSED, Words, takes_json, takes_store
from hermes.cli.output import say, say_json
from hermes.text import printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, doctor)
    takes_json(parser)
    parser.add_argument("--deep", action="store_true", help="also read every page and every row")


def doctor(arguments: argparse.Namespace) -> int:
    from hermes.sessiondb import SessionDB

    found = SessionDB.diagnose_file(arguments.store or home.default_db_path(), deep=arguments.deep)
    if arguments.json:
        findings = [finding._asdict() for finding in found.findings]
        say_json({"path": str(found.path), "ok": found.ok, "findings": findings})
    else:
        say(printable(line) for line in found.lines())
    return DONE if found.ok else REFUSED
