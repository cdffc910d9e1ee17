"""`hermes insights`: the report as text, as JSON, or as a page with charts.

This folder owns the layout of the report in a terminal. It imports `hermes.insights`, but no other command.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hermes.cli.command import Words, add_json_option, add_store_option, parse_row_count
from hermes.cli.exit_codes import DONE, Refused, WrongUsage, suggest_force
from hermes.cli.filters import add_source_option
from hermes.cli.io.output import get_terminal_width, print_document, print_json, print_lines
from hermes.cli.store_access import get_store_path, open_store
from hermes.export.output_file import OutputFiles, Replace, refuse_store_files
from hermes.text import make_printable

JSON_FIELDS = (
    "days", "source_filter", "generated_at", "empty", "overview", "models", "platforms", "tools", "skills",
    "activity", "top_sessions", "costs", "conversations", "daily", "active_time",
)  # fmt: skip
STDOUT = "-"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, show_insights)
    parser.add_argument(
        "--days",
        type=parse_row_count,
        default=30,
        metavar="N",
        help="sessions started in the last N days (30)",
    )
    add_source_option(parser)
    add_json_option(parser, JSON_FIELDS)
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a self-contained page with charts; - is stdout",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite any FILE; an earlier page is always replaced and kept as FILE~",
    )


def show_insights(arguments: argparse.Namespace) -> int:
    from hermes.insights import InsightsEngine

    if arguments.json and arguments.html is not None:
        raise WrongUsage("--json and --html are two forms of the report; choose one")
    if arguments.html is not None and str(arguments.html) != STDOUT:
        refuse_store_files(get_store_path(arguments), arguments.html)
    sources = arguments.source
    source = sources[0] if sources and len(sources) == 1 else sources
    with open_store(arguments) as db:
        report = InsightsEngine(db).generate(arguments.days, source)
    if arguments.json:
        print_json(report, arguments.json)
    elif arguments.html is not None:
        _write_page(report, arguments.html, arguments.force)
    else:
        from hermes.cli.insights.report_lines import format_report

        print_lines(format_report(report, get_terminal_width()))
    return DONE


def _write_page(report: dict[str, Any], file: Path, force: bool) -> None:
    from hermes.insights.html_report import render_page

    if str(file) == STDOUT:
        print_document(render_page(report))
        return
    if file.is_dir():
        raise Refused(f"'{file}' is a directory; name a file")
    replace = Replace.ANYTHING if force else Replace.EXPORTS
    with suggest_force(), OutputFiles(replace) as files, files.open(file) as stream:
        stream.write(render_page(report).encode())
    backup_lines = [f"Kept the previous page as {make_printable(backup.name)}" for backup in files.backups]
    print_lines([f"Wrote {make_printable(str(file))}", *backup_lines])
