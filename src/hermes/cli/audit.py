"""`hermes audit`: show the changes of settings, keys and people recorded in `<home>/audit.log`."""

from __future__ import annotations

import argparse
from typing import Any

from hermes import audit_log
from hermes.cli.command import Words, add_json_option, parse_row_count
from hermes.cli.exit_codes import DONE
from hermes.cli.io.output import print_json, print_lines
from hermes.text import make_printable

LIMIT = 50


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_audit)
    parser.add_argument(
        "--limit", type=parse_row_count, default=LIMIT, metavar="N", help=f"how many of the newest ({LIMIT})"
    )
    add_json_option(parser, ("time", "action", "details", "pid", "by_tool", "tty"))


def show_audit(arguments: argparse.Namespace) -> int:
    entries = audit_log.read(arguments.limit)
    if arguments.json:
        print_json(entries, arguments.json)
    elif not entries:
        print_lines([f"Nothing is recorded in {make_printable(str(audit_log.get_path()))} yet."])
    else:
        print_lines(make_printable(format_entry(entry)) for entry in entries)
    return DONE


def format_entry(entry: dict[str, Any]) -> str:
    """Format an entry as one line: the time, the action, its details, and the process that made the change."""
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
