"""`hermes sessions browse`: choose a conversation in the full-screen browser, or by number if there is no
screen."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import Words, add_store_option, parse_row_count
from hermes.cli.exit_codes import Refused
from hermes.cli.filters import add_source_option, add_workspace_option, describe_hidden
from hermes.cli.io.output import get_terminal_width, has_screen, print_error, print_lines
from hermes.cli.io.prompts import CANCELLED
from hermes.cli.io.text_columns import Column, fit_text
from hermes.cli.store_access import open_store
from hermes.config.extras import format_install
from hermes.store.sessions.listing import describe_job, group_by_job
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

NUMBERED = 20
"""Default length of the numbered list."""
NAME_WIDTH, WHEN_WIDTH, SOURCE_WIDTH = 50, 10, 10
CHAT = [sys.executable, "-P", "-m", "hermes.cli.main", "chat"]
"""The command line that starts the chat. `-P` keeps Python from importing modules of the working directory,
which may contain an unrelated folder `hermes`."""
NO_SCREEN = "the full-screen browser needs a terminal"
MISSING = "the full-screen browser is not installed; install it with: {}"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, browse_sessions)
    add_source_option(parser)
    parser.add_argument(
        "--all", action="store_true", help="also jobs, subagents, tool sessions and the archive"
    )
    parser.add_argument(
        "--limit",
        type=parse_row_count,
        metavar="N",
        help=f"at most this many (all; {NUMBERED} without a terminal)",
    )
    add_workspace_option(parser)


def browse_sessions(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        chosen = choose_session(
            db, arguments.source, arguments.all, arguments.limit, workspace=arguments.workspace
        )
    return resume_chosen(chosen, arguments)


def choose_session(
    db: SessionDB,
    sources: list[str] | None = None,
    everything: bool = False,
    limit: int | None = None,
    query: str = "",
    at: tuple[str, int | None] | None = None,
    workspace: str | None = None,
) -> str | None:
    """Let the user choose a session, in the browser or from a numbered list. Return the id of the chosen
    session, or None if none was chosen. The browser opens with the search `query`, and shows first the session
    and the message whose ids are in `at`."""
    if (obstacle := describe_obstacle()) is not None:
        if obstacle != NO_SCREEN:
            print_error(obstacle)
        return choose_by_number(db, sources, everything, limit or NUMBERED, workspace)
    from hermes.browser import browse

    return browse(
        db,
        query=query,
        at=at,
        sources=sources,
        everything=everything,
        limit=limit,
        workspace=workspace,
    )


def resume_chosen(chosen: str | None, arguments: argparse.Namespace) -> int:
    """Resume the session with the id `chosen`. Raise Refused if `chosen` is None, because the user chose none."""
    if chosen is None:
        raise Refused(CANCELLED)
    return _resume(chosen, arguments.store)


def _resume(session_id: str, store: Path | None) -> int:
    """Replace this process with a `hermes chat` process that continues the session."""
    print_lines([f"Resuming session: {make_printable(session_id)}"])
    elsewhere = [] if store is None else ["--store", str(store)]
    os.execv(CHAT[0], [*CHAT, f"--resume={session_id}", *elsewhere])


def describe_obstacle() -> str | None:
    """Return why the full-screen browser cannot be opened, or None if it can."""
    if not has_screen():
        return NO_SCREEN
    return MISSING.format(format_install("tui")) if find_spec("textual") is None else None


def choose_by_number(
    db: SessionDB, sources: list[str] | None, everything: bool, limit: int, workspace: str | None = None
) -> str | None:
    """Print a numbered list of conversations and read a number. Return the id of the chosen session, or None
    at the end of input or after an empty line."""
    page = db.list_conversations(
        limit=limit, sources=sources, include_hidden=everything, pinned_first=True, workspace=workspace
    )
    if not page.rows:
        if hidden := describe_hidden(page.hidden):
            raise Refused(f"No sessions found; {hidden} hidden, --all shows them.")
        is_filtered = sources is not None or workspace is not None
        raise Refused("No sessions found." if is_filtered else "No sessions yet. Start one with: hermes chat")
    others, jobs = group_by_job(page.rows)
    rows = [*others, *chain.from_iterable(jobs.values())]
    print_lines(_format_numbered(others, jobs))
    while True:
        print_lines([f"Number (1-{len(rows)}, nothing to cancel):"])
        if sys.stdin.isatty():
            from hermes.cli.io.keyboard import discard_typeahead

            discard_typeahead()
        answer = sys.stdin.readline().strip()
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer[:9]) <= len(rows):
            return str(rows[int(answer) - 1]["id"])
        print_error(f"not a number from 1 to {len(rows)}: {answer[:40]}")


def _format_numbered(others: list[Row], jobs: dict[str, list[Row]]) -> Iterator[str]:
    """Format the conversations of people first, then the runs of each scheduled job under its name."""
    digits, first = len(str(len(others) + sum(map(len, jobs.values())))), len(others) + 1
    yield from _format_rows(others, 1, digits)
    for job_id, runs in jobs.items():
        yield describe_job(job_id, len(runs))
        yield from _format_rows(runs, first, digits)
        first += len(runs)


def _format_rows(rows: list[Row], first: int, digits: int) -> Iterator[str]:
    now = clock.now()
    width = get_terminal_width()
    spare = 0 if width is None else width - digits - NAME_WIDTH - WHEN_WIDTH - SOURCE_WIDTH - 32
    name = Column("", max(20, NAME_WIDTH + spare), max(19, NAME_WIDTH + spare - 1))
    for number, row in enumerate(rows, first):
        label = make_printable(row["title"] or row["preview"] or "—")
        when = Column("", WHEN_WIDTH)
        source = Column("", SOURCE_WIDTH, SOURCE_WIDTH - 1)
        age = clock.format_relative(row["last_active"], now)
        yield (
            f"{number:>{digits}}. {fit_text(label, name)} {fit_text(age, when)} "
            f"{fit_text(make_printable(row['source']), source)} {make_printable(row['id'])}"
        )
