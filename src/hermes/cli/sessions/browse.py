"""`hermes sessions browse`: choose a conversation on the whole screen, or by number where there is no screen."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import Refused, Words, row_count, takes_store
from hermes.cli.filters import takes_sources
from hermes.cli.io.columns import Column, fit
from hermes.cli.io.output import complain, say, terminal_width
from hermes.cli.io.prompts import CANCELLED
from hermes.cli.opened_store import opened
from hermes.cli.resume import resume
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

NUMBERED = 20
"""Conversations that the numbered list shows unless told otherwise."""
NAME_WIDTH, WHEN_WIDTH, SOURCE_WIDTH = 50, 10, 10
MISSING = "the full-screen browser is not installed; get it with: pip install 'hermes-sessions[tui]'"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, browse_sessions)
    takes_sources(parser)
    parser.add_argument(
        "--all", action="store_true", help="also jobs, subagents, tool sessions and the archive"
    )
    parser.add_argument(
        "--limit", type=row_count, metavar="N", help=f"at most this many (all; {NUMBERED} without a terminal)"
    )


def browse_sessions(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        chosen = choose(db, arguments.source, arguments.all, arguments.limit)
    return finish(chosen, arguments)


def choose(
    db: SessionDB,
    sources: list[str] | None = None,
    everything: bool = False,
    limit: int | None = None,
    query: str = "",
    at: tuple[str, int | None] | None = None,
) -> str | None:
    """The id of the session that a person chose; None if they chose none."""
    if not has_screen():
        return by_number(db, sources, everything, limit or NUMBERED)
    if find_spec("textual") is None:
        complain(MISSING)
        return by_number(db, sources, everything, limit or NUMBERED)
    from hermes.browser import browse

    return browse(db, query=query, at=at, sources=sources, everything=everything, limit=limit)


def finish(chosen: str | None, arguments: argparse.Namespace) -> int:
    """What happens after a choice, or without one."""
    if chosen is None:
        raise Refused(CANCELLED)
    return resume(chosen, arguments.store)


def has_screen() -> bool:
    """Textual draws on stderr, so that has to be the terminal, too."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"


def by_number(db: SessionDB, sources: list[str] | None, everything: bool, limit: int) -> str | None:
    """Print a numbered list and read a number; the session, or None at the end of input or an empty line."""
    page = db.list_conversations(limit=limit, sources=sources, include_hidden=everything, pinned_first=True)
    if not page.rows:
        raise Refused("No sessions found.")
    say(_numbered(page.rows))
    while True:
        say([f"Number (1-{len(page.rows)}, nothing to cancel):"])
        if sys.stdin.isatty():
            from hermes.cli.io.keyboard import discard_earlier

            discard_earlier()
        answer = sys.stdin.readline().strip()
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer[:9]) <= len(page.rows):
            return str(page.rows[int(answer) - 1]["id"])
        complain(f"not a number from 1 to {len(page.rows)}: {answer[:40]}")


def _numbered(rows: list[dict[str, Any]]) -> Iterator[str]:
    now, digits = clock.now(), len(str(len(rows)))
    width = terminal_width()
    spare = 0 if width is None else width - digits - NAME_WIDTH - WHEN_WIDTH - SOURCE_WIDTH - 32
    name = Column("", max(20, NAME_WIDTH + spare), max(19, NAME_WIDTH + spare - 1))
    for number, row in enumerate(rows, 1):
        told = make_printable(row["title"] or row["preview"] or "—")
        when = Column("", WHEN_WIDTH)
        source = Column("", SOURCE_WIDTH, SOURCE_WIDTH - 1)
        yield (
            f"{number:>{digits}}. {fit(told, name)} {fit(clock.format_relative(row['last_active'], now), when)} "
            f"{fit(make_printable(row['source']), source)} {make_printable(row['id'])}"
        )
