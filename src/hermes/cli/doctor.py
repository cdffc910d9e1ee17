"""`hermes doctor`: how the store and its surroundings are, and what to do about what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes import config, environment, home
from hermes.cli.command import DONE, REFUSED, Words, takes_json, takes_store
from hermes.cli.output import say, say_json
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.store.findings import Finding


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, doctor)
    takes_json(parser)
    parser.add_argument("--deep", action="store_true", help="also read every page and every row")


def doctor(arguments: argparse.Namespace) -> int:
    from hermes.sessiondb import SessionDB

    found = SessionDB.diagnose_file(arguments.store or home.default_db_path(), deep=arguments.deep)
    if arguments.store is None:
        found = found._replace(findings=(*found.findings, *_look_at_home()))
    if arguments.json:
        findings = [finding._asdict() for finding in found.findings]
        say_json({"path": str(found.path), "ok": found.ok, "findings": findings})
    else:
        say(printable(line) for line in found.lines())
    return DONE if found.ok else REFUSED


def _look_at_home() -> Iterator[Finding]:
    """What is wrong beside the store: who is let in, and who can read the keys."""
    from hermes.gateway.pairing import Pairings
    from hermes.gateway.status_file import gateway_folder, read_status
    from hermes.store.findings import Finding

    status = read_status()
    running = status.problem if status is not None and status.is_running else None
    if problem := running or Pairings(gateway_folder()).check():
        yield Finding("error", f"{problem}; nobody new is let in")
    for file in (config.path(), environment.path()):
        if home.loose(str(file)):
            yield Finding("warning", f"others can read {file}", f"chmod 600 {file}")
