"""`hermes insights`: what was done in the last days, as a report, as JSON, or as a page with charts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hermes.cli.command import DONE, Refused, Words, WrongUsage, row_count, takes_json, takes_store
from hermes.cli.filters import takes_sources
from hermes.cli.io.output import say, say_document, say_json, terminal_width
from hermes.cli.opened_store import opened, place, refuse_own
from hermes.text import make_printable

STDOUT = "-"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, insights)
    parser.add_argument(
        "--days", type=row_count, default=30, metavar="N", help="sessions begun in the last N days (30)"
    )
    takes_sources(parser)
    takes_json(parser)
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page with charts that needs no network; - is stdout",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite FILE; an earlier page is replaced without it and kept as FILE~",
    )


def insights(arguments: argparse.Namespace) -> int:
    from hermes.insights import InsightsEngine

    if arguments.json and arguments.html is not None:
        raise WrongUsage("--json and --html are two forms of the report; choose one")
    if arguments.html is not None and str(arguments.html) != STDOUT:
        refuse_own(place(arguments), arguments.html)
    asked = arguments.source
    source = asked[0] if asked and len(asked) == 1 else asked
    with opened(arguments) as db:
        report = InsightsEngine(db).generate(arguments.days, source)
    if arguments.json:
        say_json(report)
    elif arguments.html is not None:
        _write_page(report, arguments.html, arguments.force)
    else:
        from hermes.cli.insights.report_lines import lines

        say(lines(report, terminal_width()))
    return DONE


def _write_page(report: dict[str, Any], file: Path, force: bool) -> None:
    from hermes.cli.io.output_file import output_file
    from hermes.insights.html_report import render_page

    if str(file) == STDOUT:
        say_document(render_page(report))
        return
    if file.is_dir():
        raise Refused(f"'{file}' is a directory; name a file")
    with output_file(file, force=force) as output:
        output.stream.write(render_page(report).encode())
    kept = [] if output.kept is None else [f"Kept the previous page as {make_printable(output.kept.name)}"]
    say([f"Wrote {make_printable(str(file))}", *kept])
