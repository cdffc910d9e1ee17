"""`hermes audit`: show the entries of `<home>/audit.log`. They record changes of settings, keys and access,
and the people who were admitted, refused or blocked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from time import sleep
from typing import Any

from hermes import audit_log
from hermes.cli.command import Words, add_json_option, parse_row_count
from hermes.cli.exit_codes import DONE
from hermes.cli.io.json_fields import select_fields
from hermes.cli.io.output import print_json, print_lines
from hermes.text import escape_json, make_printable

LIMIT = 50
LOOK_EVERY_S = 0.25


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_audit)
    parser.add_argument(
        "--limit",
        type=parse_row_count,
        default=LIMIT,
        metavar="N",
        help=f"print the newest N entries ({LIMIT})",
    )
    parser.add_argument("--follow", action="store_true", help="also print new entries, until Ctrl-C")
    add_json_option(parser, ("time", "action", "details", "pid", "by_tool", "tty"))


def show_audit(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(arguments)
    entries = audit_log.read(arguments.limit)
    if arguments.json:
        print_json(entries, arguments.json)
    elif not entries:
        print_lines([f"Nothing is recorded in {make_printable(str(audit_log.get_path()))} yet."])
    else:
        print_lines(make_printable(format_entry(entry)) for entry in entries)
    return DONE


def _follow(arguments: argparse.Namespace) -> int:
    """Print the newest entries of the audit log, then each entry that is added later, until the user
    interrupts. With `--json`, each entry is printed on one line."""
    following = audit_log.follow()
    next(following)  # start to follow now, so that no entry is missed between the two reads
    first: Iterator[dict[str, Any] | None] = iter(audit_log.read(arguments.limit))
    with suppress(KeyboardInterrupt):
        for entry in chain(first, following):
            if entry is None:
                sleep(LOOK_EVERY_S)
            elif arguments.json:
                print_lines([escape_json(json.dumps(select_fields(entry, arguments.json)))])
            else:
                print_lines([make_printable(format_entry(entry))])
    return DONE


def format_entry(entry: dict[str, Any]) -> str:
    """Format an entry of the audit log as one line: the time, the action, its details, and the process that
    made the change."""
    details = entry.get("details")
    pairs = details.items() if isinstance(details, dict) else ()
    words = [str(entry.get("time", "?")), str(entry.get("action", "?"))]
    words += [f"{name}={value}" for name, value in pairs if value is not None]
    origin = [f"process {entry.get('pid', '?')}"]
    if entry.get("tty"):
        origin.append(str(entry["tty"]))
    if entry.get("by_tool"):
        origin.append("started by a tool")
    return f"{'  '.join(words)}  ({', '.join(origin)})"
