"""Arguments and flags that select conversations, shared by all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes import clock
from hermes.cli.command import parse_row_count, parse_source, parse_text
from hermes.cli.exit_codes import WrongUsage
from hermes.cli.io.output import print_error
from hermes.text import make_printable

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.selection import Selection

REASONS = {"child": "subagent"}
"""Display names of the reasons for which conversations are hidden. Other reasons are shown unchanged."""


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments with which a user names conversations. Also add the flag `--segment`, with which the
    arguments name single sessions instead."""
    parser.add_argument(
        "sessions",
        nargs="+",
        type=parse_text,
        metavar="ID",
        help="the conversations: ids, id prefixes or titles (in quotes)",
    )
    parser.add_argument(
        "--segment", action="store_true", help="only these sessions, not the conversations they are part of"
    )


def add_source_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        action="append",
        type=parse_source,
        metavar="S",
        help="only conversations of this source, such as telegram; may be repeated",
    )


def add_time_options(parser: argparse.ArgumentParser) -> None:
    for flag, meaning in (("--since", "on or after"), ("--until", "before the end of")):
        parser.add_argument(
            flag,
            type=parse_text,
            metavar="WHEN",
            help=f"last active {meaning} this: 2w, yesterday, 2026-05, 'May 2'",
        )


def add_workspace_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace",
        type=parse_text,
        metavar="W",
        help="only conversations started in this directory or git repository: its path or the end of it",
    )


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select conversations and that `hermes sessions export` and `hermes sessions prune`
    have in common."""
    add_source_option(parser)
    parser.add_argument(
        "--title", type=parse_text, metavar="T", help="only conversations with this in their title"
    )
    parser.add_argument(
        "--model", type=parse_text, metavar="M", help="only conversations with this in their model's name"
    )
    parser.add_argument(
        "--min-messages",
        type=parse_row_count,
        metavar="N",
        help="only conversations with at least N messages",
    )
    parser.add_argument(
        "--max-messages", type=parse_row_count, metavar="N", help="only conversations with at most N messages"
    )
    add_workspace_option(parser)


def make_selection(arguments: argparse.Namespace) -> Selection:
    """Return the selection of conversations that the flags of `add_selection_options` describe. If the command
    also has `--since` and `--until`, they are included."""
    from hermes.store.sessions.selection import Selection

    since, until = parse_times(arguments) if hasattr(arguments, "since") else (None, None)
    least, most = arguments.min_messages, arguments.max_messages
    if least is not None and most is not None and least > most:
        raise WrongUsage(f"no number of messages is at least {least} and at most {most}")
    return Selection(
        sources=arguments.source,
        title=arguments.title,
        model=arguments.model,
        min_messages=arguments.min_messages,
        max_messages=arguments.max_messages,
        workspace=arguments.workspace,
        since=since,
        until=until,
    )


def is_filtered(arguments: argparse.Namespace) -> bool:
    """Return whether any of the flags of `add_selection_options` is set."""
    names = ("source", "title", "model", "min_messages", "max_messages", "workspace")
    return any(getattr(arguments, name) is not None for name in names)


def parse_times(arguments: argparse.Namespace) -> tuple[float | None, float | None]:
    """Return the time where the range of `--since` begins and the time where the range of `--until` ends.

    A duration such as `2w` is counted back from now.
    """
    if arguments.since is None and arguments.until is None:
        return None, None
    now = clock.now()
    since = _parse_edge("--since", arguments.since, now, 0)
    until = _parse_edge("--until", arguments.until, now, 1)
    if since is not None and until is not None and since >= until:
        raise WrongUsage(f"--since {arguments.since} begins after --until {arguments.until} ends")
    return since, until


def report_unknown(
    db: SessionDB,
    sources: Iterable[str] | None,
    tags: Iterable[str] | None = None,
    workspace: Path | str | None = None,
) -> None:
    """Print a line for each source, tag or workspace that no conversation of the store has. A source that
    this program knows, such as a platform, is not reported."""
    if workspace is not None and not _has_workspace(db, workspace):
        print_error(f"no conversation has the workspace '{make_printable(str(workspace))}'")
    for source in dict.fromkeys(sources or ()):
        if not db.session_count(source) and (known := _list_known_sources()) and source not in known:
            print_error(f"no conversation has the source '{source}'{_suggest(source, known)}")
    used = [tag for tag, _count in db.all_tags()] if tags else []
    for tag in dict.fromkeys(tags or ()):
        if tag.casefold() not in used:
            print_error(f"no conversation has the tag '{tag}'{_suggest(tag, used)}")


def _has_workspace(db: SessionDB, workspace: Path | str) -> bool:
    page = db.list_conversations(workspace=workspace, include_hidden=True, limit=1)
    return bool(page.total or page.hidden)


def _list_known_sources() -> tuple[str, ...]:
    from hermes.cli.sources import list_sources
    from hermes.session_kinds import SOURCE_ALIASES, SOURCES

    return (*SOURCES, *SOURCE_ALIASES, *list_sources())


def _suggest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _parse_edge(flag: str, text: str | None, now: float, end: int) -> float | None:
    from hermes.recall.query.dates import read_date

    if text is None:
        return None
    span = read_date(text, now)
    if span is None:
        raise WrongUsage(f"{flag} does not understand {text!r}; try 2w, yesterday, 2026-05 or 'May 2'")
    return span.start if span.end == now else span[end]  # "2w" is a range that ends now; use its start


def describe_hidden(hidden: dict[str, int]) -> str:
    """Format the numbers of conversations that a list hides, by the reason why they are hidden: `300 cron, 12
    archived`."""
    most_first = sorted(hidden.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {REASONS.get(reason, reason)}" for reason, count in most_first)
