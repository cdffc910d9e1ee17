"""`hermes sessions prune`: ended conversations that nobody has used for long go for good, after a look at them."""

from __future__ import annotations

import argparse
from typing import Any

from hermes import clock
from hermes.cli.command import DONE, Words, days, takes_dry_run, takes_store, takes_yes
from hermes.cli.filters import selection, takes_selection
from hermes.cli.io.output import say, size_of
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import opened, sessions_folder
from hermes.text import format_count, make_printable

SHOWN = 5
"""Conversations named before asking: enough to see that a filter was wrong."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, prune)
    parser.add_argument(
        "--older-than", type=days, default=90.0, metavar="DAYS", help="not used for so many days (90)"
    )
    takes_selection(parser)
    takes_dry_run(parser)
    takes_yes(parser)


def prune(arguments: argparse.Namespace) -> int:
    only = selection(arguments)
    with opened(arguments) as db:
        rows = db.list_prune_candidates(arguments.older_than, only=only)
        if not rows:
            unused = format_count(arguments.older_than, "day")
            say([f"Nothing to prune: no ended conversation was unused for {unused}."])
            return DONE
        say(_preview(rows, db.text_bytes(row["id"] for row in rows)))
        if arguments.dry_run:
            say(["Nothing was deleted."])
            return DONE
        agree(f"Delete {format_count(len(rows), 'session')} for good?", yes=arguments.yes)
        gone = db.prune_sessions(arguments.older_than, sessions_dir=sessions_folder(arguments), only=only)
    say([f"Pruned {format_count(gone, 'session')}."])
    return DONE


def _preview(rows: list[dict[str, Any]], size: int) -> list[str]:
    """How many, from when to when, how large, and the first of them."""
    conversations = {row["root_id"]: row for row in rows}  # each by its last session
    used = clock.filter_times(row["last_active"] or row["started_at"] for row in conversations.values())
    messages = sum(row["message_count"] or 0 for row in rows)
    counts = (
        format_count(len(conversations), "conversation"),
        format_count(len(rows), "session"),
        format_count(messages, "message"),
        size_of(size),
    )
    told = [", ".join(counts)]
    if used:
        told.append(f"last used from {clock.format_day(min(used))} to {clock.format_day(max(used))}")
    for row in list(conversations.values())[:SHOWN]:
        name = make_printable(row["title"] or row["preview"] or "—", width_limit=50)
        told.append(
            f"  {clock.format_day(row['last_active'] or row['started_at'])}  {make_printable(row['id'])}  {name}"
        )
    if len(conversations) > SHOWN:
        told.append(f"  ... and {len(conversations) - SHOWN} more")
    return told
