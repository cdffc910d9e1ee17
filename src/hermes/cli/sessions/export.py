"""`hermes sessions export OUTPUT`: write conversations to a file (atomically) or to stdout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hermes import clock
from hermes.cli.command import Words, add_dry_run_option, add_store_option, parse_days, parse_text
from hermes.cli.exit_codes import DONE, WrongUsage, suggest_force
from hermes.cli.filters import (
    add_selection_options,
    add_time_options,
    is_filtered,
    make_selection,
    report_unknown,
)
from hermes.cli.io.output import print_error, print_lines
from hermes.cli.io.progress import Progress
from hermes.cli.store_access import find_session, open_store, require_store
from hermes.export.formats import FORMATS, choose_format
from hermes.export.output_file import Replace, is_stream, refuse_store_files
from hermes.export.plan import Plan, plan_conversation, plan_selection, plan_session
from hermes.export.writer import Destination, Export, Options, Result
from hermes.secrets import list_names
from hermes.text import format_count, format_size, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.selection import Selection

STDOUT = "-"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, export_sessions)
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="a file, a folder (the file is named after the session), or - for stdout",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace any existing file; an earlier export is always replaced and kept as FILE~",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="jsonl: everything, can be imported; md: a document per conversation; html: one page with search; "
        "trace: Claude Code's events (default: by the suffix of OUTPUT, otherwise jsonl)",
    )
    parser.add_argument(
        "--session-id",
        type=parse_text,
        metavar="ID",
        help="only this conversation: an id, an id prefix or a title",
    )
    parser.add_argument(
        "--segment", action="store_true", help="with --session-id: only this session, not its conversation"
    )
    parser.add_argument(
        "--lineage",
        action="store_true",
        help="also export related sessions: branches, resets and subagents",
    )
    add_selection_options(parser)
    parser.add_argument(
        "--older-than",
        type=parse_days,
        metavar="DAYS",
        help="only conversations without activity for DAYS days",
    )
    add_time_options(parser)
    parser.add_argument("--only", choices=["user-prompts"], help="only messages of people")
    parser.add_argument(
        "--redact",
        action="store_true",
        help="mask the secrets listed below; other secrets stay, so read the export before you share it",
    )
    parser.epilog = f"--redact knows: {', '.join(list_names())}."
    parser.add_argument(
        "--remote-images",
        action="store_true",
        help="md: keep links to remote pictures, which a viewer loads from the web",
    )
    add_dry_run_option(parser)


def export_sessions(arguments: argparse.Namespace) -> int:
    _check_arguments(arguments)
    store = require_store(arguments)
    options = _make_options(arguments, store)
    destination = _make_destination(arguments, store)
    with open_store(arguments) as db, suggest_force():
        report_unknown(db, arguments.source, workspace=arguments.workspace)
        plan = _make_plan(db, arguments)
        is_visible = arguments.output != STDOUT or not sys.stdout.isatty()
        with Progress("Exporting", plan.total, is_visible=is_visible) as progress:
            export = Export(plan, options, report=lambda latest: progress.step(latest.done - progress.done))
            result = _write(export, arguments, destination)
    if result.missing:
        count = format_count(len(result.missing), "session")
        print_error(f"deleted during the export and left out: {count}")
    if arguments.dry_run:
        print_lines([_describe_dry_run(len(plan.conversations), result, arguments)])
    elif arguments.output != STDOUT:
        exported = (
            f"Exported {format_count(result.sessions, 'session')} to {_describe_place(result, arguments)}"
        )
        print_lines([exported, *_format_backups(result.backups)])
    if arguments.redact and arguments.output != STDOUT:
        print_lines([_format_redacted(result.redacted)])
    return DONE


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.session_id is None:
        if arguments.segment:
            raise WrongUsage("--segment needs --session-id")
    elif is_filtered(arguments) or any((arguments.older_than is not None, arguments.since, arguments.until)):
        raise WrongUsage("--session-id names one conversation; it cannot be combined with filters")
    elif arguments.segment and arguments.lineage:
        raise WrongUsage("--segment exports one session, --lineage a whole family; choose one")


def _make_options(arguments: argparse.Namespace, store: Path) -> Options:
    chosen_format = choose_format(arguments.format, arguments.output)
    if chosen_format is None:
        refuse_store_files(store, Path(arguments.output).expanduser())
        suffix = Path(arguments.output).suffix
        raise WrongUsage(
            f"no format has the suffix {suffix!r}; use .jsonl, .md or .html, or choose a format with --format"
        )
    if arguments.remote_images and chosen_format is not FORMATS["md"]:
        raise WrongUsage("--remote-images needs --format md")
    return Options(
        chosen_format,
        redact=arguments.redact,
        prompts_only=arguments.only is not None,
        remote_images=arguments.remote_images,
    )


def _make_plan(db: SessionDB, arguments: argparse.Namespace) -> Plan:
    if arguments.session_id is None:
        return plan_selection(db, _make_selection(arguments), lineage=arguments.lineage)
    session_id = find_session(db, arguments.session_id, segment=arguments.segment)
    if arguments.segment:
        return plan_session(db, session_id)
    return plan_conversation(db, session_id, lineage=arguments.lineage)


def _make_selection(arguments: argparse.Namespace) -> Selection:
    filters = make_selection(arguments)
    if arguments.older_than is None:
        return filters
    before = clock.now() - arguments.older_than * clock.DAY
    if filters.since is not None and filters.since >= before:
        raise WrongUsage(f"--since {arguments.since} begins after --older-than {arguments.older_than:g} ends")
    return filters._replace(until=before if filters.until is None else min(before, filters.until))


def _make_destination(arguments: argparse.Namespace, store: Path) -> Destination | None:
    """Return the file or folder to which the export is written, from the arguments of the command. Return None
    if the export goes to stdout or another stream. `store` is the path of the store, which must not be
    overwritten."""
    path = Path(arguments.output).expanduser()
    if arguments.output == STDOUT:
        return None
    if is_stream(path):
        refuse_store_files(store, path)
        return None
    replace = Replace.ANYTHING if arguments.force else Replace.EXPORTS
    return Destination(path, store, replace, makes_folder=arguments.output.endswith("/"))


def _write(export: Export, arguments: argparse.Namespace, destination: Destination | None) -> Result:
    if arguments.dry_run:
        return export.measure(destination)
    if destination is not None:
        return export.write_files(destination)
    with _open_stream(arguments.output) as stream:
        return export.write_stream(stream)


@contextmanager
def _open_stream(output: str) -> Iterator[BinaryIO]:
    if output == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output).expanduser()
    # Links in /dev lead to streams of this process. No other link is followed, even if it was created after
    # the checks.
    follow = 0 if path.absolute().is_relative_to("/dev") else os.O_NOFOLLOW
    with os.fdopen(os.open(path, os.O_WRONLY | follow), "wb") as stream:
        yield stream


def _describe_place(result: Result, arguments: argparse.Namespace) -> str:
    """Return the path that the final message names as the output of the export. If one file was written into a
    folder, this is the path of the file. Otherwise it is the path as the user typed it."""
    is_inside = len(result.files) == 1 and result.files[0] != Path(arguments.output).expanduser()
    return make_printable(str(result.files[0]) if is_inside else arguments.output)


def _format_backups(backups: Sequence[Path]) -> list[str]:
    if len(backups) == 1:
        return [f"Kept the previous export as {make_printable(backups[0].name)}"]
    return [f"Kept {len(backups)} previous exports, with ~ after their names"] if backups else []


def _format_redacted(counts: Mapping[str, int]) -> str:
    if not counts:
        return "Masked no secrets: none of the known kinds was found"
    kinds = ", ".join(f"{count} × {name}" for name, count in sorted(counts.items()))
    return f"Masked {format_count(sum(counts.values()), 'secret')}: {kinds}"


def _describe_dry_run(count: int, result: Result, arguments: argparse.Namespace) -> str:
    parts = f"{format_count(result.sessions, 'session')}, {format_count(result.messages, 'message')}"
    place = "stdout" if arguments.output == STDOUT else _describe_place(result, arguments)
    size = format_size(result.bytes)
    return f"Would export {format_count(count, 'conversation')} ({parts}), about {size}, to {place}"
