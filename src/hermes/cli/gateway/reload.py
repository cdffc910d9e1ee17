"""`hermes gateway reload`: apply changed settings and keys to the running gateway. Exit with 1 if the gateway
refuses them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from hermes import errors
from hermes.cli.command import Words, add_json_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.gateway.ops.requests import ask_gateway
from hermes.text import make_printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=reload_gateway)
    add_json_option(parser, ("changed", "platforms", "restart", "refused"))


def reload_gateway(arguments: argparse.Namespace) -> int:
    try:
        report = ask_gateway("reload")
    except errors.HermesError as problem:
        raise Refused(f"{problem}; the old settings stay in force") from None
    if report is None:
        raise Refused("the gateway is not running; start it with `hermes gateway run`")
    if arguments.json:
        print_json(report, arguments.json)
    else:
        print_lines(make_printable(line) for line in _format_report(report))
    for name, why in report["refused"].items():
        print_error(f"{name} refused its new settings: {why}")
    return REFUSED if report["refused"] else DONE


def _format_report(report: dict[str, Any]) -> Iterator[str]:
    platforms = {name: state for name, state in report["platforms"].items() if state != "unchanged"}
    if not (report["changed"] or report["restart"] or platforms):
        yield "Nothing changed."
        return
    yield "Reloaded."
    yield from (f"  {line}" for line in report["changed"])
    yield from (f"  {line} (takes effect after a restart)" for line in report["restart"])
    yield from (f"{name}: {state}" for name, state in platforms.items())
