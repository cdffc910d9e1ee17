"""`hermes sessions prune | thin`: delete old unused conversations, or shorten their large tool output.

Both commands show what they would do and ask before doing it. Thinning does not change the messages of people
and of the agent.
"""

from __future__ import annotations

import argparse
from typing import Any

from hermes import clock
from hermes.cli.command import (
    Words,
    add_dry_run_option,
    add_store_option,
    add_yes_option,
    parse_days,
    parse_row_count,
)
from hermes.cli.exit_codes import DONE
from hermes.cli.filters import add_selection_options, make_selection, report_unknown
from hermes.cli.io.output import print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.store_access import get_sessions_folder, open_store
from hermes.text import format_count, format_size, make_printable

SHOWN = 5
"""The number of conversations that are listed before the question, so that the user notices a wrong
filter."""


def define_prune(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, prune_sessions)
    parser.add_argument(
        "--older-than", type=parse_days, default=90.0, metavar="DAYS", help="not used for DAYS days (90)"
    )
    add_selection_options(parser)
    add_dry_run_option(parser)
    add_yes_option(parser)


def prune_sessions(arguments: argparse.Namespace) -> int:
    only = make_selection(arguments)
    with open_store(arguments) as db:
        report_unknown(db, arguments.source, workspace=arguments.workspace)
        rows = db.list_prune_candidates(arguments.older_than, only=only)
        if not rows:
            unused = format_count(arguments.older_than, "day")
            print_lines([f"Nothing to prune: no ended conversation has been unused for {unused}."])
            return DONE
        print_lines(_describe_candidates(rows, db.text_bytes(row["id"] for row in rows)))
        if arguments.dry_run:
            print_lines(["Nothing was deleted."])
            return DONE
        require_consent(f"Delete {format_count(len(rows), 'session')} permanently?", yes=arguments.yes)
        deleted = db.prune_sessions(
            arguments.older_than, sessions_dir=get_sessions_folder(arguments), only=only
        )
    print_lines([f"Pruned {format_count(deleted, 'session')}."])
    return DONE


def _describe_candidates(rows: list[dict[str, Any]], size: int) -> list[str]:
    """Describe the sessions that would be deleted: their number, dates and size, and the first few of them."""
    conversations = {row["root_id"]: row for row in rows}  # the last session of each
    used = clock.filter_times(row["last_active"] or row["started_at"] for row in conversations.values())
    messages = sum(row["message_count"] or 0 for row in rows)
    counts = (
        format_count(len(conversations), "conversation"),
        format_count(len(rows), "session"),
        format_count(messages, "message"),
        format_size(size),
    )
    lines = [", ".join(counts)]
    if used:
        lines.append(f"last used from {clock.format_day(min(used))} to {clock.format_day(max(used))}")
    for row in list(conversations.values())[:SHOWN]:
        name = make_printable(row["title"] or row["preview"] or "—", width_limit=50)
        lines.append(
            f"  {clock.format_day(row['last_active'] or row['started_at'])}  {make_printable(row['id'])}  {name}"
        )
    if len(conversations) > SHOWN:
        lines.append(f"  ... and {len(conversations) - SHOWN} more")
    return lines


def define_thin(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, thin_sessions)
    parser.add_argument(
        "--older-than",
        type=parse_days,
        default=90.0,
        metavar="DAYS",
        help="conversations not used for DAYS days (90)",
    )
    parser.add_argument(
        "--larger-than",
        type=parse_row_count,
        default=16_384,
        metavar="BYTES",
        help="only outputs larger than this (16384)",
    )
    add_dry_run_option(parser)
    add_yes_option(parser)


def thin_sessions(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        found = db.thin(arguments.older_than, arguments.larger_than, dry_run=True)
        summary = (
            f"{format_count(found.messages, 'tool output')} in {format_count(found.sessions, 'session')}"
        )
        if not found.messages:
            print_lines(["Nothing to thin."])
            return DONE
        if arguments.dry_run:
            print_lines([f"Would free {format_size(found.bytes)}: {summary}. Nothing was changed."])
            return DONE
        question = (
            f"Cut {summary} to their beginning and end ({format_size(found.bytes)})? This cannot be undone."
        )
        require_consent(question, yes=arguments.yes)
        done = db.thin(arguments.older_than, arguments.larger_than)
    print_lines(
        [
            f"Freed {format_size(done.bytes)}: {format_count(done.messages, 'tool output')} cut to beginning and end."
        ]
    )
    return DONE
